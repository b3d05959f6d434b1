//! Conformance of every endpoint to the common suite, against real servers.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::StreamExt;
use posthaste_endpoint::{
    Checksum, Endpoint, Entry, Error, ErrorKind, FileSpec, FileTime, Kind,
    posix::{DraftRules, Posix},
    s3::{self, Store},
    sftp::{Host, Sftp},
};
use posthaste_testbed::{
    AzureServer, GcsServer, Place, S3Kind, S3Server, SshServer, StoreLooks, StoreMask, WebFace,
    WebServer,
    conformance::{
        Scale, open, passes_as_one_file, passes_at_scale, passes_seeded, passes_the_suite,
    },
};

#[tokio::test(flavor = "multi_thread")]
async fn local_files_pass_the_suite() {
    let folder = tempfile::tempdir().unwrap();
    let posix = |below| Posix::new(folder.path().join(below), DraftRules::default());
    passes_the_suite(Arc::new(posix("below/root"))).await;
    passes_as_one_file(Arc::new(posix("single/file"))).await;
}

fn store(server: &S3Server) -> Store {
    Store {
        endpoint: server.endpoint(),
        region: "us-east-1".to_owned(),
        access_key_id: S3Server::ACCESS_KEY.to_owned(),
        secret_access_key: S3Server::SECRET_KEY.to_owned(),
        ca_file: None,
    }
}

