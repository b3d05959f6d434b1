//! One suite that every endpoint passes, against the real servers.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;

use bytes::Bytes;
use futures_util::StreamExt;
use posthaste_endpoint::{
    ByteStream, Checksum, Endpoint, Entry, ErrorKind, FileSpec, FileTime, Kind,
    posix::{DraftRules, Posix},
    s3::{S3, Store},
    sftp::{Host, Sftp},
};
use posthaste_testbed::{S3Server, SshServer};

const MTIME: FileTime = FileTime {
    secs: 1_600_000_000,
    nanos: 123_456_789,
};

fn spec(size: usize, origin: &str) -> FileSpec {
    FileSpec {
        size: size as u64,
        mtime: Some(MTIME),
        mode: Some(0o640),
        origin: origin.into(),
        version: None,
    }
}

fn noise(len: usize) -> Vec<u8> {
    let mut state = 88_172_645_463_325_252_u64;
    std::iter::repeat_with(|| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()[0]
    })
    .take(len)
    .collect()
}

fn body(bytes: &[u8]) -> ByteStream {
    let pieces: Vec<_> = bytes
        .chunks(700_001)
        .map(|piece| Ok(Bytes::copy_from_slice(piece)))
        .collect();
    Box::pin(futures_util::stream::iter(pieces))
}

async fn put(endpoint: &dyn Endpoint, path: &[u8], bytes: &[u8]) {
    let data = vec![Bytes::copy_from_slice(bytes)];
    endpoint
        .put(
            path,
            &spec(bytes.len(), "test:put"),
            data,
            Checksum::of(bytes),
        )
        .await
        .unwrap();
}

async fn entry(endpoint: &dyn Endpoint, path: &[u8]) -> Entry {
    endpoint
        .stat(path, false)
        .await
        .unwrap()
        .expect("nothing is there")
}

async fn names(endpoint: &dyn Endpoint, path: &[u8]) -> Vec<(Vec<u8>, Kind)> {
    let mut listing = endpoint.list(path, false).await.unwrap();
    let mut names: Vec<(Vec<u8>, Kind)> = Vec::new();
    loop {
        let page = listing.next_page().await.unwrap();
        if page.is_empty() {
            names.sort_by(|a, b| a.0.cmp(&b.0));
            return names;
        }
        names.extend(page.into_iter().map(|entry| (entry.name, entry.kind)));
    }
}

async fn passes_the_suite(endpoint: Arc<dyn Endpoint>) {
    let endpoint = &*endpoint;
    small_files_keep_bytes_and_attributes(endpoint).await;
    listings_show_names_as_they_are(endpoint).await;
    links_point_where_they_were_told(endpoint).await;
    a_large_file_is_continued(endpoint).await;
    a_changed_source_starts_anew(endpoint).await;
    refusals_are_told_apart(endpoint).await;
}

async fn small_files_keep_bytes_and_attributes(endpoint: &dyn Endpoint) {
    let can = endpoint.capabilities();
    assert!(endpoint.stat(b"small/none", false).await.unwrap().is_none());
    endpoint.make_parents().await.unwrap();
    assert!(
        endpoint.make_directory(b"small").await.unwrap(),
        "it was not new"
    );
    for bytes in [noise(100_000), Vec::new(), b"replaced".to_vec()] {
        put(endpoint, b"small/file", &bytes).await;
        let found = entry(endpoint, b"small/file").await;
        assert_eq!(found.kind, Kind::File);
        assert_eq!(found.size, bytes.len() as u64);
        assert!(
            found.mtime.unwrap().agrees(MTIME, can.mtime_step_ns),
            "{:?}",
            found.mtime
        );
        assert_eq!(found.mode, Some(0o640));
        let whole = endpoint.get(b"small/file", &found).await.unwrap();
        assert_eq!(whole.data.concat(), bytes);
        assert_eq!(whole.checksum, Checksum::of(&bytes));
        assert!(whole.entry.mtime.unwrap().agrees(MTIME, can.mtime_step_ns));
    }
    assert!(
        !endpoint.make_directory(b"small").await.unwrap(),
        "it was new twice"
    );
    let directory = Entry {
        mode: Some(0o751),
        ..entry(endpoint, b"small").await
    };
    let directory = Entry {
        mtime: Some(MTIME),
        ..directory
    };
    endpoint.make_directory(b"small/empty").await.unwrap();
    endpoint
        .seal_directory(b"small/empty", &directory, true)
        .await
        .unwrap();
    let sealed = entry(endpoint, b"small/empty").await;
    assert_eq!((sealed.kind, sealed.mode), (Kind::Directory, Some(0o751)));
    assert!(sealed.mtime.unwrap().agrees(MTIME, can.mtime_step_ns));
    assert_eq!(
        names(endpoint, b"small").await,
        [
            (b"empty".to_vec(), Kind::Directory),
            (b"file".to_vec(), Kind::File)
        ]
    );
}

