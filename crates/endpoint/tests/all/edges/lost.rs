//! Last steps of writes that succeed, while their answers are lost or wrong: a check shows whether
//! the object is complete, and whether it is ours.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    sync::{Arc, Mutex},
};

use bytes::Bytes;
use futures_util::stream;
use md5::{Digest as _, Md5};
use posthaste_endpoint::{Checksum, Condition, Endpoint, ErrorKind, FileSpec, FileTime, Result};
use posthaste_testbed::{
    noise,
    odd::{Answer, Asked, Server},
};
use serde_json::{Value, json};

use crate::edges::{
    azure, gcs, s3,
    table::{End, shown},
};

/// Bytes of the file: more than one segment, except where segments are composed.
const SIZE: usize = 9 << 20;
const SIZE_COMPOSED: usize = 1 << 20;

/// Answer to the last step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Last {
    /// Connection ends before the answer.
    Lost,
    /// Gateway gave up waiting.
    Late,
    /// Success at first, and an error after a long time.
    Failed,
    /// Answer like to a repeated request: there is nothing to finish.
    Gone,
}

const ENDINGS: [Last; 4] = [Last::Lost, Last::Late, Last::Failed, Last::Gone];

/// Owner of the object under the name at the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Whose {
    Ours,
    /// Another writer, with the same length.
    Anothers,
    /// Nobody: the last step was not done.
    Nobodys,
}

/// Requests that a store received.
#[derive(Default)]
struct Shelf {
    segments: BTreeMap<String, Vec<u8>>,
    /// Headers with the metadata.
    kept: String,
    object: Option<Vec<u8>>,
    resource: Value,
}

fn content(size: usize) -> Vec<u8> {
    noise(0, size)
}

fn spec(size: usize) -> FileSpec {
    FileSpec {
        size: size as u64,
        mtime: Some(FileTime {
            secs: 1_600_000_000,
            nanos: 5,
        }),
        mode: Some(0o640),
        origin: "test:lost".into(),
        version: None,
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Writes the file in segments.
async fn write(endpoint: &dyn Endpoint, size: usize) -> Result<()> {
    let (content, spec) = (Bytes::from(content(size)), spec(size));
    let writer = endpoint.create(b"big", &spec).await?;
    let step = writer.segment_size();
    for index in 0..spec.size.div_ceil(step) {
        let range = index * step..((index + 1) * step).min(spec.size);
        let place = |at: u64| usize::try_from(at).unwrap();
        let bytes = content.slice(place(range.start)..place(range.end));
        let body = stream::iter([Ok(bytes)]);
        writer.write(index, range, Box::pin(body)).await?;
    }
    let finished = writer.finish(Checksum::of(&content)).await;
    writer.discard().await;
    finished
}

/// Returns the value of a query's `name`.
fn asked_for<'a>(asked: &'a Asked, name: &str) -> Option<&'a str> {
    let (_, query) = asked.target.split_once('?')?;
    let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    Some(pairs.find(|(found, _)| *found == name)?.1)
}

/// Returns the headers of `asked` with metadata.
fn kept_in(asked: &Asked, prefix: &str) -> String {
    let kept = asked.headers.iter();
    let kept = kept.filter(|(name, _)| name.starts_with(prefix));
    kept.fold(String::new(), |text, (name, value)| {
        text + name + ": " + value + "\r\n"
    })
}

fn answer(last: Last, gone: Answer) -> Answer {
    match last {
        Last::Lost => Answer::lost(),
        Last::Late => Answer::sized(504, "", "<html>too late</html>"),
        Last::Failed => {
            let error = "<Error><Code>InternalError</Code><Message>try again</Message></Error>";
            Answer::sized(200, "", " ".repeat(5000) + error)
        }
        Last::Gone => gone,
    }
}

