//! Requirements of Azure Blob Storage for requests, and its refusals.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use bytes::Bytes;
use futures_util::{FutureExt, StreamExt, TryStreamExt, stream};
use posthaste_endpoint::{Checksum, Endpoint, Error, ErrorKind, FileSpec, Kind, Result};
use posthaste_testbed::{AzureServer, StoreLooks, StoreMask, conformance::open};
use tokio::task::JoinSet;

fn address(below: &str) -> String {
    format!("az://{}/{below}", AzureServer::CONTAINER)
}

async fn put(endpoint: &dyn Endpoint, path: &str, bytes: &'static [u8]) -> Result<()> {
    put_summed(endpoint, path, bytes, Checksum::of(bytes)).await
}

async fn put_summed(
    endpoint: &dyn Endpoint,
    path: &str,
    bytes: &'static [u8],
    sum: Checksum,
) -> Result<()> {
    let spec = FileSpec {
        size: bytes.len() as u64,
        mtime: None,
        mode: None,
        origin: "test:put".into(),
        version: None,
    };
    let data = vec![Bytes::from_static(bytes)];
    endpoint.put(path.as_bytes(), &spec, data, sum).await
}

async fn read(endpoint: &dyn Endpoint, path: &str) -> Result<Vec<u8>> {
    let entry = endpoint.stat(path.as_bytes(), true).await?.unwrap();
    let whole = endpoint.get(path.as_bytes(), &entry).await?;
    Ok(whole.data.concat())
}

fn refusal<T>(outcome: Result<T>, kind: ErrorKind, secret: &str) -> Error {
    let Err(error) = outcome else {
        panic!("it passed");
    };
    assert_eq!(error.kind(), kind, "{error}");
    assert!(!error.is_temporary(), "it will be the same again: {error}");
    let shown = format!("{error} {error:?}");
    assert!(!shown.contains(secret), "{shown}");
    error
}

