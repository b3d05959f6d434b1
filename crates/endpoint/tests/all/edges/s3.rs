//! S3 stores that are elsewhere, are anonymous, require the reader to pay, or report nothing
//! without permission to list.

use std::{
    os::unix::fs::PermissionsExt,
    sync::{Arc, Mutex},
};

use bytes::Bytes;
use posthaste_endpoint::{
    Checksum, Endpoint, Entry, ErrorKind, FileSpec, Kind, Result,
    posix::{DraftRules, Posix, without_lent_rights},
};
use posthaste_testbed::{
    conformance::open,
    odd::{Answer, Asked, Server},
};

use crate::edges::{
    azure, gcs, s3, says, stores,
    table::{End, shown},
};

const ABOUT: &str = "etag: \"e\"\r\n";

/// Returns an answer with which a store redirects to the bucket's place.
fn sends_on(asked: &Asked, status: u16, headers: &str, body: &str) -> Option<Answer> {
    let signed = asked.header("authorization").unwrap();
    let is_there = signed.contains("/eu-1/s3/");
    (!is_there).then(|| Answer::sized(status, headers, body))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_is_signed_again_for_the_region_that_the_store_tells() {
    let header = "x-amz-bucket-region: eu-1\r\n";
    let body = "<Error><Code>AuthorizationHeaderMalformed</Code><Region>eu-1</Region></Error>";
    for (status, headers, body) in [
        (301, header, ""),
        (307, header, ""),
        (400, header, ""),
        (400, "", body),
    ] {
        let asked = Arc::new(Mutex::new(0));
        let counted = Arc::clone(&asked);
        let server = Server::start(move |asked| {
            *counted.lock().unwrap() += 1;
            let told = sends_on(asked, status, headers, body);
            told.unwrap_or_else(|| stores::stored(asked))
        })
        .await;
        let endpoint = s3(&server);
        write(&*endpoint, b"one").await.unwrap();
        write(&*endpoint, b"two").await.unwrap();
        assert_eq!(*asked.lock().unwrap(), 3, "it is told once");
    }
    shown("S3", "the bucket is in another region", End::Right);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_sends_on_and_on_is_refused() {
    let other = Server::start(|_| panic!("it was asked")).await;
    let location = format!(
        "x-amz-bucket-region: eu-1\r\nlocation: {}/b\r\n",
        other.url()
    );
    for (headers, words) in [
        ("x-amz-bucket-region: eu-1\r\n", "301"),
        (&*location, "set both in a profile"),
    ] {
        let headers = headers.to_owned();
        let server = Server::start(move |_| Answer::sized(301, &headers, "")).await;
        says(write(&*s3(&server), b"one").await, words);
    }
    shown(
        "S3",
        "the store sends on and on, or to a stranger",
        End::Refused,
    );
}

async fn write(endpoint: &dyn Endpoint, path: &[u8]) -> Result<()> {
    let data = Bytes::from_static(b"bytes");
    let spec = FileSpec {
        size: 5,
        mtime: None,
        mode: None,
        origin: "test:elsewhere".into(),
        version: None,
    };
    let sum = Checksum::of(&data);
    endpoint.put(path, &spec, vec![data], sum).await
}

async fn read(endpoint: &dyn Endpoint, path: &[u8]) -> Result<Vec<u8>> {
    let entry = Entry::bare(Vec::new(), Kind::File);
    Ok(endpoint.get(path, &entry).await?.data.concat())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_public_bucket_is_read_without_credentials() {
    let server = Server::start(|asked| match asked.header("authorization") {
        None => Answer::sized(200, ABOUT, "bytes"),
        Some(_) => Answer::sized(403, "", ""),
    })
    .await;
    let profile = format!("[p]\nendpoint = \"{}\"\nanonymous = true\n", server.url());
    let endpoint = open("s3://b/t", &profile).await.unwrap();
    assert_eq!(read(&*endpoint, b"x").await.unwrap(), b"bytes");
    shown("S3", "a bucket wants no credentials", End::Right);
}

#[tokio::test(flavor = "multi_thread")]
async fn who_asks_pays_where_that_is_said() {
    let server = Server::start(|asked| {
        let signed = asked.header("authorization").unwrap();
        match asked.header("x-amz-request-payer") {
            Some("requester") if signed.contains("x-amz-request-payer") => {
                Answer::sized(200, ABOUT, "bytes")
            }
            _ => Answer::sized(403, "", "<Error><Code>AccessDenied</Code></Error>"),
        }
    })
    .await;
    let profile = format!(
        "[p]\nendpoint = \"{}\"\naccess_key_id = \"k\"\nsecret_access_key = \"s\"\n",
        server.url()
    );
    let endpoint = open("s3://b/t", &profile).await.unwrap();
    assert!(read(&*endpoint, b"x").await.is_err());
    let profile = profile + "requester_pays = true\n";
    let endpoint = open("s3://b/t", &profile).await.unwrap();
    assert_eq!(read(&*endpoint, b"x").await.unwrap(), b"bytes");
    write(&*endpoint, b"x").await.unwrap();
    shown("S3", "who asks has to pay", End::Right);
}

/// Starts a store whose keys may read and write one object, and list nothing.
async fn unlisted(status: u16) -> Server {
    let denied = move || Answer::sized(status, "", "");
    Server::start(move |asked| {
        let (path, query) = asked.target.split_once('?').unwrap_or((&asked.target, ""));
        let is_listing = query.contains("list") || path.ends_with("/o");
        match path.ends_with("/t") || path.ends_with("/o/t") {
            _ if is_listing => denied(),
            true if path.contains("/o/") && !query.contains("alt=media") => {
                let told = r#"{"name":"t","size":"5","generation":"1"}"#;
                Answer::sized(200, "", told)
            }
            true => Answer::sized(200, ABOUT, "bytes"),
            // A missing object looks like a forbidden one.
            false => denied(),
        }
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn one_object_is_found_by_keys_that_may_not_list() {
    let server = unlisted(403).await;
    for endpoint in [s3(&server), azure(&server).await, gcs(&server).await] {
        let entry = endpoint.stat(b"", true).await.unwrap().unwrap();
        assert_eq!((entry.kind, entry.size), (Kind::File, 5));
        assert_eq!(
            endpoint.get(b"", &entry).await.unwrap().data.concat(),
            b"bytes"
        );
        let unseen = endpoint.stat(b"new", true).await.unwrap_err();
        assert_eq!(unseen.kind(), ErrorKind::PermissionDenied);
        // Nothing is known of existing files, so nothing is compared.
        assert!(endpoint.make_directory(b"new").await.unwrap());
    }
    shown("S3, Azure, Google", "keys may not list", End::Right);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_store_tells_lends_nobodys_rights() {
    let about = "etag: \"e\"\r\nx-amz-meta-mode: 104755\r\n";
    let server = Server::start(move |_| Answer::sized(200, about, "content")).await;
    let endpoint = s3(&server);
    let entry = endpoint.stat(b"x", true).await.unwrap().unwrap();
    let whole = endpoint.get(b"x", &entry).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let files = Posix::new(folder.path().to_owned(), DraftRules::default());
    let spec = FileSpec {
        // Like the copy with each file.
        mode: whole.entry.mode.map(without_lent_rights),
        ..crate::edges::spec(b"content")
    };
    let put = files.put(b"x", &spec, whole.data, whole.checksum);
    put.await.unwrap();
    let found = std::fs::metadata(folder.path().join("x")).unwrap();
    assert_eq!(found.permissions().mode() & 0o7777, 0o755);
    shown("S3", "a mode would lend its owner's rights", End::Right);
}
