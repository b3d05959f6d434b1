//! Servers that answer oddly, each as some are known to: what they send is right or refused, never taken for what it
//! is not.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{fmt::Write as _, net::SocketAddr, sync::Arc};

use futures_util::TryStreamExt;
use posthaste_endpoint::{
    Endpoint, Entry, Error, ErrorKind, Kind, Result,
    s3::{self, Store},
};
use posthaste_testbed::{AzureServer, conformance::open};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    task::JoinSet,
};

/// Bytes of the one object that there is.
const SIZE: usize = 20 << 20;
/// What an object of that size tells beside its bytes.
const ABOUT: &str = "etag: \"e-3\"\r\nlast-modified: Wed, 01 Jan 2025 00:00:00 GMT\r\n";

/// A request: its method, its path with the query, and the range it asks for.
struct Asked {
    method: String,
    target: String,
    range: Option<(usize, usize)>,
}

/// A status, headers with their ends of lines, and a body, which is left out after HEAD.
struct Answer {
    status: u16,
    headers: String,
    body: Vec<u8>,
}

impl Answer {
    fn new(status: u16, headers: &str, body: impl Into<Vec<u8>>) -> Self {
        Self {
            status,
            headers: headers.to_owned(),
            body: body.into(),
        }
    }

    /// With the length that its body has.
    fn sized(status: u16, headers: &str, body: impl Into<Vec<u8>>) -> Self {
        let body = body.into();
        let headers = format!("{headers}content-length: {}\r\n", body.len());
        Self::new(status, &headers, body)
    }
}

/// A server that answers as it is told, on one connection for each request.
struct Server {
    address: SocketAddr,
    _chores: JoinSet<()>,
}

impl Server {
    async fn start(answers: impl Fn(&Asked) -> Answer + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let answers = Arc::new(answers);
        let mut chores = JoinSet::new();
        chores.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let answers = Arc::clone(&answers);
                // Whoever asked may go before the answer has ended.
                connections.spawn(async move {
                    let _ = converse(stream, &*answers).await;
                });
            }
        });
        Self {
            address,
            _chores: chores,
        }
    }

    fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    fn s3(&self) -> Arc<dyn Endpoint> {
        let store = Store {
            endpoint: self.url(),
            region: "us-east-1".to_owned(),
            access_key_id: "key".to_owned(),
            secret_access_key: "secret".to_owned(),
            ca_file: None,
        };
        s3::open_store("b", "t", &store).unwrap()
    }

    async fn azure(&self) -> Arc<dyn Endpoint> {
        let profile = format!(
            "[azure]\nendpoint = \"{}/a\"\naccount = \"a\"\naccount_key = \"{}\"\n",
            self.url(),
            AzureServer::ACCOUNT_KEY
        );
        open("az://b/t", &profile).await.unwrap()
    }

    async fn web(&self) -> Arc<dyn Endpoint> {
        open(&format!("{}/t/", self.url()), "").await.unwrap()
    }
}

async fn converse(
    mut stream: TcpStream,
    answers: &(dyn Fn(&Asked) -> Answer + Send + Sync),
) -> std::io::Result<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await?);
    }
    let head = String::from_utf8(head).unwrap();
    let mut words = head.split(' ');
    let range = head.lines().find_map(|line| {
        let (name, value) = line.split_once(": ")?;
        let is_range = ["range", "x-ms-range"].contains(&&*name.to_ascii_lowercase());
        let (first, last) = value.strip_prefix("bytes=")?.split_once('-')?;
        is_range.then_some((first.parse().ok()?, last.parse().ok()?))
    });
    let asked = Asked {
        method: words.next().unwrap().to_owned(),
        target: words.next().unwrap().to_owned(),
        range,
    };
    let answer = answers(&asked);
    let (status, headers) = (answer.status, answer.headers);
    let mut text =
        format!("HTTP/1.1 {status} So\r\n{headers}connection: close\r\n\r\n").into_bytes();
    if asked.method != "HEAD" {
        text.extend(answer.body);
    }
    stream.write_all(&text).await?;
    stream.shutdown().await
}

/// The bytes of the object: no two places of it are alike.
fn content() -> Vec<u8> {
    (0..SIZE / 4)
        .flat_map(|place| u32::try_from(place).unwrap().to_le_bytes())
        .collect()
}

/// Reads a middle of the object.
async fn read_middle(endpoint: &dyn Endpoint, path: &[u8]) -> Result<Vec<u8>> {
    let entry = endpoint.stat(path, true).await?.unwrap();
    assert_eq!(entry.size, SIZE as u64);
    let reader = endpoint.open(path, &entry).await?;
    let pieces: Vec<_> = reader.read(8 << 20..9 << 20).await?.try_collect().await?;
    Ok(pieces.concat())
}

async fn list(endpoint: &dyn Endpoint) -> Result<Vec<Entry>> {
    let mut listing = endpoint.list_tree(b"").await?.unwrap();
    let mut entries = Vec::new();
    loop {
        let page = listing.next_page().await?;
        if page.is_empty() {
            return Ok(entries);
        }
        entries.extend(page);
    }
}

fn says(outcome: Result<impl Sized>, words: &str) -> Error {
    let Err(error) = outcome else {
        panic!("it passed, where \"{words}\" was to be said");
    };
    assert!(error.to_string().contains(words), "{error}");
    error
}

