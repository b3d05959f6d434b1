//! Small files and directories.

use futures_util::StreamExt;
use posthaste_endpoint::Parcel;

use super::{
    Bytes, Checksum, Entry, ErrorKind, FileTime, Kind, MODE, MTIME, Stage, assert_refused, noise,
    spec,
};

pub(super) async fn files_keep_bytes_and_attributes(stage: &Stage) {
    assert!(!stage.is_there(b"small/none").await);
    stage.through.make_parents().await.unwrap();
    let is_new = stage.through.make_directory(b"small").await.unwrap();
    assert!(is_new, "it was not new");
    for bytes in [noise(100_000), Vec::new(), b"replaced".to_vec()] {
        stage.put(b"small/file", &bytes).await;
        let found = stage.entry(b"small/file").await;
        assert_eq!(found.kind, Kind::File);
        assert_eq!(found.size, bytes.len() as u64);
        stage.is_dressed(&found, MODE);
        let whole = stage.endpoint.get(b"small/file", &found).await.unwrap();
        assert_eq!(whole.data.concat(), bytes);
        assert_eq!(whole.checksum, Checksum::of(&bytes));
        assert_eq!(whole.entry.size, bytes.len() as u64);
        stage.is_dressed(&whole.entry, MODE);
        let reader = stage.endpoint.open(b"small/file", &found).await.unwrap();
        let mut body = reader.read(0..found.size).await.unwrap();
        let mut streamed = Vec::new();
        while let Some(some) = body.next().await {
            streamed.extend(some.unwrap());
        }
        assert_eq!(streamed, bytes, "read as a stream");
    }
    let is_new = stage.through.make_directory(b"small").await.unwrap();
    assert!(!is_new, "it was new twice");
    if stage.can.lists {
        assert_eq!(stage.entry(b"small").await.kind, Kind::Directory);
        assert_eq!(stage.entry(b"").await.kind, Kind::Directory);
    }
}

pub(super) async fn directories_keep_attributes(stage: &Stage) {
    stage.endpoint.make_directory(b"small/empty").await.unwrap();
    let wanted = Entry {
        name: Vec::new(),
        kind: Kind::Directory,
        size: 0,
        mtime: Some(MTIME),
        stored: None,
        mode: Some(0o751),
        version: None,
    };
    let sealing = stage.endpoint.seal_directory(b"small/empty", &wanted, true);
    sealing.await.unwrap();
    let sealed = stage.entry(b"small/empty").await;
    assert_eq!(sealed.kind, Kind::Directory);
    if stage.can.directory_attributes {
        stage.is_dressed(&sealed, 0o751);
    }
    if stage.can.lists {
        assert_eq!(
            stage.names(b"small").await,
            [
                (b"empty".to_vec(), Kind::Directory),
                (b"file".to_vec(), Kind::File)
            ]
        );
    }
}

/// Checks that each file has its own result, however many travel in one request.
pub(super) async fn several_travel_together(stage: &Stage) {
    stage.through.make_directory(b"several").await.unwrap();
    let contents: Vec<Vec<u8>> = (0..20).map(|index| noise(index * 1_000)).collect();
    let path = |index: usize| format!("several/{index:02}").into_bytes();
    let parcels = contents.iter().enumerate().map(|(index, bytes)| Parcel {
        path: path(index),
        spec: spec(bytes.len(), "test:several"),
        data: vec![Bytes::copy_from_slice(bytes)],
        sum: Checksum::of(bytes),
    });
    let stored = stage.through.put_all(parcels.collect()).await;
    assert_eq!(stored.len(), contents.len());
    stored.into_iter().for_each(|outcome| outcome.unwrap());

    let mut wanted = Vec::new();
    for index in 0..contents.len() {
        wanted.push((path(index), stage.entry(&path(index)).await));
    }
    let missing = Entry {
        version: None,
        ..wanted[3].1.clone()
    };
    wanted.insert(7, (b"several/none".to_vec(), missing));
    let mut found = stage.endpoint.get_all(&wanted).await;
    assert_eq!(found.len(), wanted.len());
    assert_refused(found.remove(7), ErrorKind::NotFound, "a missing file");
    for (index, (whole, bytes)) in found.into_iter().zip(&contents).enumerate() {
        let whole = whole.unwrap();
        assert!(whole.data.concat() == *bytes, "file {index} differs");
        assert_eq!(whole.checksum, Checksum::of(bytes));
        stage.is_dressed(&whole.entry, MODE);
    }
}

pub(super) async fn refusals_are_told_apart(stage: &Stage) {
    let found = stage.entry(b"small/file").await;
    let unversioned = Entry {
        version: None,
        ..found.clone()
    };
    let missing = stage.endpoint.get(b"small/none", &unversioned).await;
    assert_refused(missing, ErrorKind::NotFound, "reading nothing");
    let missing = stage.endpoint.open(b"small/none", &found).await;
    assert_refused(missing.map(|_| ()), ErrorKind::NotFound, "opening nothing");
    if stage.can.writes && stage.can.stores_checksum() {
        let data = vec![Bytes::from_static(b"right")];
        let spec = spec(5, "test:put");
        let wrong = stage
            .endpoint
            .put(b"small/wrong", &spec, data, Checksum::of(b"wrong"));
        assert_refused(wrong.await, ErrorKind::Corrupt, "a wrong checksum");
        assert!(!stage.is_there(b"small/wrong").await);
        assert!(stage.endpoint.refuses_damage().await);
    }
}

pub(super) async fn writing_is_refused(stage: &Stage) {
    let unsupported = ErrorKind::Unsupported;
    let (endpoint, spec) = (&stage.endpoint, spec(0, "test:refused"));
    let put = endpoint.put(b"small/file", &spec, Vec::new(), Checksum::EMPTY);
    assert_refused(put.await, unsupported, "put");
    let created = endpoint.create(b"large/file", &spec).await;
    assert_refused(created.map(|_| ()), unsupported, "create");
    assert_refused(endpoint.remove(b"small/file").await, unsupported, "remove");
    let made = endpoint.make_directory(b"other").await;
    assert_refused(made, unsupported, "make_directory");
    let linked = endpoint.make_link(b"small/link", b"file", &spec).await;
    assert_refused(linked, unsupported, "make_link");
    assert_eq!(stage.read(b"small/file").await, b"replaced");
}

/// A moment other than [`MTIME`].
pub(super) const OTHER_MTIME: FileTime = FileTime {
    secs: 1_500_000_000,
    nanos: 0,
};
