//! Writes that may not replace: a file that another writer created meanwhile stays, and the later
//! one gets an error.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::{FutureExt, stream};
use posthaste_endpoint::{
    ByteStream, Checksum, Endpoint, ErrorKind, FileSpec, FileTime, Result,
    posix::{DraftRules, Posix},
    sftp::{Host, Sftp},
};
use posthaste_testbed::{
    AzureServer, GcsServer, Place, S3Server, SshServer, WebFace, WebServer, conformance::open_with,
};

const ONLY_NEW: DraftRules = DraftRules {
    verify: true,
    fsync: false,
    replaces: false,
};

fn spec(bytes: &[u8]) -> FileSpec {
    FileSpec {
        size: bytes.len() as u64,
        mtime: Some(FileTime {
            secs: 1_600_000_000,
            nanos: 0,
        }),
        mode: Some(0o640),
        origin: "test:new".into(),
        version: None,
    }
}

async fn put(endpoint: &dyn Endpoint, path: &[u8], bytes: &[u8]) -> Result<()> {
    let data = vec![Bytes::copy_from_slice(bytes)];
    let sum = Checksum::of(bytes);
    endpoint.put(path, &spec(bytes), data, sum).await
}

async fn read(endpoint: &dyn Endpoint, path: &[u8]) -> Vec<u8> {
    let entry = endpoint.stat(path, false).await.unwrap().unwrap();
    let whole = endpoint.get(path, &entry).await.unwrap();
    whole.data.concat()
}

/// Checks an endpoint opened this way; `others` is the same place for another writer.
async fn stays(endpoint: Arc<dyn Endpoint>, others: Arc<dyn Endpoint>) {
    endpoint.make_parents().await.unwrap();
    endpoint.make_directory(b"").await.unwrap();
    put(&*endpoint, b"small", b"ours").await.unwrap();
    put(&*others, b"small", b"theirs").await.unwrap();
    let error = put(&*endpoint, b"small", b"late").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
    assert!(!error.is_temporary(), "{error}");
    assert_eq!(read(&*others, b"small").await, b"theirs");

    let bytes = vec![7; 100_000];
    for is_met in [true, false] {
        let path: &[u8] = if is_met { b"met" } else { b"free" };
        let writer = endpoint.create(path, &spec(&bytes)).await.unwrap();
        let data = Bytes::from(bytes.clone());
        let body: ByteStream = Box::pin(stream::once(async { Ok(data) }));
        writer.write(0, 0..100_000, body).await.unwrap();
        if is_met {
            put(&*others, path, b"theirs").await.unwrap();
        }
        let finished = writer.finish(Checksum::of(&bytes)).await;
        if is_met {
            let error = finished.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
            assert_eq!(read(&*others, path).await, b"theirs");
        } else {
            finished.unwrap();
            assert_eq!(read(&*others, path).await, bytes);
        }
    }
}

/// Checks the place of an address.
async fn stays_at(address: &str, profile: &str) {
    let opened = [ONLY_NEW, DraftRules::default()].map(|rules| open_with(address, profile, rules));
    let [ours, others] = opened;
    stays(ours.await.unwrap(), others.await.unwrap())
        .boxed()
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn on_this_machine() {
    let folder = tempfile::tempdir().unwrap();
    let [ours, others] = [ONLY_NEW, DraftRules::default()]
        .map(|rules| Arc::new(Posix::new(folder.path().join("root"), rules)));
    stays(ours, others).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn in_object_stores() {
    let server = S3Server::start().unwrap();
    let profile = format!(
        "endpoint = \"{}\"\naccess_key_id = \"{}\"\nsecret_access_key = \"{}\"\n",
        server.endpoint(),
        S3Server::ACCESS_KEY,
        S3Server::SECRET_KEY
    );
    stays_at(
        &format!("s3://{}/root", S3Server::BUCKET),
        &format!("[store]\n{profile}"),
    )
    .await;
    let server = GcsServer::start().unwrap();
    let address = format!("gs://{}/root", GcsServer::BUCKET);
    stays_at(&address, &server.profile()).await;
    let server = AzureServer::start().unwrap();
    let address = format!("azblob://{}/root", AzureServer::CONTAINER);
    stays_at(&address, &server.profile()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn over_sftp_whatever_the_server_can() {
    let plain = SshServer::start_refusing(&Place::default(), "posix-rename").unwrap();
    for server in [SshServer::start().unwrap(), plain] {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("root").to_string_lossy().into_owned();
        let open = async |rules| {
            let host = Host {
                user: Some(server.user().to_owned()),
                host: "127.0.0.1".to_owned(),
                port: Some(server.port()),
                options: server.options(),
            };
            let opened = Sftp::open(host, root.clone().into_bytes(), rules).await;
            Arc::new(opened.unwrap())
        };
        stays(open(ONLY_NEW).await, open(DraftRules::default()).await).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn over_webdav() {
    let server = WebServer::start().unwrap();
    stays_at(
        &server.address(WebFace::Dav, "below/root"),
        &server.profile(),
    )
    .await;
}
