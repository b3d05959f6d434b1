//! SFTP servers with unexpected answers.

use std::{
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt, symlink},
    path::Path,
};

use bytes::Bytes;
use futures_util::TryStreamExt;
use posthaste_endpoint::{
    Checksum, Endpoint, ErrorKind, FileSpec, FileTime, Result,
    posix::DraftRules,
    sftp::{Host, Sftp},
};
use posthaste_testbed::{
    SshServer,
    odd::{SftpSpoils, sftp_server},
};

use crate::edges::{
    put, says,
    table::{End, shown},
    write,
};

const LARGE: usize = 20 << 20;

async fn open(server: &SshServer, root: &Path, verify: bool) -> Result<Sftp> {
    let host = Host {
        user: Some(server.user().to_owned()),
        host: "127.0.0.1".to_owned(),
        port: Some(server.port()),
        options: server.options(),
    };
    let rules = DraftRules {
        verify,
        fsync: false,
        ..DraftRules::default()
    };
    let root = root.to_string_lossy().into_owned().into_bytes();
    Sftp::open(host, root, rules).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shell_that_talks_first_is_told() {
    let (server, folder) = sftp_server(SftpSpoils::Starts);
    let error = says(
        open(&server, folder.path(), true).await.map(|_| ()),
        "Welcome to node 7>",
    );
    assert!(error.to_string().contains("start files"), "{error}");
    shown(
        "SFTP",
        "a shell's start file prints something",
        End::Refused,
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_not_written_in_the_end_is_not_there() {
    for (spoils, situation) in [
        (SftpSpoils::Closes, "closing a file fails"),
        (
            SftpSpoils::Writes,
            "what is written is taken and goes nowhere",
        ),
        (
            SftpSpoils::OnlySaysRenamed,
            "a rename is only said to be done",
        ),
    ] {
        let (server, folder) = sftp_server(spoils);
        let root = folder.path().join("root");
        fs::create_dir(&root).unwrap();
        for verify in [true, false] {
            let sftp = open(&server, &root, verify).await.unwrap();
            assert!(put(&sftp, b"small", &[7; 50_000]).await.is_err());
            assert!(write(&sftp, b"large", &vec![7; LARGE]).await.is_err());
        }
        assert!(!root.join("small").exists() && !root.join("large").exists());
        shown("SFTP", situation, End::Refused);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_quota_that_is_used_up_concerns_everything() {
    let (server, folder) = sftp_server(SftpSpoils::Quota);
    let root = folder.path().join("root");
    fs::create_dir(&root).unwrap();
    let sftp = open(&server, &root, true).await.unwrap();
    for error in [
        put(&sftp, b"small", &[7; 50_000]).await.unwrap_err(),
        write(&sftp, b"large", &vec![7; LARGE]).await.unwrap_err(),
    ] {
        assert!(error.concerns_everything(), "{error}");
        assert!(
            error.to_string().contains("a quota may be used up"),
            "{error}"
        );
    }
    shown(
        "SFTP",
        "a quota is used up, and that it failed is all that is said",
        End::Refused,
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_counts_as_read_when_it_came() {
    let server = SshServer::start().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let sftp = open(&server, folder.path(), true).await.unwrap();
    let mtime = FileTime {
        secs: 1_500_000_001,
        nanos: 0,
    };
    let spec = FileSpec {
        size: 3,
        mtime: Some(mtime),
        mode: None,
        origin: "test".into(),
        version: None,
    };
    let data = vec![Bytes::from_static(b"abc")];
    let put = sftp.put(b"file", &spec, data, Checksum::of(b"abc"));
    put.await.unwrap();
    let found = fs::metadata(folder.path().join("file")).unwrap();
    assert_eq!(found.mtime(), mtime.secs);
    assert!(found.atime() > mtime.secs, "purges go by that");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_size_that_is_not_told_is_not_zero() {
    let (server, folder) = sftp_server(SftpSpoils::Sizes);
    let root = folder.path().join("root");
    fs::create_dir(&root).unwrap();
    fs::write(root.join("file"), [7; 5_000]).unwrap();
    let sftp = open(&server, &root, true).await.unwrap();
    let error = says(sftp.stat(b"file", true).await, "how long it is");
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    let mut listing = sftp.list(b"", false).await.unwrap();
    says(listing.next_page().await, "how long it is");
    shown("SFTP", "a size is not told", End::Refused);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_size_that_is_too_short_cuts_no_file() {
    let (server, folder) = sftp_server(SftpSpoils::Short);
    let root = folder.path().join("root");
    fs::create_dir(&root).unwrap();
    let sftp = open(&server, &root, true).await.unwrap();
    for len in [10, 5_000, LARGE] {
        fs::write(root.join("file"), vec![7; len]).unwrap();
        let entry = sftp.stat(b"file", true).await.unwrap().unwrap();
        assert_eq!(entry.size, len as u64 - 7);
        let read = match len {
            LARGE => {
                let reader = sftp.open(b"file", &entry).await.unwrap();
                let body = reader.read(0..entry.size).await.unwrap();
                body.try_collect::<Vec<_>>().await.unwrap();
                reader.confirm().await
            }
            _ => sftp.get(b"file", &entry).await.map(|_| ()),
        };
        let error = says(read, "more comes than it is said to hold");
        assert_eq!(error.kind(), ErrorKind::Changed);
    }
    // A file reported as empty is read to its end, like those of /proc.
    fs::write(root.join("file"), [7; 7]).unwrap();
    let entry = sftp.stat(b"file", true).await.unwrap().unwrap();
    assert_eq!(entry.size, 0);
    let whole = sftp.get(b"file", &entry).await.unwrap();
    assert_eq!((whole.entry.size, whole.data.concat()), (7, vec![7; 7]));
    shown("SFTP", "a size is told that is too short", End::Refused);
}

#[tokio::test(flavor = "multi_thread")]
async fn attributes_that_are_refused_end_nothing() {
    let (server, folder) = sftp_server(SftpSpoils::Attributes);
    let root = folder.path().join("root");
    fs::create_dir(&root).unwrap();
    for verify in [true, false] {
        let sftp = open(&server, &root, verify).await.unwrap();
        put(&sftp, b"small", &[7; 50_000]).await.unwrap();
        write(&sftp, b"large", &vec![7; LARGE]).await.unwrap();
        assert_eq!(fs::read(root.join("small")).unwrap(), [7; 50_000]);
        assert_eq!(fs::read(root.join("large")).unwrap().len(), LARGE);
        let unkept = sftp.unkept();
        assert_eq!((unkept.modes, unkept.times), (2, 2));
    }
    shown("SFTP", "modes and times are refused", End::Right);
}

#[tokio::test(flavor = "multi_thread")]
async fn more_than_was_asked_for_is_refused() {
    let (server, folder) = sftp_server(SftpSpoils::Reads);
    let root = folder.path().join("root");
    fs::create_dir(&root).unwrap();
    fs::write(root.join("file"), vec![7; LARGE]).unwrap();
    let sftp = open(&server, &root, true).await.unwrap();
    let entry = sftp.stat(b"file", true).await.unwrap().unwrap();
    let reader = sftp.open(b"file", &entry).await.unwrap();
    let read: Result<Vec<Bytes>> = reader
        .read(0..LARGE as u64)
        .await
        .unwrap()
        .try_collect()
        .await;
    says(read, "more than it was asked for");
    fs::write(root.join("small"), [7; 5_000]).unwrap();
    let entry = sftp.stat(b"small", true).await.unwrap().unwrap();
    says(
        sftp.get(b"small", &entry).await,
        "more than it was asked for",
    );
    shown("SFTP", "more comes than was asked for", End::Refused);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rename_whose_answer_is_lost_is_found() {
    for large in [false, true] {
        let (server, folder) = sftp_server(SftpSpoils::Renames);
        let root = folder.path().join("root");
        fs::create_dir(&root).unwrap();
        let sftp = open(&server, &root, true).await.unwrap();
        let bytes = vec![7; if large { LARGE } else { 50_000 }];
        match large {
            true => write(&sftp, b"file", &bytes).await.unwrap(),
            false => put(&sftp, b"file", &bytes).await.unwrap(),
        }
        assert!(folder.path().join("done").exists(), "no answer was lost");
        assert!(fs::read(root.join("file")).unwrap() == bytes);
    }
    shown("SFTP", "the answer to the last step is lost", End::Right);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_older_file_of_that_size_is_not_what_was_renamed() {
    let (server, folder) = sftp_server(SftpSpoils::KeepsOld);
    let root = folder.path().join("root");
    fs::create_dir(&root).unwrap();
    for (name, len) in [("small", 50_000), ("large", LARGE)] {
        let old = fs::File::create(root.join(name)).unwrap();
        old.set_len(len as u64).unwrap();
        old.set_modified(std::time::UNIX_EPOCH).unwrap();
        let sftp = open(&server, &root, false).await.unwrap();
        let written = match name {
            "small" => put(&sftp, b"small", &vec![7; len]).await,
            _ => write(&sftp, b"large", &vec![7; len]).await,
        };
        says(written, "and did not");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_others_put_under_a_foretold_name_is_left_alone() {
    let server = SshServer::start().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("root");
    fs::create_dir(&root).unwrap();
    let spec = FileSpec {
        size: 3,
        mtime: Some(FileTime { secs: 5, nanos: 0 }),
        mode: Some(0o600),
        origin: "test".into(),
        version: None,
    };
    let hash = blake3::hash(format!("small{}", spec.identity()).as_bytes()).to_hex();
    let foretold = root.join(format!(".small.{}.posthaste-partial", &hash[..12]));
    let victim = folder.path().join("victim");
    let sftp = open(&server, &root, true).await.unwrap();
    let put = async || {
        let pieces = vec![Bytes::from_static(b"abc")];
        let put = sftp.put(b"small", &spec, pieces, Checksum::of(b"abc"));
        put.await.unwrap();
        let found = fs::symlink_metadata(root.join("small")).unwrap();
        assert!(found.is_file());
        assert_eq!(found.permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read(root.join("small")).unwrap(), b"abc");
        assert_eq!(
            fs::read_dir(&root).unwrap().count(),
            1,
            "nothing else is left"
        );
    };
    fs::write(&victim, "precious").unwrap();
    symlink(&victim, &foretold).unwrap();
    put().await;
    fs::write(&foretold, "what a killed copy left").unwrap();
    put().await;
    assert_eq!(fs::read(&victim).unwrap(), b"precious");
}
