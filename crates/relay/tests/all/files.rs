//! Files on a relay: the suite that every endpoint passes, and refusals.

use std::{fs, os::unix::fs::symlink, path::Path, sync::Arc};

use crate::support::raw::send_raw;
use crate::support::running::{Running, later, noise};
use bytes::Bytes as Content;
use posthaste_endpoint::{
    Checksum, Endpoint, Entry, ErrorKind, FileSpec, FileTime, Kind, Parcel,
    gateway::Way,
    peer::{
        Address, Peer,
        wire::{Create, Name, Stored, Write},
    },
    posix::DraftRules,
    relay::{Credential, Scope, mint},
};
use posthaste_testbed::{
    SlowLink,
    conformance::{leaves_in_steps, passes_as_one_file, passes_the_suite},
};
use posthaste_types::{Bytes, Record};

async fn peer(relay: &Running, root: &str) -> Peer {
    peer_with(relay, root, Credential::Secret(relay.secret))
        .await
        .unwrap()
}

async fn peer_with(
    relay: &Running,
    root: &str,
    credential: Credential,
) -> posthaste_endpoint::Result<Peer> {
    let address = Address {
        host: relay.local.ip().to_string(),
        port: relay.local.port(),
        fingerprint: relay.address.fingerprint,
        credential,
        ways: vec![Way::straight()],
    };
    Peer::open(address, root.as_bytes(), DraftRules::default()).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_relay_passes_the_suite() {
    let folder = tempfile::tempdir().unwrap();
    let relay = Running::start(folder.path(), |options| {
        options.capacity = Bytes::mebi(4096);
    })
    .await;
    passes_the_suite(Arc::new(peer(&relay, "below/root").await)).await;
    passes_as_one_file(Arc::new(peer(&relay, "single/file").await)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn small_files_count_while_they_travel() {
    let folder = tempfile::tempdir().unwrap();
    let relay = Running::start(folder.path(), |_| ()).await;
    let link = SlowLink::start(relay.local, 16_000_000).unwrap();
    let address = Address {
        host: "127.0.0.1".to_owned(),
        port: link.port(),
        fingerprint: relay.address.fingerprint,
        credential: Credential::Secret(relay.secret),
        ways: vec![Way::straight()],
    };
    let peer = Peer::open(address, b"", DraftRules::default())
        .await
        .unwrap();
    // More than the system's buffers may hold, on a machine that is busy.
    let files = (0..24).map(|index| noise(index, 1_000_000));
    let parcels = files.enumerate().map(|(index, bytes)| Parcel {
        path: index.to_string().into_bytes(),
        spec: spec(bytes.len()),
        sum: Checksum::of(&bytes),
        data: vec![bytes],
    });
    let parcels: Vec<Parcel> = parcels.collect();
    let stored = leaves_in_steps(&link, (24_000_000, 40_000), peer.put_all(parcels)).await;
    assert!(stored.iter().all(Result::is_ok), "{stored:?}");
}

fn spec(size: usize) -> FileSpec {
    FileSpec {
        size: size as u64,
        mtime: Some(FileTime { secs: 5, nanos: 7 }),
        mode: Some(0o600),
        origin: "test:files".into(),
        version: None,
    }
}

fn file(size: u64) -> Entry {
    Entry {
        name: Vec::new(),
        kind: Kind::File,
        size,
        mtime: None,
        stored: None,
        mode: None,
        version: None,
    }
}

async fn put(peer: &Peer, path: &[u8], bytes: &[u8]) -> posthaste_endpoint::Result<()> {
    let data = vec![Content::copy_from_slice(bytes)];
    let sum = Checksum::of(bytes);
    peer.put(path, &spec(bytes.len()), data, sum).await
}

/// Lists everything below `dir`, except what a relay keeps of its own.
fn names_below(dir: &Path) -> Vec<String> {
    let mut names = Vec::new();
    for entry in fs::read_dir(dir).unwrap().flatten() {
        names.push(entry.file_name().to_string_lossy().into_owned());
        if entry.file_type().unwrap().is_dir() {
            names.extend(names_below(&entry.path()));
        }
    }
    names.sort();
    names
}

/// Tries every operation on `path` in a folder that nothing leads out of.
async fn is_out_of_reach(peer: &Peer, path: &[u8]) {
    let shown = String::from_utf8_lossy(path).into_owned();
    let refused = |error: posthaste_endpoint::Error| {
        assert_eq!(
            error.kind(),
            ErrorKind::PermissionDenied,
            "{shown}: {error}"
        );
    };
    refused(put(peer, path, b"evil").await.unwrap_err());
    refused(peer.stat(path, true).await.unwrap_err());
    refused(peer.get(path, &file(6)).await.unwrap_err());
    refused(peer.open(path, &file(6)).await.err().unwrap());
    refused(peer.list(path, false).await.err().unwrap());
    refused(peer.list_tree(path).await.err().unwrap());
    refused(peer.read_link(path).await.unwrap_err());
    refused(peer.make_link(path, b"x", &spec(0)).await.unwrap_err());
    refused(peer.make_directory(path).await.unwrap_err());
    refused(
        peer.seal_directory(path, &file(0), false)
            .await
            .unwrap_err(),
    );
    refused(peer.remove(path).await.unwrap_err());
    let large = spec(20 << 20);
    refused(peer.create(path, &large).await.err().unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_leads_out_of_the_folder_that_is_lent() {
    let folder = tempfile::tempdir().unwrap();
    let outside = folder.path().join("outside");
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("secret"), "secret").unwrap();
    let relay = Running::start(&folder.path().join("relay"), |_| ()).await;
    let peer = peer(&relay, "").await;
    put(&peer, b"inside/file", b"fine").await.unwrap();
    let lent = folder.path().join("relay/files");
    symlink(&outside, lent.join("absolute")).unwrap();
    symlink("../../outside", lent.join("relative")).unwrap();
    symlink("/proc/self/root", lent.join("magic")).unwrap();
    for path in [
        "../x",
        "inside/../../x",
        "/etc/passwd",
        "./x",
        "inside//file",
        "inside/..",
    ] {
        is_out_of_reach(&peer, path.as_bytes()).await;
    }
    for path in ["absolute/secret", "relative/secret", "magic/etc"] {
        is_out_of_reach(&peer, path.as_bytes()).await;
    }
    // A link itself may be seen and replaced; what it leads to may not.
    for link in ["absolute", "relative"] {
        let found = peer.stat(link.as_bytes(), false).await.unwrap().unwrap();
        assert_eq!(found.kind, Kind::Link);
        let followed = peer.stat(link.as_bytes(), true).await;
        assert_eq!(followed.unwrap_err().kind(), ErrorKind::PermissionDenied);
        let listed = peer.list(link.as_bytes(), true).await;
        assert_eq!(listed.err().unwrap().kind(), ErrorKind::PermissionDenied);
    }
    peer.make_link(
        b"mine",
        outside.join("secret").as_os_str().as_encoded_bytes(),
        &spec(0),
    )
    .await
    .unwrap();
    let read = peer.get(b"mine", &file(6)).await;
    assert_eq!(read.unwrap_err().kind(), ErrorKind::PermissionDenied);
    put(&peer, b"mine", b"replaced").await.unwrap();
    assert_eq!(fs::read(lent.join("mine")).unwrap(), b"replaced");
    // Links that stay inside work.
    symlink("inside", lent.join("inner")).unwrap();
    put(&peer, b"inner/other", b"fine").await.unwrap();
    assert_eq!(fs::read(lent.join("inside/other")).unwrap(), b"fine");
    assert_eq!(names_below(&outside), ["secret"]);
    assert_eq!(fs::read(outside.join("secret")).unwrap(), b"secret");
}

/// Returns the answer to a request with the right to write.
async fn ask(relay: &Running, operation: &str, body: &[u8]) -> Vec<u8> {
    let token = mint(&relay.secret, Scope::FilesWrite, None, later());
    let head = format!(
        "POST /v1/files/{operation} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {token}\r\n\
         connection: close\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    send_raw(relay, &[head.as_bytes(), body].concat(), true).await
}

/// Asks, and looks for the reason of the refusal.
async fn is_refused(relay: &Running, operation: &str, body: &[u8], why: &str) {
    let answer = text(&ask(relay, operation, body).await);
    assert!(answer.contains(why), "{answer}");
}

/// Returns a body of a message, data and a digest.
fn body(message: &impl Record, data: &[u8], digest: &[u8]) -> Vec<u8> {
    let message = message.to_bytes();
    let len = u32::try_from(message.len()).unwrap().to_le_bytes();
    [&len[..], &message, data, digest].concat()
}

fn bundle(path: &str, bytes: &[u8], sum: Checksum) -> Vec<u8> {
    let stored = Stored {
        path: Name(path.into()),
        spec: spec(bytes.len()),
        sum,
    }
    .to_bytes();
    let len = u32::try_from(stored.len()).unwrap().to_le_bytes();
    [&len[..], &stored, bytes].concat()
}

fn store(count: u32, data: &[u8]) -> posthaste_endpoint::peer::wire::Store {
    posthaste_endpoint::peer::wire::Store {
        count,
        bytes: data.len() as u64,
        flush: false,
    }
}

fn text(answer: &[u8]) -> String {
    String::from_utf8_lossy(answer).into_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn bytes_that_are_not_what_was_sent_do_not_count() {
    let folder = tempfile::tempdir().unwrap();
    let relay = Running::start(folder.path(), |_| ()).await;
    let lent = folder.path().join("files");
    let content = noise(1, 200_000);
    let data = bundle("one", &content, Checksum::of(&content));
    let digest = blake3::hash(&data);
    let mut flipped = data.clone();
    *flipped.last_mut().unwrap() ^= 1;
    let sent = body(&store(1, &data), &flipped, digest.as_bytes());
    is_refused(&relay, "store", &sent, "another digest").await;
    // Right on the way, and wrong when they were read.
    let data = bundle("one", &content, Checksum::of(b"other"));
    let sent = body(&store(1, &data), &data, blake3::hash(&data).as_bytes());
    is_refused(&relay, "store", &sent, "another checksum").await;
    assert_eq!(names_below(&lent), [""; 0]);

    let file = Create {
        path: Name(b"large".to_vec()),
        spec: spec(100_000),
        segment_size: 64 << 10,
    };
    let segment = noise(2, 64 << 10);
    let write = Write {
        file: file.clone(),
        index: 0,
    };
    let sent = body(&write, &segment, &[0; 32]);
    is_refused(&relay, "write", &sent, "another digest").await;
    assert!(!lent.join("large").exists());
    // None of it counts: the server knows of no segment.
    let asked = body(&file, b"", b"");
    let answer = ask(&relay, "create", &asked).await;
    assert!(answer.ends_with(&[2, 0, 0, 1, 0, 0]), "{answer:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn garbage_leaves_nothing_and_hurts_nobody() {
    let folder = tempfile::tempdir().unwrap();
    let relay = Running::start(folder.path(), |_| ()).await;
    let content = noise(3, 5_000);
    let data = bundle("one", &content, Checksum::of(&content));
    let good = body(&store(1, &data), &data, blake3::hash(&data).as_bytes());
    for cut in [0, 1, 3, 4, 9, 40, 3_000, good.len() - 32, good.len() - 1] {
        for operation in [
            "store",
            "write",
            "finish",
            "hello",
            "make-directories",
            "list",
        ] {
            let answer = ask(&relay, operation, &good[..cut]).await;
            assert!(!text(&answer).contains("panicked"));
        }
    }
    for (seed, operation) in (0..).zip(["store", "fetch", "write", "stat", "read", "remove"]) {
        ask(&relay, operation, &noise(seed, 3_000)).await;
    }
    let longer = [&good[..], b"more"].concat();
    is_refused(&relay, "store", &longer, "longer than it said").await;
    let two = body(&store(2, &data), &data, blake3::hash(&data).as_bytes());
    is_refused(&relay, "store", &two, "not what it says").await;
    let lent = folder.path().join("files");
    let whole: Vec<String> = names_below(&lent);
    assert!(whole.iter().all(|name| name == "one"), "{whole:?}");
    put(&peer(&relay, "").await, b"after", b"fine")
        .await
        .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_open_what_they_are_for() {
    let folder = tempfile::tempdir().unwrap();
    let relay = Running::start(folder.path(), |_| ()).await;
    let with = |scope| Credential::Token(mint(&relay.secret, scope, None, later()));
    for credential in [with(Scope::All), with(Scope::Write)] {
        let refused = peer_with(&relay, "", credential).await.err().unwrap();
        assert_eq!(refused.kind(), ErrorKind::PermissionDenied, "{refused}");
    }
    for credential in [
        Credential::Secret([1; 32]),
        Credential::Token("ph1.fw.*.99999999999.00".into()),
    ] {
        let refused = peer_with(&relay, "", credential).await.err().unwrap();
        assert_eq!(refused.kind(), ErrorKind::Unauthenticated, "{refused}");
    }
    let reader = peer_with(&relay, "", with(Scope::FilesRead)).await.unwrap();
    let refused = put(&reader, b"x", b"x").await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::PermissionDenied, "{refused}");
    let writer = peer_with(&relay, "", with(Scope::FilesWrite))
        .await
        .unwrap();
    put(&writer, b"x", b"x").await.unwrap();
    assert!(reader.stat(b"x", false).await.unwrap().is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn files_keep_to_the_capacity_and_give_it_back() {
    let folder = tempfile::tempdir().unwrap();
    let start = || {
        Running::start(folder.path(), |options| {
            options.capacity = Bytes::new(100_000)
        })
    };
    let relay = start().await;
    let peer = peer(&relay, "").await;
    put(&peer, b"a", &noise(1, 60_000)).await.unwrap();
    let full = put(&peer, b"b", &noise(2, 60_000)).await.unwrap_err();
    assert_eq!(full.kind(), ErrorKind::Full, "{full}");
    put(&peer, b"a", &noise(3, 90_000)).await.unwrap();
    let used = |status: posthaste_endpoint::relay::RelayStatus| status.used.get();
    assert_eq!(used(relay.client().status().await.unwrap()), 90_000);
    peer.remove(b"a").await.unwrap();
    assert_eq!(used(relay.client().status().await.unwrap()), 0);
    put(&peer, b"b", &noise(2, 60_000)).await.unwrap();
    drop(peer);
    relay.kill().await;
    let relay = start().await;
    assert_eq!(used(relay.client().status().await.unwrap()), 60_000);
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_thousand_small_files_and_many_directories_travel_together() {
    const FILES: usize = 10_000;
    let folder = tempfile::tempdir().unwrap();
    let relay = Running::start(folder.path(), |options| options.capacity = Bytes::mebi(512)).await;
    let peer = peer(&relay, "many").await;
    let content = noise(9, 2_000 + FILES);
    let bytes = |index: usize| content.slice(index..index + 1_000 * (index % 3));
    let path = |index: usize| format!("{}/{index}", index % 50).into_bytes();
    let parcels = (0..FILES).map(|index| Parcel {
        path: path(index),
        spec: spec(bytes(index).len()),
        data: vec![bytes(index)],
        sum: Checksum::of(&bytes(index)),
    });
    for outcome in peer.put_all(parcels.collect()).await {
        outcome.unwrap();
    }
    let directory = |index: usize| format!("sealed/{index}").into_bytes();
    let seal = Entry {
        kind: Kind::Directory,
        mode: Some(0o750),
        ..file(0)
    };
    let seals: Vec<_> = (0..2_500)
        .map(|index| (directory(index), seal.clone(), true))
        .collect();
    let sealed = peer.seal_directories(&seals).await;
    assert_eq!(sealed.len(), seals.len());
    sealed.into_iter().for_each(|outcome| outcome.unwrap());
    for index in [0, 999, 1_000, 2_499] {
        let found = peer.stat(&directory(index), false).await.unwrap().unwrap();
        assert_eq!((found.kind, found.mode), (Kind::Directory, Some(0o750)));
    }
    let wanted: Vec<_> = (0..FILES).map(|index| (path(index), file(0))).collect();
    let found = peer.get_all(&wanted).await;
    assert_eq!(found.len(), FILES);
    for (index, whole) in found.into_iter().enumerate() {
        assert!(
            whole.unwrap().data.concat() == bytes(index),
            "file {index} differs"
        );
    }
}
