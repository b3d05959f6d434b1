//! Google Cloud Storage: credentials, refusals, damage, and the composition of large files.

mod google;

use std::{collections::BTreeMap, fs, path::PathBuf, sync::Arc, time::Duration};

use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt, stream};
use google::{EMAIL, Google, always, in_turn, profile};
use posthaste_endpoint::{
    ByteStream, Checksum, Endpoint, Entry, Error, ErrorKind, FileSpec, Kind, Listing, Reader,
    Result,
};
use posthaste_testbed::{GcsServer, conformance::open};

const MEBI: usize = 1 << 20;

async fn open_in(server: &GcsServer, key: &str) -> Arc<dyn Endpoint> {
    let address = format!("gs://{}/{key}", GcsServer::BUCKET);
    open(&address, &server.profile()).await.unwrap()
}

fn spec(size: usize, origin: &str) -> FileSpec {
    FileSpec {
        size: size as u64,
        mtime: None,
        mode: None,
        origin: origin.into(),
        version: None,
    }
}

async fn put(endpoint: &dyn Endpoint, path: &[u8], bytes: &[u8]) -> Result<()> {
    let (spec, sum) = (spec(bytes.len(), "test:put"), Checksum::of(bytes));
    let data = vec![Bytes::copy_from_slice(bytes)];
    endpoint.put(path, &spec, data, sum).await
}

async fn get(endpoint: &dyn Endpoint, path: &[u8]) -> Result<Vec<u8>> {
    let entry = endpoint.stat(path, false).await?.unwrap();
    Ok(endpoint.get(path, &entry).await?.data.concat())
}

fn refused<T>(outcome: Result<T>, kind: ErrorKind, says: &str) -> Error {
    let error = outcome.map(|_| ()).unwrap_err();
    assert_eq!(error.kind(), kind, "{error}");
    let shown = error.to_string();
    assert!(shown.contains(says), "{shown}");
    assert_eq!(shown.lines().count(), 1, "{shown}");
    let all = format!("{shown} {error:?}");
    for secret in ["token-", "PRIVATE KEY", "wrong-token"] {
        assert!(!all.contains(secret), "{all}");
    }
    error
}