async fn a_store_passes_the_suite(store: &Store) {
    let s3 = |key| s3::open_store(S3Server::BUCKET, key, store).unwrap();
    let whole = s3("below/root");
    passes_the_suite(Arc::clone(&whole)).await;
    assert!(whole.round_trip().is_some(), "nothing was measured");
    passes_as_one_file(s3("single/file")).await;
    an_empty_directory_keeps_its_attributes(&*s3("marked")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s3_passes_the_suite() {
    a_store_passes_the_suite(&store(&S3Server::start().unwrap())).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn minio_passes_the_suite() {
    let server = S3Server::start_as(S3Kind::Minio).unwrap();
    a_store_passes_the_suite(&store(&server)).await;
}

/// Returns the capabilities that a large file reveals about a store: the checksums it keeps, and
/// whether segments are streamed.
async fn learned(s3: &dyn Endpoint) -> (&'static [&'static str], bool) {
    let spec = FileSpec {
        size: 9 << 20,
        mtime: None,
        mode: None,
        origin: "test:learned".into(),
        version: None,
    };
    let writer = s3.create(b"learned", &spec).await.unwrap();
    let segment = Bytes::from(vec![7; 8 << 20]);
    let body = Box::pin(futures_util::stream::iter([Ok(segment.clone())]));
    let sum = writer.write(0, 0..8 << 20, body).await.unwrap();
    assert_eq!(sum, Checksum::of(&segment));
    writer.discard().await;
    // A store that reports nothing gets another checksum with each write, until none is left.
    let (spec, sum) = (FileSpec { size: 1, ..spec }, Checksum::of(b"x"));
    let data = vec![Bytes::from_static(b"x")];
    s3.put(b"small", &spec, data, sum).await.unwrap();
    s3.remove(b"small").await.unwrap();
    let can = s3.capabilities();
    (can.checksums, !can.segments_held)
}

#[tokio::test(flavor = "multi_thread")]
async fn s3_learns_what_a_store_takes() {
    learns_what_it_takes(S3Kind::Versity).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn minio_is_learnt_as_other_stores() {
    learns_what_it_takes(S3Kind::Minio).await;
}

async fn learns_what_it_takes(kind: S3Kind) {
    let all: &[&str] = &["crc64nvme", "crc32c", "md5"];
    let server = S3Server::start_as(kind).unwrap();
    let s3 = s3::open_store(S3Server::BUCKET, "", &store(&server)).unwrap();
    assert_eq!(learned(&*s3).await, (all, true), "{kind:?}");
    let (crc32c, md5): (&[&str], &[&str]) = (&["crc32c", "md5"], &["md5"]);
    for (looks, wanted) in [
        (StoreLooks::Elder, (crc32c, true)),
        (StoreLooks::Refusing, (md5, false)),
        (StoreLooks::Silent, (md5, true)),
    ] {
        let mask = StoreMask::start(server.address(), looks).unwrap();
        let old = Store {
            endpoint: mask.endpoint(),
            ..store(&server)
        };
        let s3 = s3::open_store(S3Server::BUCKET, "", &old).unwrap();
        assert_eq!(learned(&*s3).await, wanted, "{kind:?} {looks:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn s3_without_new_checksums_passes_the_suite() {
    let server = S3Server::start().unwrap();
    for looks in [StoreLooks::Elder, StoreLooks::Refusing, StoreLooks::Silent] {
        let mask = StoreMask::start(server.address(), looks).unwrap();
        let old = Store {
            endpoint: mask.endpoint(),
            ..store(&server)
        };
        let below = format!("{looks:?}");
        let s3 = s3::open_store(S3Server::BUCKET, &below, &old).unwrap();
        // The first write decides; the suite's checks depend on its result.
        learned(&*s3).await;
        passes_at_scale(s3, Scale::SHORT_LISTINGS).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn s3_compares_what_it_reads_with_the_crc32c_of_an_elder_store() {
    let server = S3Server::start().unwrap();
    let mask = StoreMask::start(server.address(), StoreLooks::Elder).unwrap();
    let elder = Store {
        endpoint: mask.endpoint(),
        ..store(&server)
    };
    let s3 = s3::open_store(S3Server::BUCKET, "", &elder).unwrap();
    let (first, rest) = (Bytes::from(vec![7; 8 << 20]), Bytes::from(vec![8; 1 << 20]));
    let whole = Checksum::of(&[&first[..], &rest].concat());
    let spec = FileSpec {
        size: 9 << 20,
        mtime: None,
        mode: None,
        origin: "test:elder".into(),
        version: None,
    };
    let body = |bytes: Bytes| Box::pin(futures_util::stream::iter([Ok(bytes)]));
    let writer = s3.create(b"large", &spec).await.unwrap();
    writer.write(0, 0..8 << 20, body(first)).await.unwrap();
    // Another run knows the segment's checksums from its ledger.
    let writer = s3.create(b"large", &spec).await.unwrap();
    assert_eq!(writer.kept().len(), 1);
    writer.write(1, 8 << 20..9 << 20, body(rest)).await.unwrap();
    writer.finish(whole).await.unwrap();
    assert_eq!(read_in_ranges(&*s3).await.unwrap(), whole);
    let stored = server.bucket_folder().join("large");
    let mut bytes = std::fs::read(&stored).unwrap();
    bytes[5 << 20] ^= 1;
    std::fs::write(&stored, bytes).unwrap();
    let error = read_in_ranges(&*s3).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
}

async fn read_in_ranges(s3: &dyn Endpoint) -> Result<Checksum, Error> {
    let entry = s3.stat(b"large", false).await?.unwrap();
    let reader = s3.open(b"large", &entry).await?;
    assert_eq!(reader.checksum(), None, "it is another checksum");
    let mut bytes = Vec::new();
    for range in [0..3 << 20, 3 << 20..9 << 20] {
        let mut body = reader.read(range).await?;
        while let Some(piece) = body.next().await {
            bytes.extend_from_slice(&piece?);
        }
    }
    reader.confirm().await?;
    Ok(Checksum::of(&bytes))
}

#[tokio::test(flavor = "multi_thread")]
async fn s3_over_tls_trusts_the_authority_of_its_profile() {
    let server = S3Server::start_with_tls().unwrap();
    let profile = |ca_file: &str| {
        format!(
            "[store]\nendpoint = \"{}\"\naccess_key_id = \"{}\"\nsecret_access_key = \"{}\"\n{ca_file}",
            server.endpoint(),
            S3Server::ACCESS_KEY,
            S3Server::SECRET_KEY
        )
    };
    let ca_file = format!("ca_file = \"{}\"\n", server.authority().display());
    let trusted = open("s3://testbed/file", &profile(&ca_file)).await.unwrap();
    passes_as_one_file(trusted).await;
    let unknown = open("s3://testbed/file", &profile("")).await.unwrap();
    let error = unknown.stat(b"", false).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unauthenticated, "{error}");
    assert!(error.to_string().contains("ca_file"), "{error}");
}

/// Checks the attributes of an empty directory: others have none in a store of prefixes.
async fn an_empty_directory_keeps_its_attributes(endpoint: &dyn Endpoint) {
    let wanted = Entry {
        name: Vec::new(),
        kind: Kind::Directory,
        size: 0,
        mtime: Some(FileTime {
            secs: 1_600_000_000,
            nanos: 123_456_789,
        }),
        stored: None,
        mode: Some(0o751),
        version: None,
    };
    endpoint
        .seal_directory(b"empty", &wanted, true)
        .await
        .unwrap();
    let found = endpoint.stat(b"empty", false).await.unwrap();
    assert_eq!(found, Some(wanted));
}

#[tokio::test(flavor = "multi_thread")]
async fn s3_refusals_say_what_to_do() {
    let server = S3Server::start().unwrap();
    let wrong = Store {
        secret_access_key: "wrong".to_owned(),
        ..store(&server)
    };
    let s3 = s3::open_store(S3Server::BUCKET, "", &wrong).unwrap();
    let error = s3.stat(b"", false).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unauthenticated, "{error}");
    let s3 = s3::open_store("nosuchbucket", "x", &store(&server)).unwrap();
    let error = s3.stat(b"", false).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
    assert!(error.to_string().contains("create the bucket"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn gcs_passes_the_suite() {
    let server = GcsServer::start().unwrap();
    let profile = server.profile();
    let gcs = async |key: &str| {
        let address = format!("gs://{}/{key}", GcsServer::BUCKET);
        open(&address, &profile).await.unwrap()
    };
    passes_the_suite(gcs("below/root").await).await;
    passes_as_one_file(gcs("single/file").await).await;
    an_empty_directory_keeps_its_attributes(&*gcs("marked").await).await;
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
    let open = async |below: &str, verify| {
        let root = folder.path().join(below).to_string_lossy().into_owned();
        let rules = DraftRules {
            verify,
            fsync: false,
            ..DraftRules::default()
        };
        let sftp = Sftp::open(host(&server), root.into_bytes(), rules).await;
        Arc::new(sftp.unwrap())
    };
    passes_the_suite(open("below/root", true).await).await;
    passes_the_suite(open("unread/root", false).await).await;
    passes_as_one_file(open("single/file", true).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sftp_without_extensions_passes_the_suite() {
    let extensions = "posix-rename,statvfs,fsync,limits,copy-data";
    let server = SshServer::start_refusing(&Place::default(), extensions).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("root").to_string_lossy().into_owned();
    let sftp = Sftp::open(host(&server), root.into_bytes(), DraftRules::default()).await;
    passes_at_scale(Arc::new(sftp.unwrap()), Scale::SHORT_LISTINGS).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sftp_reads_a_file_that_is_not_as_it_was_listed() {
    let server = SshServer::start().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().to_string_lossy().into_owned().into_bytes();
    let sftp = Sftp::open(host(&server), root, DraftRules::default()).await;
    let sftp = sftp.unwrap();
    let path = folder.path().join("file");
    for (listed, now) in [("long ago", "now"), ("", "no longer empty"), ("full", "")] {
        std::fs::write(&path, listed).unwrap();
        let entry = sftp.stat(b"file", false).await.unwrap().unwrap();
        std::fs::write(&path, now).unwrap();
        let found = sftp.get(b"file", &entry).await.unwrap();
        assert_eq!(found.data.concat(), now.as_bytes());
        assert_eq!(found.entry.size, now.len() as u64);
        assert_eq!(found.checksum, Checksum::of(now.as_bytes()));
    }
    std::fs::remove_file(&path).unwrap();
    let entry = Entry::bare(b"file".to_vec(), Kind::File);
    let error = sftp.get(b"file", &entry).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
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

#[tokio::test(flavor = "multi_thread")]
async fn web_servers_pass_the_suite() {
    let server = WebServer::start().unwrap();
    let profile = server.profile();
    for face in [WebFace::Pages, WebFace::Json, WebFace::Tls] {
        let folder = format!("{face:?}");
        let seeds = Posix::new(server.files().join(&folder), DraftRules::default());
        let site = open(&server.address(face, &folder), &profile).await;
        passes_seeded(site.unwrap(), Arc::new(seeds)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn webdav_passes_the_suite() {
    let server = WebServer::start().unwrap();
    let profile = server.profile();
    for face in [WebFace::Dav, WebFace::DavTls] {
        let below = format!("{face:?}/below/root");
        let dav = open(&server.address(face, &below), &profile).await;
        passes_the_suite(dav.unwrap()).await;
        let single = format!("{face:?}/single/file");
        let dav = open(&server.address(face, &single), &profile).await;
        passes_as_one_file(dav.unwrap()).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn azure_passes_the_suite() {
    for server in [AzureServer::start(), AzureServer::start_loose()] {
        on_azure(&server.unwrap()).await;
    }
}

async fn on_azure(server: &AzureServer) {
    let azure = async |below: &str| {
        let address = format!("azblob://{}/{below}", AzureServer::CONTAINER);
        open(&address, &server.profile()).await.unwrap()
    };
    passes_the_suite(azure("below/root").await).await;
    passes_as_one_file(azure("single/file").await).await;
    an_empty_directory_keeps_its_attributes(&*azure("marked").await).await;
}