/// A page of keys below `t/`, each of so many bytes, and what else it says.
fn page(keys: &[(&str, usize)], more: &str) -> Answer {
    let mut text = format!("<ListBucketResult>{more}");
    for (key, size) in keys {
        let _ = write!(
            text,
            "<Contents><Key>t/{key}</Key><Size>{size}</Size><ETag>\"e\"</ETag></Contents>"
        );
    }
    Answer::sized(200, "", text + "</ListBucketResult>")
}

/// A store of one object, `t/big`, which answers GET of it so.
async fn store(get: impl Fn(&Asked, Vec<u8>) -> Answer + Send + Sync + 'static) -> Server {
    Server::start(move |asked| {
        let (path, _) = asked.target.split_once('?').unwrap_or((&asked.target, ""));
        match (&*asked.method, path.ends_with("/t/big")) {
            (_, false) => Answer::sized(404, "", ""),
            ("HEAD", true) => Answer::sized(200, ABOUT, content()),
            _ => get(asked, content()),
        }
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_sends_the_whole_for_a_range_is_read_right() {
    let server = store(|_, content| Answer::sized(200, ABOUT, content)).await;
    let whole = content();
    for endpoint in [server.s3(), server.azure().await] {
        let read = read_middle(&*endpoint, b"big").await.unwrap();
        assert!(read == whole[8 << 20..9 << 20], "other bytes");
    }
    let web = server.web().await;
    assert!(read_middle(&*web, b"big").await.unwrap() == whole[8 << 20..9 << 20]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_sends_another_range_is_refused() {
    let server = store(|asked, content| {
        let (first, last) = asked.range.unwrap_or((0, SIZE - 1));
        let headers = format!("{ABOUT}content-range: bytes 0-{}/{SIZE}\r\n", last - first);
        Answer::sized(206, &headers, &content[..=last - first])
    })
    .await;
    for endpoint in [server.s3(), server.azure().await, server.web().await] {
        says(read_middle(&*endpoint, b"big").await, "were asked for");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_does_not_say_which_range_it_sends_is_refused() {
    let server = store(|asked, content| {
        let (first, last) = asked.range.unwrap_or((0, SIZE - 1));
        Answer::sized(206, ABOUT, &content[..=last - first])
    })
    .await;
    for endpoint in [server.s3(), server.azure().await] {
        says(read_middle(&*endpoint, b"big").await, "which bytes");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_size_that_is_not_told_is_not_zero() {
    let server = Server::start(|asked| {
        let chunked = format!("{ABOUT}transfer-encoding: chunked\r\n");
        match asked.target.ends_with("/t/big") {
            true => Answer::new(200, &chunked, "5\r\nhello\r\n0\r\n\r\n"),
            false => Answer::sized(404, "", ""),
        }
    })
    .await;
    for endpoint in [server.s3(), server.azure().await, server.web().await] {
        let error = says(endpoint.stat(b"big", true).await, "how long it is");
        assert_eq!(error.kind(), ErrorKind::Unsupported);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_is_longer_than_said_is_no_file() {
    let server = Server::start(|asked| match &*asked.method {
        "HEAD" => Answer::sized(200, ABOUT, [0; 100]),
        _ => {
            let chunked = format!("{ABOUT}transfer-encoding: chunked\r\n");
            let body = format!("{:x}\r\n{}\r\n0\r\n\r\n", 5000, "x".repeat(5000));
            Answer::new(200, &chunked, body)
        }
    })
    .await;
    let web = server.web().await;
    let entry = web.stat(b"x.csv", true).await.unwrap().unwrap();
    assert_eq!(entry.size, 100);
    let error = says(web.get(b"x.csv", &entry).await, "longer");
    assert_eq!(error.kind(), ErrorKind::Changed);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_listing_that_has_more_and_does_not_say_where_is_not_all() {
    for more in [
        "<IsTruncated>true</IsTruncated>",
        "<IsTruncated>true</IsTruncated><NextContinuationToken></NextContinuationToken>",
    ] {
        let server = Server::start(move |_| page(&[("a", 1), ("b", 1)], more)).await;
        says(list(&*server.s3()).await, "more keys");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_listing_that_comes_again_and_again_ends() {
    let more = "<IsTruncated>true</IsTruncated><NextContinuationToken>t</NextContinuationToken>";
    let server = Server::start(move |_| page(&[("a", 1)], more)).await;
    assert!(list(&*server.s3()).await.is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_listing_without_sizes_is_refused() {
    let keys = "<Contents><Key>t/a</Key></Contents>";
    let server = Server::start(move |_| page(&[], keys)).await;
    says(list(&*server.s3()).await, "no size");
}

#[tokio::test(flavor = "multi_thread")]
async fn content_under_a_key_that_ends_with_a_slash_is_listed() {
    let server = Server::start(|_| page(&[("d/", 9), ("e/", 0), ("f", 1)], "")).await;
    let entries = list(&*server.s3()).await.unwrap();
    let found: Vec<_> = entries
        .iter()
        .map(|entry| (String::from_utf8_lossy(&entry.name), entry.kind, entry.size))
        .collect();
    let wanted = [
        ("d".into(), Kind::Directory, 0),
        ("d/".into(), Kind::File, 9),
        ("e".into(), Kind::Directory, 0),
        ("f".into(), Kind::File, 1),
    ];
    assert_eq!(found, wanted);
}
