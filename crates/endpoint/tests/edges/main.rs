//! Servers and file systems that misbehave, each as some are known to: what they send is right or refused, never taken
//! for what it is not.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod files;
mod fronts;
mod ftp;
mod lost;
mod pages;
mod s3;
mod sftp;
mod stores;
mod table;
mod tokens;
mod web;
mod webdav;

use std::sync::Arc;

use posthaste_endpoint::{
    Endpoint, Error, Result,
    s3::{Store, open_store},
};
use posthaste_testbed::{AzureServer, conformance::open, odd::Server};

fn s3(server: &Server) -> Arc<dyn Endpoint> {
    let store = Store {
        endpoint: server.url(),
        region: "us-east-1".to_owned(),
        access_key_id: "key".to_owned(),
        secret_access_key: "secret".to_owned(),
        ca_file: None,
    };
    open_store("b", "t", &store).unwrap()
}

async fn azure(server: &Server) -> Arc<dyn Endpoint> {
    let profile = format!(
        "[azure]\nendpoint = \"{}/a\"\naccount = \"a\"\naccount_key = \"{}\"\n",
        server.url(),
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

fn says(outcome: Result<impl Sized>, words: &str) -> Error {
    let Err(error) = outcome else {
        panic!("it passed, where \"{words}\" was to be said");
    };
    assert!(error.to_string().contains(words), "{error}");
    error
}
