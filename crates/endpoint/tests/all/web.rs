//! Web servers with fewer features than others, and their refusals.

use std::{fs, sync::Arc, time::Duration};

use futures_util::StreamExt;
use posthaste_endpoint::{Error, ErrorKind, Kind, Reader, Result};
use posthaste_testbed::{WebFace, WebServer, conformance::open};

const LARGE_BYTES: usize = (20 << 20) + 7;

fn server() -> WebServer {
    let server = WebServer::start().unwrap();
    fs::write(server.files().join("small file"), b"small").unwrap();
    fs::write(server.files().join("large"), large()).unwrap();
    fs::create_dir(server.files().join("folder")).unwrap();
    server
}

fn large() -> Vec<u8> {
    (0..=250).cycle().take(LARGE_BYTES).collect()
}

async fn read(reader: &Arc<dyn Reader>, start: u64, end: u64) -> Vec<u8> {
    let mut body = reader.read(start..end).await.unwrap();
    let mut read = Vec::new();
    while let Some(bytes) = body.next().await {
        read.extend_from_slice(&bytes.unwrap());
    }
    read
}

async fn look(server: &WebServer, face: WebFace, profiles: &str) -> Result<()> {
    let endpoint = open(&server.address(face, "small%20file"), profiles).await?;
    let entry = endpoint.stat(b"", true).await?.unwrap();
    let whole = endpoint.get(b"", &entry).await?;
    assert_eq!(whole.data.concat(), b"small");
    Ok(())
}

fn refusal(outcome: Result<()>, kind: ErrorKind) -> Error {
    let error = outcome.unwrap_err();
    assert_eq!(error.kind(), kind, "{error}");
    assert!(!error.to_string().contains(WebServer::PASSWORD), "{error}");
    error
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_without_ranges_and_heads_is_read_from_the_start() {
    let server = server();
    let endpoint = open(&server.address(WebFace::Poor, "large"), "")
        .await
        .unwrap();
    let entry = endpoint.stat(b"", true).await.unwrap().unwrap();
    assert_eq!((entry.kind, entry.size), (Kind::File, LARGE_BYTES as u64));
    assert!(!endpoint.capabilities().ranges, "it said it has ranges");
    let reader = endpoint.open(b"", &entry).await.unwrap();
    let whole = read(&reader, 0, entry.size).await;
    assert!(whole == large(), "it differs");
    assert_eq!(
        read(&reader, 1_000_000, 1_000_003).await,
        whole[1_000_000..1_000_003]
    );
    assert!(endpoint.list(b"", false).await.is_err(), "it has an index");
}

#[tokio::test(flavor = "multi_thread")]
async fn redirections_lead_to_the_file() {
    let server = server();
    look(&server, WebFace::Moved, "").await.unwrap();
    let endpoint = open(&server.address(WebFace::Moved, ""), "").await.unwrap();
    let folder = endpoint.stat(b"folder", true).await.unwrap().unwrap();
    assert_eq!(folder.kind, Kind::Directory);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_locked_server_wants_the_password_of_a_profile() {
    let server = server();
    let outcome = look(&server, WebFace::Locked, "").await;
    refusal(outcome, ErrorKind::Unauthenticated);
    let wrong = server
        .profile()
        .replace(WebServer::PASSWORD, "wrong-secret");
    let error = refusal(
        look(&server, WebFace::Locked, &wrong).await,
        ErrorKind::Unauthenticated,
    );
    assert!(
        !format!("{error} {error:?}").contains("wrong-secret"),
        "{error:?}"
    );
    look(&server, WebFace::Locked, &server.profile())
        .await
        .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_busy_server_says_when_to_come_back() {
    let server = server();
    let outcome = look(&server, WebFace::Busy, "").await;
    let error = refusal(outcome, ErrorKind::Busy);
    assert!(error.is_temporary());
    assert_eq!(error.pause(), Some(Duration::from_secs(7)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_nobody_knows_is_not_believed() {
    let server = server();
    let error = refusal(
        look(&server, WebFace::Tls, "").await,
        ErrorKind::Unauthenticated,
    );
    assert!(error.to_string().contains("ca_file"), "{error}");
    assert!(!error.is_temporary(), "it will be the same again");
    look(&server, WebFace::Tls, &server.profile())
        .await
        .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_signed_address_is_used_and_not_shown() {
    let server = server();
    let address = server.address(WebFace::Pages, "small%20file?signature=hush");
    let endpoint = open(&address, "").await.unwrap();
    let entry = endpoint.stat(b"", true).await.unwrap().unwrap();
    assert_eq!(
        endpoint.get(b"", &entry).await.unwrap().data.concat(),
        b"small"
    );
    assert!(
        !endpoint.show(b"").contains("hush"),
        "{}",
        endpoint.show(b"")
    );
    fs::remove_file(server.files().join("small file")).unwrap();
    let error = endpoint.get(b"", &entry).await.unwrap_err();
    assert!(!format!("{error} {error:?}").contains("hush"), "{error:?}");
    assert!(server.log().contains("signature=hush"), "it was not sent");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_directory_of_webdav_is_never_replaced_or_removed() {
    let server = server();
    fs::create_dir(server.dav_files().join("folder")).unwrap();
    fs::write(server.dav_files().join("folder/kept"), b"kept").unwrap();
    let endpoint = open(&server.address(WebFace::Dav, ""), "").await.unwrap();
    let spec = posthaste_endpoint::FileSpec {
        size: 3,
        mtime: None,
        mode: None,
        origin: "test:put".into(),
        version: None,
    };
    let data = vec!["new".into()];
    let sum = posthaste_endpoint::Checksum::of(b"new");
    let outcome = endpoint.put(b"folder", &spec, data, sum).await;
    refusal(outcome, ErrorKind::Conflict);
    refusal(endpoint.remove(b"folder").await, ErrorKind::Conflict);
    assert_eq!(
        fs::read(server.dav_files().join("folder/kept")).unwrap(),
        b"kept"
    );
    let left: Vec<_> = fs::read_dir(server.dav_files()).unwrap().collect();
    assert_eq!(left.len(), 1, "{left:?}");
}
