//! Servers and file systems that misbehave in known ways: their output is right or refused, never
//! misread.

mod bodies;
mod files;
mod fronts;
mod ftp;
mod held;
mod lost;
mod names;
mod pages;
mod s3;
mod sftp;
mod stores;
mod table;
mod tokens;
mod web;
mod webdav;

use std::sync::Arc;

use bytes::Bytes;
use posthaste_endpoint::{
    Checksum, Endpoint, Error, FileSpec, FileTime, Result,
    s3::{Store, open_store},
};
use posthaste_testbed::{AzureServer, conformance::open, odd::Server};

fn s3(server: &Server) -> Arc<dyn Endpoint> {
    s3_at(server.url())
}

fn s3_at(url: String) -> Arc<dyn Endpoint> {
    let store = Store {
        endpoint: url,
        region: "us-east-1".to_owned(),
        access_key_id: "key".to_owned(),
        secret_access_key: "secret".to_owned(),
        ca_file: None,
    };
    open_store("b", "t", &store).unwrap()
}

async fn azure(server: &Server) -> Arc<dyn Endpoint> {
    azure_at(&server.url()).await
}

async fn azure_at(url: &str) -> Arc<dyn Endpoint> {
    let profile = format!(
        "[azure]\nendpoint = \"{}/a\"\naccount = \"a\"\naccount_key = \"{}\"\n",
        url,
        AzureServer::ACCOUNT_KEY
    );
    open("az://b/t", &profile).await.unwrap()
}

async fn gcs(server: &Server) -> Arc<dyn Endpoint> {
    let profile = format!("[gcs]\nendpoint = \"{}\"\nanonymous = true\n", server.url());
    open("gs://b/t", &profile).await.unwrap()
}

async fn web(server: &Server) -> Arc<dyn Endpoint> {
    open(&format!("{}/t/", server.url()), "").await.unwrap()
}

/// Returns the specification of these bytes.
fn spec(bytes: &[u8]) -> FileSpec {
    FileSpec {
        size: bytes.len() as u64,
        mtime: Some(FileTime {
            secs: 1_600_000_000,
            nanos: 0,
        }),
        mode: Some(0o640),
        origin: "test:edges".into(),
        version: None,
    }
}

/// Writes a file in one request.
async fn put(endpoint: &dyn Endpoint, path: &[u8], bytes: &[u8]) -> Result<()> {
    let data = vec![Bytes::copy_from_slice(bytes)];
    endpoint
        .put(path, &spec(bytes), data, Checksum::of(bytes))
        .await
}

/// Writes a file in segments.
async fn write(endpoint: &dyn Endpoint, path: &[u8], bytes: &[u8]) -> Result<()> {
    let writer = endpoint.create(path, &spec(bytes)).await?;
    let step = usize::try_from(writer.segment_size()).unwrap();
    for (index, segment) in bytes.chunks(step).enumerate() {
        let start = (index * step) as u64;
        let body = Bytes::copy_from_slice(segment);
        let body = Box::pin(futures_util::stream::iter([Ok(body)]));
        let range = start..start + segment.len() as u64;
        writer.write(index as u64, range, body).await?;
    }
    writer.finish(Checksum::of(bytes)).await
}

fn says(outcome: Result<impl Sized>, words: &str) -> Error {
    let Err(error) = outcome else {
        panic!("it passed, where \"{words}\" was to be said");
    };
    assert!(error.to_string().contains(words), "{error}");
    error
}