/// Answers like an S3 store without checksums.
fn ask_s3(shelf: &mut Shelf, asked: &Asked, (last, whose): (Last, Whose)) -> Answer {
    match (&*asked.method, asked_for(asked, "uploadId")) {
        ("POST", None) => {
            shelf.kept = kept_in(asked, "x-amz-meta-");
            let begun = "<InitiateMultipartUploadResult><UploadId>u</UploadId>\
                </InitiateMultipartUploadResult>";
            Answer::sized(200, "", begun)
        }
        ("PUT", Some(_)) if asked.header("x-amz-trailer").is_some() => Answer::sized(501, "", ""),
        ("PUT", Some(_)) => {
            let digest = Md5::digest(&asked.body);
            let number: usize = asked_for(asked, "partNumber").unwrap().parse().unwrap();
            let number = format!("{number:05}");
            shelf.segments.insert(number, digest.to_vec());
            Answer::sized(200, &format!("etag: \"{}\"\r\n", hex(&digest)), "")
        }
        ("POST", Some(_)) => {
            let mut digests: Vec<u8> = shelf.segments.values().flatten().copied().collect();
            if whose == Whose::Anothers {
                digests.push(0);
            }
            shelf.object = (whose != Whose::Nobodys).then_some(digests);
            let gone = "<Error><Code>NoSuchUpload</Code></Error>";
            answer(last, Answer::sized(404, "", gone))
        }
        ("HEAD", None) => match &shelf.object {
            Some(digests) => {
                let (etag, count) = (hex(&Md5::digest(digests)), shelf.segments.len());
                let headers = format!("etag: \"{etag}-{count}\"\r\n{}", shelf.kept);
                Answer::sized(200, &headers, vec![0; SIZE])
            }
            None => Answer::sized(404, "", ""),
        },
        _ => Answer::sized(204, "", ""),
    }
}

fn ask_azure(shelf: &mut Shelf, asked: &Asked, (last, whose): (Last, Whose)) -> Answer {
    match (&*asked.method, asked_for(asked, "comp")) {
        ("PUT", Some("block")) => Answer::sized(201, "", ""),
        ("PUT", Some("blocklist")) if shelf.object.is_none() => {
            shelf.kept = kept_in(asked, "x-ms-meta-");
            if whose == Whose::Anothers {
                shelf.kept = shelf.kept.replace("crc64nvme: ", "crc64nvme: AAAA");
            }
            shelf.object = (whose != Whose::Nobodys).then(Vec::new);
            answer(last, gone_from_azure())
        }
        ("PUT", Some(_)) => gone_from_azure(),
        ("HEAD", None) if shelf.object.is_some() => Answer::sized(
            200,
            &format!("etag: \"e\"\r\n{}", shelf.kept),
            vec![0; SIZE],
        ),
        _ => Answer::sized(404, "", ""),
    }
}

fn gone_from_azure() -> Answer {
    Answer::sized(400, "x-ms-error-code: InvalidBlockList\r\n", "")
}

fn ask_gcs(shelf: &mut Shelf, asked: &Asked, (last, whose): (Last, Whose)) -> Answer {
    let told = |resource: &Value| Answer::sized(200, "", resource.to_string());
    let is_final = asked.target.contains("/o/t%2Fbig");
    match &*asked.method {
        "POST" if asked.target.starts_with("/upload") => {
            let body = String::from_utf8_lossy(&asked.body).into_owned();
            let text = body.split("\r\n\r\n").nth(1).unwrap();
            let text = text.split("\r\n--").next().unwrap();
            let mut resource: Value = serde_json::from_str(text).unwrap();
            resource["size"] = json!(SIZE_COMPOSED.to_string());
            resource["generation"] = json!("1");
            shelf.resource = resource.clone();
            told(&resource)
        }
        // With one segment, the composed object has its checksum.
        "POST" if is_final => {
            let order: Value = serde_json::from_slice(&asked.body).unwrap();
            shelf.resource["metadata"] = order["destination"]["metadata"].clone();
            if whose == Whose::Anothers {
                shelf.resource["crc32c"] = json!("AAAAAA==");
            }
            shelf.object = (whose != Whose::Nobodys).then(Vec::new);
            answer(last, Answer::sized(404, "", "No such object"))
        }
        "GET" if is_final && shelf.object.is_some() => told(&shelf.resource),
        "GET" if !is_final => Answer::sized(200, "", "{}"),
        _ => Answer::sized(404, "", "No such object"),
    }
}

type Ask = fn(&mut Shelf, &Asked, (Last, Whose)) -> Answer;

