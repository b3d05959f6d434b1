//! FTP servers that break their own claims.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::TryStreamExt;
use posthaste_endpoint::{
    Checksum, Endpoint, Entry, ErrorKind, FileSpec, FileTime, Kind, Result, Unkept,
    posix::DraftRules,
};
use posthaste_testbed::{
    conformance::open_with,
    odd::{FtpHabit, FtpServer},
};

use crate::edges::{
    says,
    table::{End, shown},
};

/// Size above that of a single read.
const LARGE_BYTES: usize = (20 << 20) + 5;

/// Time that the server reports for all its files.
const MTIME: FileTime = FileTime {
    secs: 1_577_836_800,
    nanos: 0,
};

fn noise(len: usize) -> Vec<u8> {
    (0..=250).cycle().take(len).collect()
}

async fn ftp(server: &FtpServer) -> Arc<dyn Endpoint> {
    // The servers' answers are tested.
    let rules = DraftRules {
        verify: false,
        ..DraftRules::default()
    };
    let address = format!("{}/t", server.url());
    open_with(&address, "", rules).await.unwrap()
}

async fn get(endpoint: &dyn Endpoint, path: &[u8]) -> Result<Vec<u8>> {
    let entry = endpoint.stat(path, true).await?.unwrap();
    Ok(endpoint.get(path, &entry).await?.data.concat())
}

/// Reads a range of a large file.
async fn read(endpoint: &dyn Endpoint, range: std::ops::Range<u64>) -> Result<Vec<u8>> {
    let entry = endpoint.stat(b"large", true).await?.unwrap();
    let reader = endpoint.open(b"large", &entry).await?;
    let pieces: Vec<_> = reader.read(range).await?.try_collect().await?;
    Ok(pieces.concat())
}

fn spec(size: usize) -> FileSpec {
    FileSpec {
        size: size as u64,
        mtime: Some(MTIME),
        mode: Some(0o644),
        origin: "test:edges".into(),
        version: None,
    }
}

async fn put(endpoint: &dyn Endpoint, path: &[u8], bytes: &[u8]) -> Result<()> {
    let data = vec![Bytes::copy_from_slice(bytes)];
    let sum = Checksum::of(bytes);
    endpoint.put(path, &spec(bytes.len()), data, sum).await
}

