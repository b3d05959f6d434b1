//! Bodies that differ from the stored file: deferred, changed in transit, compressed.

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use posthaste_endpoint::{Endpoint, Entry, ErrorKind, Kind, Result};
use posthaste_testbed::{
    conformance::open,
    odd::{Answer, Server},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
    task::JoinSet,
};

use crate::edges::{
    azure, azure_at, s3, s3_at, says,
    table::{End, shown},
    web,
};

const ABOUT: &str = "etag: \"e\"\r\n";

/// Reads a whole file, and then its first half by a range.
async fn read(endpoint: &dyn Endpoint, path: &[u8], entry: &Entry) -> [Result<()>; 2] {
    let whole = endpoint.get(path, entry).await.map(drop);
    let reader = endpoint.open(path, entry).await.unwrap();
    let half = reader.read(0..entry.size / 2).await.map(drop);
    [whole, half]
}

/// Starts a server of one file that answers GET with this status and headers.
async fn serve(status: u16, headers: &'static str) -> Server {
    Server::start(move |asked| match &*asked.method {
        "HEAD" => Answer::sized(200, ABOUT, "content"),
        _ => Answer::sized(status, &format!("{ABOUT}{headers}"), "content"),
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_success_that_holds_no_file_is_none() {
    for (status, words, kind) in [
        (202, "taken note", ErrorKind::Busy),
        (203, "a proxy", ErrorKind::Unsupported),
    ] {
        let server = serve(status, "").await;
        for endpoint in [s3(&server), azure(&server).await, web(&server).await] {
            let entry = endpoint.stat(b"x", true).await.unwrap().unwrap();
            for outcome in read(&*endpoint, b"x", &entry).await {
                let error = says(outcome, words);
                assert_eq!(error.kind(), kind);
            }
        }
        let dav = server.url().replace("http", "webdav");
        let dav = open(&format!("{dav}/t/"), "").await.unwrap();
        let entry = web(&server).await.stat(b"x", true).await.unwrap().unwrap();
        says(dav.get(b"x", &entry).await, words);
    }
    let server = Server::start(|_| Answer::sized(202, ABOUT, "content")).await;
    says(web(&server).await.stat(b"x", true).await, "taken note");
    says(web(&server).await.list(b"", true).await, "taken note");
    let stores = "S3, Azure, web, WebDAV";
    shown(stores, "a read is only taken note of", End::Refused);
    shown(
        stores,
        "a proxy says that it changed what it sends",
        End::Refused,
    );
}

/// Starts a store that reports 100 bytes for its one object and sends without end. Returns the
/// bytes it could send before the reader stopped.
async fn endless() -> (String, JoinSet<usize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let mut sending = JoinSet::new();
    sending.spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                head.push(stream.read_u8().await.unwrap());
            }
            let told = "etag: \"e\"\r\nlast-modified: Wed, 01 Jan 2025 00:00:00 GMT\r\n";
            if head.starts_with(b"HEAD") {
                let about = format!("HTTP/1.1 200 OK\r\n{told}content-length: 100\r\n\r\n");
                stream.write_all(about.as_bytes()).await.unwrap();
                continue;
            }
            let about = format!("HTTP/1.1 200 OK\r\n{told}transfer-encoding: chunked\r\n\r\n");
            stream.write_all(about.as_bytes()).await.unwrap();
            let chunk = [b"10000\r\n", &vec![7; 1 << 16][..], b"\r\n"].concat();
            let mut sent = 0;
            // Without an end of its own, up to a limit that fits into memory.
            while sent < 1 << 30 && stream.write_all(&chunk).await.is_ok() {
                sent += chunk.len();
            }
            return sent;
        }
    });
    (url, sending)
}