async fn listings_show_names_as_they_are(endpoint: &dyn Endpoint) {
    let mut wanted: Vec<Vec<u8>> = [
        "a b",
        "a+b",
        "a%20b",
        "a&<>\"b",
        "new\nline",
        "é",
        "~",
        "'$(x)'",
    ]
    .iter()
    .map(|name| name.as_bytes().to_vec())
    .collect();
    if endpoint.capabilities().byte_names {
        wanted.push(b"caf\xe9".to_vec());
    }
    wanted.extend((0..1_200).map(|index| format!("page-{index:04}").into_bytes()));
    endpoint.make_directory(b"names").await.unwrap();
    for name in &wanted {
        put(endpoint, &[b"names/".as_slice(), name].concat(), name).await;
    }
    wanted.sort();
    let found: Vec<_> = names(endpoint, b"names")
        .await
        .into_iter()
        .map(|(name, _)| name)
        .collect();
    assert_eq!(found, wanted);
    for name in wanted.iter().take(20) {
        let path = [b"names/".as_slice(), name].concat();
        let whole = endpoint
            .get(&path, &entry(endpoint, &path).await)
            .await
            .unwrap();
        assert_eq!(&whole.data.concat(), name);
    }
}

async fn links_point_where_they_were_told(endpoint: &dyn Endpoint) {
    endpoint.make_directory(b"links").await.unwrap();
    for target in [b"../small/file".as_slice(), b"nowhere"] {
        endpoint
            .make_link(b"links/link", target, &spec(0, "test:link"))
            .await
            .unwrap();
        assert_eq!(entry(endpoint, b"links/link").await.kind, Kind::Link);
        assert_eq!(endpoint.read_link(b"links/link").await.unwrap(), target);
    }
    assert_eq!(
        names(endpoint, b"links").await,
        [(b"link".to_vec(), Kind::Link)]
    );
}

async fn a_large_file_is_continued(endpoint: &dyn Endpoint) {
    let bytes = noise((40 << 20) + 12_345);
    let spec = spec(bytes.len(), "test:large");
    endpoint.make_directory(b"large").await.unwrap();
    let writer = endpoint.create(b"large/file", &spec).await.unwrap();
    assert!(writer.kept().is_empty());
    let step = usize::try_from(writer.segment_size()).unwrap();
    let segments: Vec<_> = bytes.chunks(step).collect();
    let last = segments.len() - 1;
    assert!(last >= 2, "the suite needs three segments");
    let range = |index: usize| {
        let start = (index * step) as u64;
        start..start + segments[index].len() as u64
    };
    // The last first: order must not matter.
    for index in [last, 0] {
        let sum = writer
            .write(index as u64, range(index), body(segments[index]))
            .await
            .unwrap();
        assert_eq!(sum, Checksum::of(segments[index]));
    }
    drop(writer);
    assert!(
        endpoint.stat(b"large/file", false).await.unwrap().is_none(),
        "half a file is visible"
    );

    let writer = endpoint.create(b"large/file", &spec).await.unwrap();
    let mut kept: Vec<_> = writer.kept();
    kept.sort_by_key(|kept| kept.0);
    assert_eq!(
        kept,
        [
            (0, Checksum::of(segments[0])),
            (last as u64, Checksum::of(segments[last]))
        ]
    );
    for (index, segment) in segments.iter().enumerate().take(last).skip(1) {
        writer
            .write(index as u64, range(index), body(segment))
            .await
            .unwrap();
    }
    writer.finish(Checksum::of(&bytes)).await.unwrap();

    let found = entry(endpoint, b"large/file").await;
    assert_eq!((found.size, found.mode), (bytes.len() as u64, Some(0o640)));
    let reader = endpoint.open(b"large/file", &found).await.unwrap();
    if endpoint.capabilities().stores_checksum {
        assert_eq!(reader.checksum(), Some(Checksum::of(&bytes)));
    }
    for range in [0..10, 5_000_000..25_000_001, bytes.len() - 1..bytes.len()] {
        let asked = range.start as u64..range.end as u64;
        let mut body = reader.read(asked).await.unwrap();
        let mut read = Vec::new();
        while let Some(piece) = body.next().await {
            read.extend_from_slice(&piece.unwrap());
        }
        assert!(read == bytes[range.clone()], "{range:?} differs");
    }
    reader.confirm().await.unwrap();
    assert_eq!(
        names(endpoint, b"large").await.len(),
        1,
        "something is left over"
    );
}