#[tokio::test(flavor = "multi_thread")]
async fn azure_refusals_say_what_to_do() {
    let server = AzureServer::start().unwrap();
    let wrong_key = "d3Jvbmctc2VjcmV0";
    let profile = server
        .profile()
        .replace(AzureServer::ACCOUNT_KEY, wrong_key);
    let azure = open(&address(""), &profile).await.unwrap();
    let outcome = azure.stat(b"", true).await;
    let error = refusal(outcome, ErrorKind::Unauthenticated, wrong_key);
    assert!(error.to_string().contains("check the account"), "{error}");

    let azure = open("az://nosuchcontainer/x", &server.profile())
        .await
        .unwrap();
    let key = AzureServer::ACCOUNT_KEY;
    let error = refusal(azure.stat(b"", true).await, ErrorKind::NotFound, key);
    assert!(
        error.to_string().contains("create the container"),
        "{error}"
    );
    let error = refusal(put(&*azure, "file", b"x").await, ErrorKind::NotFound, key);
    assert!(
        error.to_string().contains("create the container"),
        "{error}"
    );

    let anonymous = format!(
        "[azure]\nendpoint = \"{}\"\nanonymous = true\n",
        server.endpoint()
    );
    let azure = open(&address("x"), &anonymous).await.unwrap();
    assert!(
        azure.stat(b"", true).await.is_err(),
        "the container is public"
    );

    let outcome = open("az://Not_A_Container/x", &server.profile()).await;
    refusal(outcome.map(|_| ()), ErrorKind::Invalid, key);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_signature_allows_what_it_says() {
    let server = AzureServer::start().unwrap();
    let owner = open(&address("run"), &server.profile()).await.unwrap();
    put(&*owner, "a file", b"kept").await.unwrap();
    let signed = |permissions: &str| {
        let token = server.sas_token(permissions).unwrap();
        let (_, secret) = token.rsplit_once("sig=").unwrap();
        let profile = format!(
            "[azure]\nendpoint = \"{}\"\nsas_token = \"?{token}\"\n",
            server.endpoint()
        );
        (profile, secret.to_owned())
    };
    let (profile, secret) = signed("rl");
    let reader = open(&address("run"), &profile).await.unwrap();
    assert_eq!(read(&*reader, "a file").await.unwrap(), b"kept");
    let refused = put(&*reader, "other", b"refused").await;
    refusal(refused, ErrorKind::PermissionDenied, &secret);
    let (profile, secret) = signed("r");
    let single = open(&address("run/a file"), &profile).await.unwrap();
    assert_eq!(read(&*single, "").await.unwrap(), b"kept");
    let single = open(&address("run/none"), &profile).await.unwrap();
    refusal(
        single.stat(b"", true).await,
        ErrorKind::PermissionDenied,
        &secret,
    );
    let (profile, _) = signed("rlcwd");
    let writer = open(&address("run"), &profile).await.unwrap();
    put(&*writer, "new", b"written").await.unwrap();
    let spec = FileSpec {
        size: 7,
        mtime: None,
        mode: None,
        origin: "test:copy".into(),
        version: None,
    };
    let from = writer.locate(b"new");
    writer.copy_within(&from, b"copied", &spec).await.unwrap();
    assert_eq!(read(&*owner, "copied").await.unwrap(), b"written");
    assert_ne!(
        writer.realm(),
        owner.realm(),
        "one may do more than the other"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bearer_token_is_sent_over_tls() {
    let server = AzureServer::start_with_tls().unwrap();
    let token = server.bearer_token().unwrap();
    let profile = |rest: &str| format!("[azure]\nendpoint = \"{}\"\n{rest}", server.endpoint());
    let trusting = format!("ca_file = \"{}\"\n", server.authority_file().display());
    let with_token = format!("token = \"{token}\"\n");
    let azure = open(
        &address("run"),
        &profile(&format!("{trusting}{with_token}")),
    )
    .await;
    let azure = azure.unwrap();
    put(&*azure, "file", b"kept").await.unwrap();
    assert_eq!(read(&*azure, "file").await.unwrap(), b"kept");

    let azure = open(&address("run"), &profile(&with_token)).await.unwrap();
    let error = refusal(
        azure.stat(b"", true).await,
        ErrorKind::Unauthenticated,
        &token,
    );
    assert!(error.to_string().contains("ca_file"), "{error}");
    let wrong = profile(&format!("{trusting}token = \"hush\"\n"));
    let azure = open(&address("run"), &wrong).await.unwrap();
    refusal(
        azure.stat(b"", true).await,
        ErrorKind::Unauthenticated,
        "hush",
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn bytes_with_a_wrong_checksum_are_not_kept() {
    let server = AzureServer::start().unwrap();
    let azure = open(&address("run"), &server.profile()).await.unwrap();
    let outcome = put_summed(&*azure, "file", b"right", Checksum::of(b"wrong")).await;
    let error = outcome.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
    assert!(azure.stat(b"file", true).await.unwrap().is_none());
    put(&*azure, "file", b"right").await.unwrap();
    let entry = azure.stat(b"file", true).await.unwrap().unwrap();
    let reader = azure.open(b"file", &entry).await.unwrap();
    assert_eq!(reader.checksum(), Some(Checksum::of(b"right")));
}

#[tokio::test(flavor = "multi_thread")]
async fn names_azure_would_change_are_refused() {
    let server = AzureServer::start().unwrap();
    let azure = open(&address("run"), &server.profile()).await.unwrap();
    for name in ["a\nb", "back\\slash", "dot.", "dot./below"] {
        let error = refusal(
            put(&*azure, name, b"x").await,
            ErrorKind::Unsupported,
            "hush",
        );
        assert!(error.to_string().contains("(rename it)"), "{error}");
    }
    for name in ["a.b c", "100%", "a?b=c&d#e", "é😀", "[x]{y}|z^`~'\"<>*!()"] {
        put(&*azure, name, b"x").await.unwrap();
        assert_eq!(read(&*azure, name).await.unwrap(), b"x", "{name}");
    }
}

/// Number of names, more than the 5,000 of a page.
const MANY: usize = 5_050;

async fn names_of(endpoint: &Arc<dyn Endpoint>, marked: bool) -> Vec<(Vec<u8>, Kind)> {
    let mut listing = endpoint.list_tree(b"").await.unwrap().unwrap();
    let mut names = Vec::new();
    loop {
        let page = listing.next_page().await.unwrap();
        if page.is_empty() {
            return names;
        }
        names.extend(page.into_iter().map(|entry| (entry.name, entry.kind)));
        if marked {
            let mark = listing.mark().unwrap();
            listing = endpoint.list_on(b"", &mark).await.unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_listing_goes_on_where_its_mark_was_left() {
    let server = AzureServer::start().unwrap();
    let azure = open(&address("many"), &server.profile()).await.unwrap();
    let writes = (0..MANY).map(|index| {
        let azure = Arc::clone(&azure);
        async move { put(&*azure, &format!("below/{index:05}"), b"x").await }
    });
    let writes = stream::iter(writes).buffer_unordered(16);
    writes.try_collect::<Vec<()>>().await.unwrap();
    let whole = names_of(&azure, false).await;
    assert_eq!(whole.len(), MANY + 1, "a file or the directory is missing");
    assert_eq!(whole[0], (b"below".to_vec(), Kind::Directory));
    assert_eq!(names_of(&azure, true).await, whole);
    let mut listing = azure.list(b"below", false).await.unwrap();
    let first = listing.next_page().await.unwrap();
    assert!(first.len() < MANY, "it is one page");
    let second = listing.next_page().await.unwrap();
    let names: BTreeSet<_> = first
        .iter()
        .chain(&second)
        .map(|entry| &entry.name)
        .collect();
    assert_eq!(names.len(), MANY);
    a_page_ahead_waits_for_its_place(&server).await;
}

/// Checks that with a single request allowed, no page is requested while a file is read.
async fn a_page_ahead_waits_for_its_place(server: &AzureServer) {
    let mask = StoreMask::start(server.address(), StoreLooks::Same).unwrap();
    let direct = format!("http://{}", server.address());
    let profile = server.profile().replace(&direct, &mask.endpoint());
    let profile = format!("{profile}connections_max = 1\n");
    let azure = open(&address("many"), &profile).await.unwrap();
    put(&*azure, "file", b"some bytes").await.unwrap();
    let entry = azure.stat(b"file", true).await.unwrap().unwrap();
    let reader = azure.open(b"file", &entry).await.unwrap();
    let mut listing = azure.list(b"below", false).await.unwrap();
    let before = mask.requests();
    // The first page keeps its place until somebody waits for it.
    mask.hold_answers(true);
    let mut first = JoinSet::new();
    first.spawn(async move { (listing.next_page().await, listing) });
    while mask.requests() == before {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let mut reading = reader.read(0..10);
    assert!(
        (&mut reading).now_or_never().is_none(),
        "two were under way at once"
    );
    mask.hold_answers(false);
    // The reader gets the place of the first page, before the second one.
    let body = reading.await.unwrap();
    let (page, mut listing) = first.join_next().await.unwrap().unwrap();
    assert!(page.unwrap().len() < MANY, "it is one page");
    // Time in which the second page could be requested.
    tokio::time::sleep(Duration::from_millis(500)).await;
    let asked = mask.requests() - before;
    assert_eq!(asked, 2, "a page was asked for while a file was read");
    drop(body);
    assert!(!listing.next_page().await.unwrap().is_empty());
    assert_eq!(mask.requests() - before, 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn addresses_of_accounts_are_understood() {
    let profile = "[azure]\nanonymous = true\n";
    for (address, shown) in [
        ("https://me.blob.core.windows.net/c/a%20b", "azblob://c/a b"),
        (
            "https://me.blob.core.windows.net/c?sv=1&sig=hush",
            "azblob://c",
        ),
        ("azblob://c/k", "azblob://c/k"),
    ] {
        let profile = format!("{profile}account = \"me\"\n");
        let endpoint = open(address, &profile).await.unwrap();
        assert_eq!(endpoint.capabilities().scheme, "azblob", "{address}");
        assert_eq!(endpoint.show(b""), shown);
    }
    let page = open("https://www.example.org/c/k", profile).await.unwrap();
    assert_eq!(page.capabilities().scheme, "http");
}
