//! Stores and web servers with unexpected answers.

use std::fmt::Write as _;

use futures_util::TryStreamExt;
use posthaste_endpoint::{BodySum, Endpoint, Entry, ErrorKind, Kind, Result};
use posthaste_testbed::{
    noise,
    odd::{Answer, Asked, Server},
};

use crate::edges::{
    azure, put, s3, says,
    table::{End, shown},
    web,
};

/// Bytes of the only object.
const SIZE: usize = 20 << 20;
/// Headers of an object of that size.
const ABOUT: &str = "etag: \"e-3\"\r\nlast-modified: Wed, 01 Jan 2025 00:00:00 GMT\r\n";

/// Returns the bytes of the object: no two places of it are alike.
fn content() -> Vec<u8> {
    noise(0, SIZE)
}

/// Reads a middle of the object.
async fn read_middle(endpoint: &dyn Endpoint, path: &[u8]) -> Result<Vec<u8>> {
    let entry = endpoint.stat(path, true).await?.unwrap();
    assert_eq!(entry.size, SIZE as u64);
    let reader = endpoint.open(path, &entry).await?;
    let pieces: Vec<_> = reader.read(8 << 20..9 << 20).await?.try_collect().await?;
    Ok(pieces.concat())
}

pub async fn list(endpoint: &dyn Endpoint) -> Result<Vec<Entry>> {
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

/// Answers like a store that has stored the body, with its checksum.
pub fn stored(asked: &Asked) -> Answer {
    let sum = "x-amz-checksum-crc64nvme";
    let told = asked.header(sum).unwrap_or_default();
    Answer::sized(200, &format!("etag: \"e\"\r\n{sum}: {told}\r\n"), "")
}

/// Returns a page of keys below `t/`, each with its size, and further elements.
pub fn page(keys: &[(&str, usize)], more: &str) -> Answer {
    let mut text = format!("<ListBucketResult>{more}");
    for (key, size) in keys {
        let _ = write!(
            text,
            "<Contents><Key>t/{key}</Key><Size>{size}</Size><ETag>\"e\"</ETag></Contents>"
        );
    }
    Answer::sized(200, "", text + "</ListBucketResult>")
}

/// Starts a store of one object, `t/big`, that answers its GET this way.
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
    for endpoint in [s3(&server), azure(&server).await] {
        let read = read_middle(&*endpoint, b"big").await.unwrap();
        assert!(read == whole[8 << 20..9 << 20], "other bytes");
    }
    let web = web(&server).await;
    assert!(read_middle(&*web, b"big").await.unwrap() == whole[8 << 20..9 << 20]);
    shown("S3, Azure, web", "the whole comes for a range", End::Right);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_large_object_is_held_to_the_md5_that_the_store_tells() {
    let md5 = |bytes: &[u8]| BodySum::md5_of(bytes).to_base64();
    let right = md5(&content());
    for (told, is_right) in [(right, true), (md5(b"other"), false)] {
        let BodySum::Md5(digest) = BodySum::md5_from_base64(&told).unwrap() else {
            panic!("it is an MD5");
        };
        let etag: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        let about = format!("etag: \"{etag}\"\r\ncontent-md5: {told}\r\n");
        let server = Server::start(move |asked| match asked.range {
            Some((first, last)) => {
                let range = format!("{about}content-range: bytes {first}-{last}/{SIZE}\r\n");
                Answer::sized(206, &range, &content()[first..=last])
            }
            None => Answer::sized(200, &about, content()),
        })
        .await;
        for endpoint in [s3(&server), azure(&server).await] {
            let entry = endpoint.stat(b"big", true).await.unwrap().unwrap();
            let reader = endpoint.open(b"big", &entry).await.unwrap();
            let whole = SIZE as u64;
            // Lanes read in parallel.
            for range in [9 << 20..whole, 0..3 << 20, 3 << 20..9 << 20] {
                reader.confirm().await.unwrap();
                let body = reader.read(range).await.unwrap();
                body.try_for_each(async |_| Ok(())).await.unwrap();
            }
            match reader.confirm().await {
                Ok(()) => assert!(is_right),
                Err(error) => assert!(!is_right && error.kind() == ErrorKind::Corrupt, "{error}"),
            }
        }
    }
    shown(
        "S3, Azure",
        "a large object is not what its MD5 says",
        End::Refused,
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_sends_another_range_is_refused() {
    let server = store(|asked, content| {
        let (first, last) = asked.range.unwrap_or((0, SIZE - 1));
        let headers = format!("{ABOUT}content-range: bytes 0-{}/{SIZE}\r\n", last - first);
        Answer::sized(206, &headers, &content[..=last - first])
    })
    .await;
    for endpoint in [s3(&server), azure(&server).await, web(&server).await] {
        says(read_middle(&*endpoint, b"big").await, "were asked for");
    }
    shown("S3, Azure, web", "another range comes", End::Refused);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_does_not_say_which_range_it_sends_is_refused() {
    let server = store(|asked, content| {
        let (first, last) = asked.range.unwrap_or((0, SIZE - 1));
        Answer::sized(206, ABOUT, &content[..=last - first])
    })
    .await;
    for endpoint in [s3(&server), azure(&server).await] {
        says(read_middle(&*endpoint, b"big").await, "which bytes");
    }
    shown(
        "S3, Azure",
        "a range comes that does not say which",
        End::Refused,
    );
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
    for endpoint in [s3(&server), azure(&server).await] {
        let error = says(endpoint.stat(b"big", true).await, "how long it is");
        assert_eq!(error.kind(), ErrorKind::Unsupported);
    }
    shown("S3, Azure", "a size is not told", End::Refused);
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
    let web = web(&server).await;
    let entry = web.stat(b"x.csv", true).await.unwrap().unwrap();
    assert_eq!(entry.size, 100);
    let error = says(web.get(b"x.csv", &entry).await, "longer");
    assert_eq!(error.kind(), ErrorKind::Changed);
    shown("web", "a body is longer than was said", End::Refused);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_listing_that_has_more_and_does_not_say_where_is_not_all() {
    for more in [
        "<IsTruncated>true</IsTruncated>",
        "<IsTruncated>true</IsTruncated><NextContinuationToken></NextContinuationToken>",
    ] {
        let server = Server::start(move |_| page(&[("a", 1), ("b", 1)], more)).await;
        says(list(&*s3(&server)).await, "more keys");
    }
    shown("S3", "a page has more and does not say where", End::Refused);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_listing_that_contradicts_itself_is_refused() {
    for (more, words) in [
        ("<KeyCount>3</KeyCount>", "says that it has 3 keys"),
        ("<KeyCount>1</KeyCount>", "says that it has 1 keys"),
        (
            "<IsTruncated>false</IsTruncated><NextContinuationToken>t</NextContinuationToken>",
            "both",
        ),
        (
            "<IsTruncated>false</IsTruncated><NextMarker>t/b</NextMarker>",
            "both",
        ),
    ] {
        let server = Server::start(move |_| page(&[("a", 1), ("b", 1)], more)).await;
        says(list(&*s3(&server)).await, words);
    }
    shown("S3", "a page contradicts itself", End::Refused);
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_that_no_xml_can_hold_are_asked_for_and_read_encoded() {
    let server = Server::start(|asked| match asked.target.contains("list-type=2") {
        true if asked.target.contains("encoding-type=url") => page(
            &[("a%01b%2Fc", 1), ("d+e%0A", 1)],
            "<EncodingType>url</EncodingType>",
        ),
        true => Answer::sized(500, "", ""),
        false => Answer::sized(200, ABOUT, asked.target.clone()),
    })
    .await;
    let endpoint = s3(&server);
    let entries = list(&*endpoint).await.unwrap();
    let files: Vec<_> = entries
        .iter()
        .filter(|entry| entry.kind == Kind::File)
        .map(|entry| &*entry.name)
        .collect();
    assert_eq!(files, [&b"a\x01b/c"[..], b"d e\n"]);
    let bare = Entry::bare(Vec::new(), Kind::File);
    let whole = endpoint.get(b"a\x01b/c", &bare).await.unwrap();
    assert_eq!(whole.data.concat(), b"/b/t/a%01b/c");
    shown(
        "S3",
        "a key has characters that no XML can hold",
        End::Right,
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_to_a_write_that_says_of_no_object_that_it_is_there_is_refused() {
    for status in [202, 204, 206] {
        let server = Server::start(move |asked| match &*asked.method {
            "PUT" => Answer {
                status,
                ..stored(asked)
            },
            _ => Answer::sized(404, "", ""),
        })
        .await;
        let error = says(put(&*s3(&server), b"x", b"some bytes").await, "no object");
        assert!(error.to_string().contains(&status.to_string()), "{error}");
    }
    shown(
        "S3",
        "a write is answered with a success that says nothing of an object",
        End::Refused,
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_listing_that_comes_again_and_again_ends() {
    let more = "<IsTruncated>true</IsTruncated><NextContinuationToken>t</NextContinuationToken>";
    let server = Server::start(move |_| page(&[("a", 1)], more)).await;
    assert!(list(&*s3(&server)).await.is_err());
    shown("S3", "a page comes again and again", End::Refused);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_listing_without_sizes_is_refused() {
    let keys = "<Contents><Key>t/a</Key></Contents>";
    let server = Server::start(move |_| page(&[], keys)).await;
    says(list(&*s3(&server)).await, "no size");
    shown("S3", "a page has no sizes", End::Refused);
}

#[tokio::test(flavor = "multi_thread")]
async fn content_under_a_key_that_ends_with_a_slash_is_listed() {
    let server = Server::start(|_| page(&[("d/", 9), ("e/", 0), ("f", 1)], "")).await;
    let entries = list(&*s3(&server)).await.unwrap();
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
    shown(
        "S3",
        "content under a key that ends with a slash",
        End::LeftOut,
    );
}