async fn a_changed_source_starts_anew(endpoint: &dyn Endpoint) {
    let bytes = noise(20 << 20);
    let before = spec(bytes.len(), "test:changing");
    let writer = endpoint.create(b"large/changing", &before).await.unwrap();
    let step = usize::try_from(writer.segment_size()).unwrap();
    writer
        .write(0, 0..step as u64, body(&bytes[..step]))
        .await
        .unwrap();
    drop(writer);
    let after = FileSpec {
        mtime: Some(FileTime { secs: 5, nanos: 0 }),
        ..before
    };
    let writer = endpoint.create(b"large/changing", &after).await.unwrap();
    assert!(
        writer.kept().is_empty(),
        "segments of another version are kept"
    );
    writer.discard().await;
    drop(writer);
    assert!(
        endpoint
            .stat(b"large/changing", false)
            .await
            .unwrap()
            .is_none()
    );
}

async fn refusals_are_told_apart(endpoint: &dyn Endpoint) {
    let found = entry(endpoint, b"small/file").await;
    let missing = endpoint
        .get(
            b"small/none",
            &Entry {
                version: None,
                ..found.clone()
            },
        )
        .await;
    assert_eq!(missing.unwrap_err().kind(), ErrorKind::NotFound);
    let error = endpoint
        .open(b"small/none", &found)
        .await
        .err()
        .expect("it opened");
    assert_eq!(error.kind(), ErrorKind::NotFound);
    if endpoint.capabilities().stores_checksum {
        let data = vec![Bytes::from_static(b"right")];
        let spec = spec(5, "test:put");
        let wrong = endpoint.put(b"small/wrong", &spec, data, Checksum::of(b"wrong"));
        assert_eq!(wrong.await.unwrap_err().kind(), ErrorKind::Corrupt);
        assert!(
            endpoint
                .stat(b"small/wrong", false)
                .await
                .unwrap()
                .is_none()
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn local_files_pass_the_suite() {
    let folder = tempfile::tempdir().unwrap();
    let posix = Posix::new(folder.path().join("below/root"), DraftRules::default());
    passes_the_suite(Arc::new(posix)).await;
}

fn store(server: &S3Server) -> Store {
    Store {
        endpoint: server.endpoint(),
        region: "us-east-1".to_owned(),
        access_key_id: S3Server::ACCESS_KEY.to_owned(),
        secret_access_key: S3Server::SECRET_KEY.to_owned(),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn s3_passes_the_suite() {
    let server = S3Server::start().unwrap();
    let s3 = S3::open_store(S3Server::BUCKET, "below/root", &store(&server)).unwrap();
    passes_the_suite(Arc::new(s3)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s3_refusals_say_what_to_do() {
    let server = S3Server::start().unwrap();
    let wrong = Store {
        secret_access_key: "wrong".to_owned(),
        ..store(&server)
    };
    let s3 = S3::open_store(S3Server::BUCKET, "", &wrong).unwrap();
    let error = Endpoint::stat(&s3, b"", false).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unauthenticated, "{error}");
    let s3 = S3::open_store("nosuchbucket", "x", &store(&server)).unwrap();
    let error = Endpoint::stat(&s3, b"", false).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
    assert!(error.to_string().contains("create the bucket"), "{error}");
}

fn host(server: &SshServer) -> Host {
    Host {
        user: Some(server.user().to_owned()),
        host: "127.0.0.1".to_owned(),
        port: Some(server.port()),
        options: server.options(),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn sftp_passes_the_suite() {
    let server = SshServer::start().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let root = folder
        .path()
        .join("below/root")
        .to_string_lossy()
        .into_owned();
    let sftp = Sftp::open(host(&server), root.into_bytes(), DraftRules::default())
        .await
        .unwrap();
    passes_the_suite(Arc::new(sftp)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sftp_refuses_a_host_nobody_knows() {
    let server = SshServer::start().unwrap();
    let mut host = host(&server);
    host.options
        .insert(0, "UserKnownHostsFile=/dev/null".to_owned());
    let error = Sftp::open(host, b"/".to_vec(), DraftRules::default())
        .await
        .err()
        .unwrap();
    assert_eq!(error.kind(), ErrorKind::Unauthenticated, "{error}");
    assert!(error.to_string().contains("known_hosts"), "{error}");
}
