//! Transfers by a relay to another of what it holds, on the order of a caller with the right to
//! write to both.

use std::{path::Path, time::Duration};

use posthaste_endpoint::{
    ErrorKind, Locus,
    relay::{Credential, DatasetId, RelayClient, Scope, mint},
};
use posthaste_types::{ByteRate, Bytes as Amount, ChunkIndex, FragmentIndex};

use crate::support::running::{Running, digest, later, noise};

const DATASET: DatasetId = DatasetId::new([7; 16]);
const CHUNK: ChunkIndex = ChunkIndex::new(3);
const FRAGMENT: FragmentIndex = FragmentIndex::new(1);

/// Starts two relays; the first holds a fragment of `size` bytes.
async fn two(dirs: [&Path; 2], size: usize, rate: Option<u64>) -> [Running; 2] {
    let from = Running::start(dirs[0], |_| ()).await;
    let to = Running::start(dirs[1], |options| {
        options.rate = rate.map(ByteRate::new);
        options.capacity = Amount::mebi(if rate.is_some() { 64 } else { 8 });
    })
    .await;
    let bytes = noise(1, size);
    let digest = digest(&bytes);
    let client = from.client();
    let put = client.put_fragment(&DATASET, CHUNK, FRAGMENT, bytes, digest, later());
    put.await.unwrap();
    [from, to]
}

async fn forward(from: &RelayClient, to: &RelayClient) -> posthaste_endpoint::Result<()> {
    from.forward_fragment(&DATASET, CHUNK, FRAGMENT, to, later())
        .await
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_sent_on_lies_there_verified() {
    let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let [from, to] = two([dirs[0].path(), dirs[1].path()], 3 << 20, None).await;
    assert!(from.client().status().await.unwrap().forwards);
    for _ in 0..3 {
        // A repetition changes nothing.
        forward(&from.client(), &to.client()).await.unwrap();
    }
    let held = to.client().inventory(&DATASET).await.unwrap();
    let digest = digest(&noise(1, 3 << 20));
    assert_eq!(held, [(CHUNK, FRAGMENT, digest)]);
    let there = to.client();
    let read = there.get_fragment(&DATASET, CHUNK, FRAGMENT, digest);
    assert_eq!(read.await.unwrap(), noise(1, 3 << 20));
    assert_eq!(from.client().inventory(&DATASET).await.unwrap().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn who_is_at_fault_is_told() {
    let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let [from, to] = two([dirs[0].path(), dirs[1].path()], 9 << 20, None).await;
    let full = forward(&from.client(), &to.client()).await.unwrap_err();
    assert_eq!(
        (full.kind(), full.locus()),
        (ErrorKind::Full, Locus::Destination)
    );
    let other = FragmentIndex::new(2);
    let (from_it, to_it) = (from.client(), to.client());
    let missing = from_it.forward_fragment(&DATASET, CHUNK, other, &to_it, later());
    let missing = missing.await.unwrap_err();
    assert_eq!(
        (missing.kind(), missing.locus()),
        (ErrorKind::NotFound, Locus::Source)
    );
    let stranger = to.client_with(Credential::Secret([9; 32]));
    let refused = forward(&from.client(), &stranger).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unauthenticated);
    assert_eq!(refused.locus(), Locus::Destination);
    let shown = format!("{refused:?} {refused}");
    assert!(!shown.contains("ph1."), "a token is shown: {shown}");
    let there = to.client();
    to.kill().await;
    let gone = forward(&from.client(), &there).await.unwrap_err();
    assert_eq!(
        (gone.kind(), gone.locus()),
        (ErrorKind::Busy, Locus::Destination)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn who_may_only_read_can_send_nothing_on() {
    let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let [from, to] = two([dirs[0].path(), dirs[1].path()], 1000, None).await;
    let token = mint(&from.secret, Scope::Read, Some(&DATASET), later());
    let reader = from.client_with(Credential::Token(token));
    let refused = forward(&reader, &to.client()).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::PermissionDenied);
    assert!(to.client().inventory(&DATASET).await.unwrap().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_rotted_on_the_disk_is_not_kept_where_it_arrives() {
    let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let [from, to] = two([dirs[0].path(), dirs[1].path()], 5000, None).await;
    let group = dirs[0].path().join(format!("datasets/{DATASET}/0"));
    let file = std::fs::read_dir(group).unwrap().next().unwrap().unwrap();
    let mut bytes = std::fs::read(file.path()).unwrap();
    bytes[77] ^= 1;
    std::fs::write(file.path(), bytes).unwrap();
    let corrupt = forward(&from.client(), &to.client()).await.unwrap_err();
    assert_eq!(corrupt.kind(), ErrorKind::Corrupt);
    assert!(to.client().inventory(&DATASET).await.unwrap().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn when_nobody_waits_for_it_any_more_it_ends() {
    let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    // More than the kernel holds for a connection that is gone.
    let [from, to] = two([dirs[0].path(), dirs[1].path()], 48 << 20, Some(1 << 20)).await;
    let free = to.client().status().await.unwrap().free;
    let (from_it, to_it) = (from.client(), to.client());
    let waiting = tokio::time::timeout(Duration::from_secs(2), forward(&from_it, &to_it));
    assert!(waiting.await.is_err(), "48 mebibytes at one a second");
    // Two minutes; all of it would be there in one.
    for _ in 0..2400 {
        tokio::time::sleep(Duration::from_millis(50)).await;
        if to.client().status().await.unwrap().free == free {
            assert!(to.client().inventory(&DATASET).await.unwrap().is_empty());
            return;
        }
    }
    panic!("it goes on though nobody waits for it");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_one_is_waited_for_as_long_as_it_moves() {
    let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let [from, to] = two([dirs[0].path(), dirs[1].path()], 6 << 20, Some(400 << 10)).await;
    // The sender knows at what rate the other receives, and reports it.
    let there = to.client();
    there.status().await.unwrap();
    // Longer than a request on which nothing moves is borne.
    forward(&from.client(), &there).await.unwrap();
    assert_eq!(to.client().inventory(&DATASET).await.unwrap().len(), 1);
}