#[tokio::test(flavor = "multi_thread")]
async fn what_comes_without_end_is_not_gathered() {
    for is_s3 in [true, false] {
        let (url, mut sending) = endless().await;
        let endpoint = match is_s3 {
            true => s3_at(url),
            false => azure_at(&url).await,
        };
        let entry = endpoint.stat(b"x", true).await.unwrap().unwrap();
        assert_eq!(entry.size, 100);
        let error = says(endpoint.get(b"x", &entry).await, "longer");
        assert_eq!(error.kind(), ErrorKind::Changed);
        let sent = sending.join_next().await.unwrap().unwrap();
        assert!(sent < 64 << 20, "{sent} bytes were read of 100");
    }
    shown(
        "S3, Azure",
        "more comes than was told, without end",
        End::Refused,
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_range_that_nobody_asked_for_is_not_the_whole() {
    let server = serve(206, "content-range: bytes 0-6/20\r\n").await;
    let endpoint = web(&server).await;
    let entry = endpoint.stat(b"x", true).await.unwrap().unwrap();
    says(endpoint.get(b"x", &entry).await, "a part");
    shown("web", "a part comes for the whole", End::Refused);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_is_compressed_on_the_way_is_refused() {
    for coding in ["gzip", "deflate", "br", "zstd"] {
        let header = format!("content-encoding: {coding}\r\n");
        let server = serve(200, header.leak()).await;
        let dav = server.url().replace("http", "webdav");
        let dav = open(&format!("{dav}/t/"), "").await.unwrap();
        let web = web(&server).await;
        let entry = web.stat(b"x.csv", true).await.unwrap().unwrap();
        for outcome in read(&*web, b"x.csv", &entry).await {
            let error = says(outcome, coding);
            assert_eq!(error.kind(), ErrorKind::Unsupported);
        }
        says(dav.get(b"x.csv", &entry).await, coding);
        says(web.list(b"", true).await, coding);
    }
    shown(
        "web, WebDAV",
        "a body is compressed that nobody asked to be",
        End::Refused,
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_is_compressed_itself_comes_as_it_is() {
    for (name, header) in [
        ("x.tar.gz", "content-encoding: x-gzip\r\n"),
        ("x.tgz", "content-encoding: gzip\r\n"),
        ("x.Z", "content-encoding: x-compress\r\n"),
        ("x.csv", "content-encoding: identity\r\n"),
    ] {
        let server = serve(200, header).await;
        let endpoint = web(&server).await;
        let entry = endpoint.stat(name.as_bytes(), true).await.unwrap().unwrap();
        let whole = endpoint.get(name.as_bytes(), &entry).await.unwrap();
        assert_eq!(whole.data.concat(), b"content");
    }
    shown(
        "web",
        "a file that is stored compressed comes with its coding",
        End::Right,
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_is_compressed_itself_and_once_more_is_refused() {
    for header in [
        "content-encoding: gzip, gzip\r\n",
        "content-encoding: gzip\r\netag: \"e-gzip\"\r\n",
    ] {
        let server = serve(200, header).await;
        let endpoint = web(&server).await;
        let entry = Entry {
            size: 7,
            ..Entry::bare(b"x.gz".to_vec(), Kind::File)
        };
        says(endpoint.get(b"x.gz", &entry).await, "it compressed");
    }
    shown(
        "web",
        "a file that is stored compressed is compressed once more",
        End::Refused,
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_object_that_is_kept_with_a_coding_comes_as_it_is() {
    let server = serve(200, "content-encoding: gzip\r\n").await;
    for endpoint in [s3(&server), azure(&server).await] {
        let entry = endpoint.stat(b"x", true).await.unwrap().unwrap();
        let whole = endpoint.get(b"x", &entry).await.unwrap();
        assert_eq!(whole.data.concat(), b"content");
    }
    shown("S3, Azure", "an object is kept with a coding", End::Right);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_of_no_length_is_a_file_where_its_end_is_certain() {
    let chunked = "transfer-encoding: chunked\r\n";
    let whole = "7\r\ncontent\r\n0\r\n\r\n";
    for (headers, body) in [
        (chunked.to_owned(), whole),
        // A server without a size for HEAD may report it with a range.
        ("content-range: bytes 0-0/7\r\n".to_owned(), "c"),
    ] {
        let server = Server::start(move |asked| {
            let headers = format!("{ABOUT}{headers}");
            match (&*asked.method, asked.range) {
                ("HEAD", _) => Answer::new(200, ABOUT, ""),
                (_, Some(_)) if body == "c" => Answer::sized(206, &headers, body),
                _ => Answer::new(200, &format!("{ABOUT}{chunked}"), whole),
            }
        })
        .await;
        let endpoint = web(&server).await;
        let entry = endpoint.stat(b"x", true).await.unwrap().unwrap();
        assert_eq!(entry.size, 7);
        let found = endpoint.get(b"x", &entry).await.unwrap();
        assert_eq!(found.data.concat(), b"content");
    }
    shown("web", "a body tells its end and no size", End::Right);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_of_no_length_and_no_end_is_refused() {
    let cut = "7\r\ncontent\r\n";
    for (headers, body, words) in [
        ("", "content", "nor where it ends"),
        ("transfer-encoding: chunked\r\n", cut, ""),
    ] {
        let server = Server::start(move |asked| match &*asked.method {
            "HEAD" => Answer::new(200, ABOUT, ""),
            _ => Answer::new(200, &format!("{ABOUT}{headers}"), body),
        })
        .await;
        says(web(&server).await.stat(b"x", true).await, words);
    }
    shown(
        "web",
        "neither size nor end of a body is told",
        End::Refused,
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_is_made_anew_each_time_is_no_file() {
    let asked = AtomicUsize::new(0);
    let server = Server::start(move |question| match &*question.method {
        "HEAD" => Answer::new(200, "", ""),
        _ => {
            let len = asked.fetch_add(1, SeqCst) + 5;
            let body = format!("{len:x}\r\n{}\r\n0\r\n\r\n", "x".repeat(len));
            Answer::new(200, "transfer-encoding: chunked\r\n", body)
        }
    })
    .await;
    let endpoint = web(&server).await;
    let entry = endpoint.stat(b"x", true).await.unwrap().unwrap();
    says(endpoint.get(b"x", &entry).await, "longer");
    shown(
        "web",
        "a body of no size is of another length each time",
        End::Refused,
    );
}