async fn store(ask: Ask, last: Last, whose: Whose) -> Server {
    let shelf = Arc::new(Mutex::new(Shelf::default()));
    Server::start(move |asked| ask(&mut shelf.lock().unwrap(), asked, (last, whose))).await
}

/// Writes to each store with this answer to the last step.
async fn written(last: Last, whose: Whose) -> Vec<Result<()>> {
    let [of_s3, of_azure, of_gcs] = [
        store(ask_s3, last, whose).await,
        store(ask_azure, last, whose).await,
        store(ask_gcs, last, whose).await,
    ];
    vec![
        write(&*s3(&of_s3), SIZE).await,
        write(&*azure(&of_azure).await, SIZE).await,
        write(&*gcs(&of_gcs).await, SIZE_COMPOSED).await,
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn an_object_is_whole_though_the_answer_to_the_last_step_is_lost() {
    for last in ENDINGS {
        for outcome in written(last, Whose::Ours).await {
            assert!(outcome.is_ok(), "{last:?}: {}", outcome.unwrap_err());
        }
    }
    shown(
        "S3, Azure, Google",
        "the last step is done, and its answer is lost or says otherwise",
        End::Right,
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_object_of_anothers_is_not_taken_for_ours() {
    for whose in [Whose::Anothers, Whose::Nobodys] {
        for last in [Last::Lost, Last::Late, Last::Gone] {
            for outcome in written(last, whose).await {
                assert!(outcome.is_err(), "{last:?} {whose:?}");
            }
        }
    }
    shown(
        "S3, Azure, Google",
        "the answer to the last step is lost, and another's object is there",
        End::Refused,
    );
}

/// Starts a store that accepts one small object if nothing is there, and loses the answer.
async fn taker(is_ours: bool) -> Server {
    let kept = Mutex::new(None);
    Server::start(move |asked| {
        let mut kept = kept.lock().unwrap();
        match (&*asked.method, &*kept) {
            ("PUT", None) => {
                let headers = kept_in(asked, "x-amz-meta-") + &kept_in(asked, "x-ms-meta-");
                let bytes = if is_ours { "bytes" } else { "other" };
                *kept = Some((headers + "etag: \"e-1\"\r\n", bytes));
                Answer::lost()
            }
            ("PUT", Some(_)) => Answer::sized(412, "", ""),
            (_, Some((headers, bytes))) => Answer::sized(200, headers, *bytes),
            (_, None) => Answer::sized(404, "", ""),
        }
    })
    .await
}

async fn claim(endpoint: &dyn Endpoint) -> Result<()> {
    let bytes = Bytes::from_static(b"bytes");
    let (spec, sum) = (spec(bytes.len()), Checksum::of(&bytes));
    let put = endpoint.put_if(b"claim", &spec, vec![bytes], sum, &Condition::Absent);
    put.await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_first_write_whose_answer_is_lost_is_known_again() {
    for is_ours in [true, false] {
        let stores = [taker(is_ours).await, taker(is_ours).await];
        for endpoint in [s3(&stores[0]), azure(&stores[1]).await] {
            assert_eq!(claim(&*endpoint).await.is_ok(), is_ours);
            // The later writer gets the error, whatever object is there.
            let late = claim(&*endpoint).await.unwrap_err();
            assert_eq!(late.kind(), ErrorKind::Conflict);
        }
    }
    shown(
        "S3, Azure",
        "the answer to a write where nothing is to be is lost",
        End::Right,
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_error_inside_of_a_success_is_no_success() {
    let late = " ".repeat(5000) + "<Error><Code>SlowDown</Code></Error>";
    for (body, kind) in [
        (late, ErrorKind::Busy),
        ("<html>all is well</html>".to_owned(), ErrorKind::Other),
        (String::new(), ErrorKind::Other),
    ] {
        let server = Server::start(move |_| Answer::sized(200, "", body.clone())).await;
        let endpoint = s3(&server);
        let copied = endpoint.copy_within(b"b/from", b"to", &spec(5)).await;
        assert_eq!(copied.unwrap_err().kind(), kind);
    }
    shown(
        "S3",
        "an answer begins as a success and tells of an error",
        End::Refused,
    );
}