async fn list(endpoint: &dyn Endpoint) -> Result<Vec<Entry>> {
    let mut listing = endpoint.list(b"", true).await?;
    let mut entries = Vec::new();
    loop {
        let page = listing.next_page().await?;
        if page.is_empty() {
            return Ok(entries);
        }
        entries.extend(page);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_begins_elsewhere_is_found_out() {
    let large = noise(LARGE_BYTES);
    let held = [("/t/large", &*large)];
    let server = FtpServer::start(FtpHabit::PassesOverRest, &held).await;
    let size = LARGE_BYTES as u64;
    for range in [8 << 20..9 << 20, 16 << 20..size] {
        let endpoint = ftp(&server).await;
        says(read(&*endpoint, range).await, "passes over REST");
    }
    let endpoint = ftp(&server).await;
    assert!(read(&*endpoint, 0..size).await.unwrap() == large);
    shown("FTP", "REST is taken and passed over", End::Refused);
    let server = FtpServer::start(FtpHabit::KeepsNoFolderTimes, &held).await;
    let read = read(&*ftp(&server).await, 8 << 20..9 << 20).await.unwrap();
    assert!(read == large[8 << 20..9 << 20]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transfer_that_ends_early_or_with_an_error_is_no_file() {
    let held = [("/t/x", &b"some content"[..])];
    let server = FtpServer::start(FtpHabit::EndsEarly, &held).await;
    let early = get(&*ftp(&server).await, b"x").await;
    assert_eq!(
        says(early, "ended 6 bytes early").kind(),
        ErrorKind::Changed
    );
    shown("FTP", "a file ends early, with success", End::Refused);
    let server = FtpServer::start(FtpHabit::FailsAtEnd, &held).await;
    says(get(&*ftp(&server).await, b"x").await, "transfer aborted");
    says(list(&*ftp(&server).await).await, "transfer aborted");
    let server = FtpServer::start(FtpHabit::FailsToStore, &[]).await;
    says(
        put(&*ftp(&server).await, b"x", b"content").await,
        "local error",
    );
    assert_eq!(server.held("/t/x"), None);
    shown("FTP", "an error is told after the last byte", End::Refused);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_size_that_is_not_told_is_asked_for() {
    let held = [("/t/x", &b"some content"[..])];
    let server = FtpServer::start(FtpHabit::TellsNoSizes, &held).await;
    let endpoint = ftp(&server).await;
    assert_eq!(get(&*endpoint, b"x").await.unwrap(), b"some content");
    assert_eq!(list(&*endpoint).await.unwrap()[0].size, 12);
    put(&*endpoint, b"y", b"content").await.unwrap();
    assert_eq!(server.held("/t/y").unwrap(), b"content");
    shown("FTP", "a listing leaves a size out", End::Right);
    let server = FtpServer::start(FtpHabit::KnowsNoSizes, &held).await;
    let endpoint = ftp(&server).await;
    says(get(&*endpoint, b"x").await, "how long it is");
    let entries = list(&*endpoint).await.unwrap();
    let unsized_one = endpoint.get(b"x", &entries[0]).await;
    says(unsized_one, "how long it is");
    shown("FTP", "a size is not told", End::Refused);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_size_that_is_too_short_cuts_no_file() {
    let held = [("/t/x", &b"some content"[..]), ("/t/y", &b"content"[..])];
    let server = FtpServer::start(FtpHabit::TellsShortSizes, &held).await;
    let endpoint = ftp(&server).await;
    for path in [&b"x"[..], b"y"] {
        let error = says(get(&*endpoint, path).await, "more comes than there is");
        assert_eq!(error.kind(), ErrorKind::Changed);
    }
    shown("FTP", "a size is told that is too short", End::Refused);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_that_is_cut_is_not_all() {
    let held = [("/t/a", &b"1"[..]), ("/t/long name", b"2")];
    let server = FtpServer::start(FtpHabit::CutsLists, &held).await;
    says(list(&*ftp(&server).await).await, "in the middle of a line");
    shown("FTP", "a listing is cut short", End::Refused);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_server_does_not_keep_ends_nothing() {
    let lost = Unkept { modes: 2, times: 2 };
    for (habit, unkept) in [
        (FtpHabit::KeepsNoFolderTimes, Unkept::default()),
        (FtpHabit::KeepsNothing, lost),
    ] {
        let server = FtpServer::start(habit, &[]).await;
        let endpoint = ftp(&server).await;
        assert!(endpoint.capabilities().directory_attributes);
        put(&*endpoint, b"x", b"content").await.unwrap();
        assert_eq!(server.held("/t/x").unwrap(), b"content");
        let folder = Entry {
            mtime: Some(MTIME),
            mode: Some(0o755),
            ..Entry::bare(Vec::new(), Kind::Directory)
        };
        endpoint.seal_directory(b"", &folder, false).await.unwrap();
        assert_eq!(endpoint.unkept(), unkept, "{habit:?}");
    }
    let server = FtpServer::start(FtpHabit::KeepsNothing, &[]).await;
    let endpoint = ftp(&server).await;
    assert_eq!(endpoint.learn_time_step_ns(b"x").await.unwrap(), None);
    assert_eq!(endpoint.capabilities().mtime_step_ns, None);
    assert_eq!(endpoint.unkept(), Unkept::default(), "a trial is no file");
    shown("FTP", "times and modes are refused", End::Right);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_time_of_another_century_takes_nobody_else_s() {
    let server = FtpServer::start(FtpHabit::RefusesOldTimes, &[]).await;
    let endpoint = ftp(&server).await;
    let old = FileSpec {
        mtime: Some(FileTime {
            secs: -600_000_000,
            nanos: 0,
        }),
        ..spec(3)
    };
    let data = vec![Bytes::from_static(b"old")];
    let stored = endpoint.put(b"old", &old, data, Checksum::of(b"old"));
    stored.await.unwrap();
    put(&*endpoint, b"refused", b"content").await.unwrap();
    put(&*endpoint, b"x", b"content").await.unwrap();
    assert_eq!(
        endpoint.unkept(),
        Unkept { modes: 0, times: 2 },
        "the other's was set"
    );
    shown("FTP", "one time is refused", End::Right);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rename_whose_answer_is_lost_is_looked_for() {
    let server = FtpServer::start(FtpHabit::LosesRenames, &[]).await;
    let endpoint = ftp(&server).await;
    let bytes = noise(LARGE_BYTES);
    let writer = endpoint.create(b"x", &spec(LARGE_BYTES)).await.unwrap();
    let step = usize::try_from(writer.segment_size()).unwrap();
    for (index, piece) in (0..).zip(bytes.chunks(step)) {
        let start = index * writer.segment_size();
        let body = vec![Ok(Bytes::copy_from_slice(piece))];
        let body = Box::pin(futures_util::stream::iter(body));
        let range = start..start + piece.len() as u64;
        writer.write(index, range, body).await.unwrap();
    }
    let sum = Checksum::of(&bytes);
    // However often it is requested, no answer comes.
    writer.finish(sum).await.unwrap();
    assert!(server.held("/t/x").unwrap() == bytes);
    put(&*endpoint, b"y", b"small").await.unwrap();
    assert_eq!(server.held("/t/y").unwrap(), b"small");
    shown("FTP", "the answer to a rename is lost", End::Right);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_with_a_slash_in_its_name_is_listed() {
    let held = [("/t/a/b", &b"x"[..]), ("/t/c", b"x")];
    let server = FtpServer::start(FtpHabit::KeepsNoFolderTimes, &held).await;
    let entries = list(&*ftp(&server).await).await.unwrap();
    let mut names: Vec<_> = entries.iter().map(|entry| &*entry.name).collect();
    names.sort_unstable();
    // The copy reports the first as left out.
    assert_eq!(names, [&b"a/b"[..], b"c"]);
    shown(
        "FTP",
        "a file in a list has a slash in its name",
        End::LeftOut,
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rename_that_is_refused_leaves_what_was_there() {
    for (habit, is_right) in [
        (FtpHabit::RefusesRenames, false),
        (FtpHabit::OnlySaysRenamed, false),
        (FtpHabit::DropsRenamed, false),
        (FtpHabit::KeepsOld, false),
        (FtpHabit::KeepsNames, true),
    ] {
        let is_alike = habit == FtpHabit::KeepsOld;
        let old: &[u8] = if is_alike { b"older" } else { b"old" };
        let server = FtpServer::start(habit, &[("/t/x", old)]).await;
        let endpoint = ftp(&server).await;
        let stored = put(&*endpoint, b"x", b"newer").await;
        assert_eq!(stored.is_ok(), is_right, "{habit:?}");
        let there = if is_right { b"newer" } else { old };
        assert_eq!(server.held("/t/x").unwrap(), there, "{habit:?}");
        assert_eq!(
            list(&*endpoint).await.unwrap().len(),
            1,
            "nothing is left over"
        );
    }
    shown(
        "FTP",
        "a rename is refused, or only said to be done",
        End::Refused,
    );
    shown("FTP", "no rename replaces what is there", End::Right);
}

#[tokio::test(flavor = "multi_thread")]
async fn each_name_of_a_list_is_told() {
    let held = [("/t/one", &b"1"[..]), ("/t/one\r", b"2"), ("/t/..", b"3")];
    let server = FtpServer::start(FtpHabit::KeepsNoFolderTimes, &held).await;
    let endpoint = ftp(&server).await;
    let names = list(&*endpoint).await.unwrap();
    let names: Vec<_> = names.iter().map(|entry| entry.name.as_slice()).collect();
    assert_eq!(names, [&b".."[..], b"one", b"one\r"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mode_that_is_refused_for_one_name_is_set_for_the_others() {
    let server = FtpServer::start(FtpHabit::RefusesTabs, &[]).await;
    let endpoint = ftp(&server).await;
    for name in [&b"a\tb"[..], b"c", b"d"] {
        put(&*endpoint, name, b"x").await.unwrap();
    }
    assert!(endpoint.capabilities().modes);
    assert_eq!(endpoint.unkept(), Unkept { modes: 1, times: 0 });
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_tried_below_an_address_that_names_a_file() {
    let server = FtpServer::start(FtpHabit::KeepsOld, &[("/t/x", b"old")]).await;
    let address = format!("{}/t/x", server.url());
    let rules = DraftRules::default();
    let endpoint = open_with(&address, "", rules).await.unwrap();
    let step_ns = endpoint.learn_time_step_ns(b"").await.unwrap();
    assert_eq!(step_ns, Some(1_000_000_000));
}
