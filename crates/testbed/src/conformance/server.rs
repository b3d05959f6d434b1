//! Operations that some servers do by themselves: copy, remove, write on a condition.

use posthaste_endpoint::Condition;

use super::{
    Bytes, Checksum, ErrorKind, FileSpec, MODE, Result, Stage, assert_refused, collect, noise, spec,
};

pub(super) async fn copies_among_its_own(stage: &Stage) {
    let endpoint = &stage.endpoint;
    endpoint.make_directory(b"copied").await.unwrap();
    let source = stage.read(b"small/file").await;
    let copied = copy(stage, b"small/file", b"copied/file", source.len()).await;
    if !stage.can.server_copy {
        assert_eq!(endpoint.realm(), None);
        assert_refused(copied, ErrorKind::Unsupported, "copy_within");
        return;
    }
    assert!(endpoint.realm().is_some(), "nobody knows what it can copy");
    copied.unwrap();
    assert_eq!(stage.read(b"copied/file").await, source);
    stage.is_dressed(&stage.entry(b"copied/file").await, MODE);

    let bytes = noise(stage.scale.large_bytes);
    let copied = copy(stage, b"large/file", b"copied/large", bytes.len()).await;
    copied.unwrap();
    let found = stage.entry(b"copied/large").await;
    stage.is_dressed(&found, MODE);
    let reader = endpoint.open(b"copied/large", &found).await.unwrap();
    let read = collect(reader.read(0..found.size).await.unwrap()).await;
    assert!(read.unwrap() == bytes, "the copy differs");

    let copied = copy(stage, b"small/none", b"copied/none", 0).await;
    assert_refused(copied, ErrorKind::NotFound, "copying nothing");
    assert!(!stage.is_there(b"copied/none").await);
}

async fn copy(stage: &Stage, from: &[u8], to: &[u8], size: usize) -> Result<()> {
    let endpoint = &stage.endpoint;
    let spec = spec(size, "test:copy");
    endpoint
        .copy_within(&endpoint.locate(from), to, &spec)
        .await
}

pub(super) async fn removes(stage: &Stage) {
    let endpoint = &stage.endpoint;
    if !stage.can.removes {
        let removed = endpoint.remove(b"small/file").await;
        assert_refused(removed, ErrorKind::Unsupported, "remove");
        return;
    }
    stage.put(b"small/removed", b"soon gone").await;
    endpoint.remove(b"small/removed").await.unwrap();
    assert!(!stage.is_there(b"small/removed").await);
    // A missing file is no error: callers ask twice after a lost answer.
    endpoint.remove(b"small/removed").await.unwrap();
    if stage.can.links {
        let spec = FileSpec {
            mode: None,
            ..spec(0, "test:link")
        };
        let linking = endpoint.make_link(b"small/dangling", b"nowhere", &spec);
        linking.await.unwrap();
        endpoint.remove(b"small/dangling").await.unwrap();
        assert!(!stage.is_there(b"small/dangling").await);
    }
    assert!(stage.is_there(b"small/file").await, "it removed too much");
}

pub(super) async fn writes_on_condition(stage: &Stage) {
    let (absent, conflict) = (Condition::Absent, ErrorKind::Conflict);
    if !stage.can.conditional_writes {
        let refused = put_if(stage, b"first", &absent).await;
        assert_refused(refused, ErrorKind::Unsupported, "put_if");
        return;
    }
    put_if(stage, b"first", &absent).await.unwrap();
    let twice = put_if(stage, b"second", &absent).await;
    assert_refused(twice, conflict, "a second first write");
    assert_eq!(stage.read(b"small/once").await, b"first");
    let version = stage.entry(b"small/once").await.version;
    let same = Condition::Version(version.expect("it has no version"));
    put_if(stage, b"third", &same).await.unwrap();
    let stale = put_if(stage, b"fourth", &same).await;
    assert_refused(stale, conflict, "a write over a newer version");
    assert_eq!(stage.read(b"small/once").await, b"third");
}

async fn put_if(stage: &Stage, bytes: &'static [u8], condition: &Condition) -> Result<()> {
    let data = vec![Bytes::from_static(bytes)];
    let (spec, sum) = (spec(bytes.len(), "test:put"), Checksum::of(bytes));
    let endpoint = &stage.endpoint;
    endpoint
        .put_if(b"small/once", &spec, data, sum, condition)
        .await
}