#[tokio::test(flavor = "multi_thread")]
async fn an_account_gets_one_token_for_many_requests() {
    let server = GcsServer::start().unwrap();
    let google = Google::start(server.address()).await;
    let gcs = open("gs://testbed/x", &google.profile()).await.unwrap();
    let puts = (0..20_u8).map(|index| {
        let gcs = Arc::clone(&gcs);
        async move { put(&*gcs, &[b'a' + index], b"bytes").await }
    });
    let puts = stream::iter(puts).buffer_unordered(8);
    puts.try_collect::<Vec<()>>().await.unwrap();
    assert_eq!(google.given(), 1);
    google.revoke().await;
    let gets = (0..20_u8).map(|index| {
        let gcs = Arc::clone(&gcs);
        async move { get(&*gcs, &[b'a' + index]).await }
    });
    let gets = stream::iter(gets).buffer_unordered(8);
    let found: Vec<Vec<u8>> = gets.try_collect().await.unwrap();
    assert!(found.iter().all(|bytes| bytes == b"bytes"), "{found:?}");
    put(&*gcs, b"new", b"more").await.unwrap();
    assert_eq!(google.given(), 2, "a token that is refused is renewed");
    assert!(
        gcs.realm().unwrap().contains(EMAIL),
        "who asks is part of the realm"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_credentials_are_named_and_not_shown() {
    let server = GcsServer::start().unwrap();
    let google = Google::start(server.address()).await;
    let address = "gs://testbed/x";
    let look = async |profile: &str| open(address, profile).await?.stat(b"", true).await;
    let endpoint = google.endpoint();

    let wrong = format!("[g]\nendpoint = \"{endpoint}\"\ntoken = \"wrong-token\"\n");
    let kind = ErrorKind::Unauthenticated;
    let error = refused(look(&wrong).await, kind, "authError: Invalid Credentials");
    assert!(!error.is_temporary(), "the same token stays wrong");

    let nobody = format!("[g]\nendpoint = \"{endpoint}\"\nanonymous = true\n");
    refused(look(&nobody).await, kind, "Invalid Credentials");

    let deaf = always(
        "400 Bad Request",
        "",
        r#"{"error":"invalid_grant","error_description":"Invalid JWT Signature."}"#,
    );
    let deaf = deaf.await;
    let key = include_str!("gcs/account.pem");
    let path = google.key_file(&deaf.endpoint(), key);
    let says = "invalid_grant: Invalid JWT Signature (check the account's key file";
    refused(look(&profile(&endpoint, &path)).await, kind, says);

    let path = google.key_file(&google.token_uri(), "-----BEGIN PRIVATE KEY-----\nAAAA\n");
    let kind = ErrorKind::Invalid;
    refused(
        look(&profile(&endpoint, &path)).await,
        kind,
        "is no RSA key",
    );
    fs::write(
        &path,
        "{\"type\":\"service_account\",\"private_key\":\"PRIVATE KEY\"}",
    )
    .unwrap();
    refused(
        look(&profile(&endpoint, &path)).await,
        kind,
        "it is no key file",
    );
    let missing = PathBuf::from("/nowhere/key.json");
    let outcome = look(&profile(&endpoint, &missing)).await;
    refused(outcome, ErrorKind::NotFound, "/nowhere/key.json");
    let naked = "[g]\nendpoint = \"localhost\"\nanonymous = true\n";
    refused(look(naked).await, kind, "the address has no scheme");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_asks_for_a_pause_says_how_long() {
    let body = r#"{"error":{"message":"Slow down","errors":[{"reason":"rateLimitExceeded"}]}}"#;
    let busy = always("429 Too Many Requests", "retry-after: 7\r\n", body).await;
    let profile = format!(
        "[g]\nendpoint = \"{}\"\nanonymous = true\n",
        busy.endpoint()
    );
    let gcs = open("gs://testbed/x", &profile).await.unwrap();
    let error = refused(gcs.stat(b"", true).await, ErrorKind::Busy, "Slow down");
    assert_eq!(error.pause(), Some(Duration::from_secs(7)));
    assert!(error.is_temporary());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_on_the_server_goes_on_until_it_is_done() {
    let store = in_turn(&[
        r#"{"done":false,"rewriteToken":"one/2="}"#,
        r#"{"done":false,"rewriteToken":"three"}"#,
        r#"{"done":true,"resource":{"name":"to","size":"7","generation":"2"}}"#,
    ]);
    let store = store.await;
    let profile = format!(
        "[g]\nendpoint = \"{}\"\nanonymous = true\n",
        store.endpoint()
    );
    let gcs = open("gs://testbed/x", &profile).await.unwrap();
    let spec = FileSpec {
        version: Some("1".into()),
        ..spec(7, "test:copy")
    };
    gcs.copy_within(b"other/a b", b"to", &spec).await.unwrap();
    let asked = store.asked();
    assert_eq!(asked.len(), 3, "{asked:?}");
    let path = "POST /storage/v1/b/other/o/a%20b/rewriteTo/b/testbed/o/x%2Fto?";
    let tokens = [
        None,
        Some("&rewriteToken=one%2F2%3D "),
        Some("&rewriteToken=three "),
    ];
    for (head, token) in asked.iter().zip(tokens) {
        assert!(head.starts_with(path), "{head}");
        assert!(head.contains("ifSourceGenerationMatch=1"), "{head}");
        assert!(token.is_none_or(|token| head.contains(token)), "{head}");
    }
    let changed = FileSpec { size: 8, ..spec };
    let copied = gcs.copy_within(b"other/a b", b"to", &changed).await;
    refused(copied, ErrorKind::Changed, "7 bytes of 8");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_bucket_is_named() {
    let server = GcsServer::start().unwrap();
    let gcs = open("gs://nosuchbucket/x", &server.profile())
        .await
        .unwrap();
    let says = "create the bucket first";
    refused(gcs.stat(b"", false).await, ErrorKind::NotFound, says);
    refused(put(&*gcs, b"file", b"x").await, ErrorKind::NotFound, says);
    let mut listing = gcs.list(b"", false).await.unwrap();
    refused(listing.next_page().await, ErrorKind::NotFound, says);
}

#[tokio::test(flavor = "multi_thread")]
async fn names_that_look_like_addresses_are_names() {
    let server = GcsServer::start().unwrap();
    let gcs = open_in(&server, "").await;
    let names = [
        "compose",
        "a/acl",
        "a/rewriteTo/b/testbed/o/c",
        "o/compose",
        "..a/../b",
        " a ",
        "a//b",
        "%2F",
        "a?alt=media",
        "a#generation",
        "\u{1f600}",
        "a\tb",
        "a\u{7f}",
        "--posthaste-",
    ];
    for name in names {
        put(&*gcs, name.as_bytes(), name.as_bytes()).await.unwrap();
    }
    let (from, size) = (gcs.locate(names[2].as_bytes()), names[2].len());
    let spec = spec(size, "test:copy");
    let copied = gcs.copy_within(&from, b"copy", &spec);
    copied.await.unwrap();
    assert_eq!(get(&*gcs, b"copy").await.unwrap(), names[2].as_bytes());
    gcs.remove(b"copy").await.unwrap();
    for name in names {
        let found = get(&*gcs, name.as_bytes()).await.unwrap();
        assert_eq!(found, name.as_bytes(), "{name}");
    }
    for name in names {
        gcs.remove(name.as_bytes()).await.unwrap();
    }
    assert_eq!(
        all_of(gcs.list_tree(b"").await.unwrap().unwrap())
            .await
            .len(),
        0
    );
    let long = vec![b'x'; 1025];
    for name in [&b"a\nb"[..], b"a\rb", b"caf\xe9", b".", b"..", &long] {
        let outcome = put(&*gcs, name, b"x").await;
        refused(outcome, ErrorKind::Unsupported, "rename it");
    }
}

async fn all_of(mut listing: Box<dyn Listing>) -> Vec<Entry> {
    let mut entries = Vec::new();
    loop {
        let page = listing.next_page().await.unwrap();
        if page.is_empty() {
            return entries;
        }
        entries.extend(page);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_large_tree_is_listed_whole_and_from_a_mark() {
    let mut wanted = BTreeMap::new();
    let flat = (0..2_500).map(|n| format!("flat/img-{n:07}"));
    let deep = (0..1_200).map(|n| format!("run-{}/out/step{}/x{n}", n % 3, n / 400));
    for name in flat.chain(deep) {
        for (slash, _) in name.match_indices('/') {
            wanted.insert(name[..slash].to_owned(), Kind::Directory);
        }
        wanted.insert(name, Kind::File);
    }
    let server = GcsServer::start_filled(|bucket| {
        for (name, kind) in &wanted {
            match kind {
                Kind::Directory => fs::create_dir_all(bucket.join(name)).unwrap(),
                Kind::File | Kind::Link | Kind::Special => {
                    fs::write(bucket.join(name), b"x").unwrap();
                }
            }
        }
    });
    let server = server.unwrap();
    let gcs = open_in(&server, "").await;
    let note = |found: &mut BTreeMap<String, Kind>, page: Vec<Entry>| {
        for entry in page {
            let name = String::from_utf8(entry.name).unwrap();
            let is_new = found.insert(name.clone(), entry.kind).is_none();
            assert!(is_new || entry.kind == Kind::Directory, "{name} twice");
        }
    };
    let mut found = BTreeMap::new();
    let entries = all_of(gcs.list_tree(b"").await.unwrap().unwrap()).await;
    assert!(
        entries
            .iter()
            .all(|entry| entry.kind == Kind::Directory || entry.mtime.is_some())
    );
    note(&mut found, entries);
    assert!(found == wanted, "{} of {}", found.len(), wanted.len());

    let mut found = BTreeMap::new();
    let mut listing = gcs.list_tree(b"").await.unwrap().unwrap();
    let mark = loop {
        let page = listing.next_page().await.unwrap();
        assert!(!page.is_empty(), "all was listed, and no mark came");
        note(&mut found, page);
        if let Some(mark) = listing.mark() {
            break mark;
        }
    };
    drop(listing);
    assert!(found.len() < wanted.len(), "the mark came at the end");
    note(
        &mut found,
        all_of(gcs.list_on(b"", &mark).await.unwrap()).await,
    );
    assert!(found == wanted, "{} of {}", found.len(), wanted.len());
    let names = all_of(gcs.list(b"flat", false).await.unwrap()).await;
    assert_eq!(names.len(), 2_500);
}

/// Returns bytes that differ from segment to segment.
fn segment(index: usize) -> Bytes {
    let byte = u8::try_from(index % 251).unwrap();
    let mut bytes = vec![byte; 8 * MEBI];
    bytes[index] ^= 1;
    bytes.into()
}

fn body(bytes: Bytes) -> ByteStream {
    Box::pin(stream::iter([Ok(bytes)]))
}

async fn sum_of(mut body: ByteStream) -> Result<Checksum> {
    let mut summer = posthaste_endpoint::Summer::default();
    while let Some(bytes) = body.next().await {
        summer.add(&bytes?);
    }
    Ok(summer.sum())
}

#[tokio::test(flavor = "multi_thread")]
async fn more_segments_than_one_composition_takes_are_composed_in_a_tree() {
    const SEGMENTS: usize = 34;
    let server = GcsServer::start().unwrap();
    let gcs = open_in(&server, "composed").await;
    let size = (SEGMENTS - 1) * 8 * MEBI + 7;
    let writer = gcs
        .create(b"large", &spec(size, "test:tree"))
        .await
        .unwrap();
    assert_eq!(writer.segment_size(), 8 * MEBI as u64);
    let mut whole = Checksum::EMPTY;
    for index in 0..SEGMENTS {
        let start = index * 8 * MEBI;
        let bytes = segment(index).slice(..(size - start).min(8 * MEBI));
        let range = start as u64..(start + bytes.len()) as u64;
        whole = whole.then(Checksum::of(&bytes), bytes.len() as u64);
        writer
            .write(index as u64, range, body(bytes))
            .await
            .unwrap();
    }
    let wrong = writer.finish(Checksum::of(b"other")).await;
    refused(wrong, ErrorKind::Corrupt, "don't add up");
    assert!(
        gcs.stat(b"large", false).await.unwrap().is_none(),
        "it has its name"
    );
    writer.finish(whole).await.unwrap();
    let entry = gcs.stat(b"large", false).await.unwrap().unwrap();
    assert_eq!(entry.size, size as u64);
    let reader = gcs.open(b"large", &entry).await.unwrap();
    let read = reader.read(0..entry.size).await.unwrap();
    assert_eq!(sum_of(read).await.unwrap(), whole);
    reader.confirm().await.unwrap();
    let left = all_of(gcs.list_tree(b"").await.unwrap().unwrap()).await;
    assert_eq!(left.len(), 1, "components are left over: {left:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_component_that_is_gone_or_another_is_sent_again() {
    let server = GcsServer::start().unwrap();
    let gcs = open_in(&server, "gone").await;
    let spec = spec(30 * MEBI, "test:gone");
    let writer = gcs.create(b"large", &spec).await.unwrap();
    for index in [0, 1, 2] {
        let range = index * 8 * MEBI as u64..(index + 1) * 8 * MEBI as u64;
        let bytes = segment(usize::try_from(index).unwrap());
        writer.write(index, range, body(bytes)).await.unwrap();
    }
    drop(writer);
    let mut names: Vec<_> = all_of(gcs.list(b"", false).await.unwrap()).await;
    names.sort_by(|a, b| a.name.cmp(&b.name));
    assert_eq!(names.len(), 3, "{names:?}");
    gcs.remove(&names[0].name).await.unwrap();
    put(&*gcs, &names[1].name, &segment(1)).await.unwrap();
    let writer = gcs.create(b"large", &spec).await.unwrap();
    assert_eq!(writer.kept(), [(2, Checksum::of(&segment(2)))]);
    writer.discard().await;
    let left = all_of(gcs.list_tree(b"").await.unwrap().unwrap()).await;
    assert!(left.is_empty(), "components are left over: {left:?}");
}

/// Reads in ranges, then confirms the file.
async fn read_through(reader: &dyn Reader, step: u64) -> Result<()> {
    let size = reader.entry().size;
    // The last first: order must not matter.
    for start in (0..size.div_ceil(step)).rev().map(|index| index * step) {
        sum_of(reader.read(start..(start + step).min(size)).await?).await?;
    }
    reader.confirm().await
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_damaged_in_the_store_is_noticed_while_it_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let server = GcsServer::start_on_disk(folder.path()).unwrap();
    let gcs = open_in(&server, "").await;
    let bytes = segment(3);
    for name in ["small", "large"] {
        put(&*gcs, name.as_bytes(), &bytes).await.unwrap();
        let entry = gcs.stat(name.as_bytes(), false).await.unwrap().unwrap();
        let reader = gcs.open(name.as_bytes(), &entry).await.unwrap();
        read_through(&*reader, 3_000_000).await.unwrap();
        let path = server.bucket_folder().join(name);
        let file = fs::OpenOptions::new().write(true).open(path).unwrap();
        std::os::unix::fs::FileExt::write_all_at(&file, b"!", 5_000_000).unwrap();
    }
    let outcome = get(&*gcs, b"small").await;
    refused(outcome, ErrorKind::Corrupt, "the checksum the store keeps");
    let entry = gcs.stat(b"large", false).await.unwrap().unwrap();
    let reader = gcs.open(b"large", &entry).await.unwrap();
    let outcome = read_through(&*reader, 3_000_000).await;
    refused(outcome, ErrorKind::Corrupt, "the checksum the store keeps");
}
