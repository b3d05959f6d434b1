//! Large files that are finished while their last segments are on their way.

use std::{
    fs,
    ops::Range,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use crate::support::running::{Running, noise};
use bytes::Bytes as Content;
use futures_util::stream;
use posthaste_endpoint::{
    ByteStream, Checksum, Endpoint, ErrorKind, FileSpec, FileTime, Writer,
    gateway::Way,
    peer::{Address, Peer},
    posix::DraftRules,
    relay::Credential,
};
use posthaste_testbed::odd::{Call, Deed, Files, Habits};
use posthaste_types::Bytes;
use tokio::{
    task::JoinSet,
    time::{sleep, timeout},
};

/// Three segments, the last one shorter.
const SIZE: usize = (5 << 19) / 2;

async fn begin(relay: &Running) -> Arc<dyn Writer> {
    let address = Address {
        host: relay.local.ip().to_string(),
        port: relay.local.port(),
        fingerprint: relay.address.fingerprint,
        credential: Credential::Secret(relay.secret),
        ways: vec![Way::straight()],
    };
    let peer = Peer::open(address, b"", DraftRules::default()).await;
    let spec = FileSpec {
        size: SIZE as u64,
        mtime: Some(FileTime { secs: 5, nanos: 7 }),
        mode: Some(0o600),
        origin: "test:finish-ahead".into(),
        version: None,
    };
    peer.unwrap().create(b"file", &spec).await.unwrap()
}

async fn start(folder: &Path) -> Running {
    Running::start(folder, |options| options.capacity = Bytes::mebi(64)).await
}

fn range(writer: &dyn Writer, index: u64) -> Range<u64> {
    let start = index * writer.segment_size();
    start..(start + writer.segment_size()).min(SIZE as u64)
}

async fn write(writer: &dyn Writer, index: u64, content: &[u8]) {
    let range = range(writer, index);
    let at = |offset: u64| usize::try_from(offset).unwrap();
    let bytes = Content::copy_from_slice(&content[at(range.start)..at(range.end)]);
    let body: ByteStream = Box::pin(stream::iter([Ok(bytes)]));
    writer.write(index, range, body).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_finishes_ahead_waits_for_the_last_segment() {
    let folder = tempfile::tempdir().unwrap();
    let relay = start(folder.path()).await;
    let (writer, content) = (begin(&relay).await, noise(1, SIZE));
    let there = folder.path().join("files/file");

    write(&*writer, 0, &content).await;
    let mut finishing = JoinSet::new();
    finishing.spawn({
        let (writer, whole) = (Arc::clone(&writer), Checksum::of(&content));
        async move { writer.finish_ahead(whole).await }
    });
    write(&*writer, 2, &content).await;
    sleep(Duration::from_millis(300)).await;
    assert!(!there.exists(), "a segment is missing");
    assert!(finishing.try_join_next().is_none());

    write(&*writer, 1, &content).await;
    finishing.join_next().await.unwrap().unwrap().unwrap();
    assert_eq!(fs::read(&there).unwrap(), content);
    let left = fs::read_dir(there.parent().unwrap()).unwrap().count();
    assert_eq!(left, 1, "nothing unfinished is left");
}

#[tokio::test(flavor = "multi_thread")]
async fn it_is_known_when_everything_is_on_its_way() {
    let folder = tempfile::tempdir().unwrap();
    let relay = start(folder.path()).await;
    let (writer, content) = (begin(&relay).await, noise(1, SIZE));
    write(&*writer, 1, &content).await;
    write(&*writer, 0, &content).await;
    let early = timeout(Duration::from_millis(100), writer.all_sent()).await;
    assert!(early.is_err(), "the last segment was not sent yet");
    write(&*writer, 2, &content).await;
    assert_eq!(writer.all_sent().await, Some(Checksum::of(&content)));
}

#[tokio::test(flavor = "multi_thread")]
async fn segments_that_never_come_are_no_harm() {
    let folder = tempfile::tempdir().unwrap();
    let relay = start(folder.path()).await;
    let (writer, content) = (begin(&relay).await, noise(1, SIZE));
    let whole = Checksum::of(&content);
    write(&*writer, 0, &content).await;
    write(&*writer, 1, &content).await;
    let refused = writer.finish_ahead(whole).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Corrupt, "{refused}");
    assert!(!folder.path().join("files/file").exists());

    write(&*writer, 2, &content).await;
    writer.finish(whole).await.unwrap();
    assert_eq!(fs::read(folder.path().join("files/file")).unwrap(), content);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_whole_that_is_not_what_arrived_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let relay = start(folder.path()).await;
    let (writer, content) = (begin(&relay).await, noise(1, SIZE));
    for index in 0..3 {
        write(&*writer, index, &content).await;
    }
    let refused = writer.finish_ahead(Checksum::of(b"other")).await;
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::Corrupt);
    assert!(!folder.path().join("files/file").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_file_system_says_once_of_lost_bytes_is_heard() {
    /// Error number of a failed write, as in errno(3).
    const EIO: i32 = 5;
    let was_told = AtomicBool::new(false);
    let fails = move |call: &Call| {
        let tells = call.deed == Deed::Close && call.end > 0 && call.has("posthaste-partial");
        (tells && !was_told.swap(true, Ordering::Relaxed)).then_some(EIO)
    };
    let mount = Files::mount(Habits::refusing(fails));
    let relay = start(mount.path()).await;
    let (writer, content) = (begin(&relay).await, noise(1, SIZE));
    for index in 0..3 {
        write(&*writer, index, &content).await;
    }
    let whole = Checksum::of(&content);
    let refused = writer.finish_ahead(whole).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Other, "{refused}");
    // Asked again, it does not say so any more.
    let refused = writer.finish(whole).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Corrupt, "{refused}");
    assert!(!mount.behind().join("files/file").exists());

    for index in 0..3 {
        write(&*writer, index, &content).await;
    }
    writer.finish(whole).await.unwrap();
    let found = fs::read(mount.behind().join("files/file")).unwrap();
    assert_eq!(found, content);
}
