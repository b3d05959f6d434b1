//! Stores that keep other bytes than they were sent and return the checksum that came with them,
//! and servers that report digests of what they send.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering::SeqCst},
    },
};

use bytes::Bytes;
use futures_util::TryStreamExt;
use md5::{Digest as _, Md5};
use posthaste_endpoint::{BodySum, Checksum, Crc32cSummer, Endpoint, ErrorKind, Result, StoredSum};
use posthaste_testbed::{
    noise,
    odd::{Answer, Asked, Server},
};
use serde_json::{Value, json};

use crate::edges::{
    azure, gcs, put, s3, says, spec,
    table::{End, shown},
    web, write,
};

const CRC64: &str = "x-amz-checksum-crc64nvme";

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Returns bytes of which no two places are alike.
fn content(size: usize) -> Vec<u8> {
    noise(0, size)
}

/// ETags that a store gives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Tags {
    /// The MD5 of what it keeps, as most do.
    Md5,
    /// As long as one, and of nothing.
    Random,
    /// Of another form.
    Word,
    /// As long as one, of an encrypted object.
    Encrypted,
}

/// What a store does to bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Flips {
    Nothing,
    /// A bit of what it is sent.
    Sent,
    /// A bit of what it puts together or copies itself.
    Own,
}

/// Store that returns the checksum header of each request without having compared it.
struct Shelf {
    flips: Flips,
    tags: Tags,
    /// Objects, each with its ETag and the headers to return.
    objects: BTreeMap<String, (Vec<u8>, String, String)>,
    segments: BTreeMap<String, Vec<u8>>,
    dressed: String,
    count: u64,
    reads: u32,
    /// True if nothing may be removed.
    keeps_all: bool,
    /// True if bytes of another checksum than they come with are refused.
    compares: bool,
}

impl Shelf {
    fn tag(&mut self, bytes: &[u8]) -> String {
        self.count += 1;
        match self.tags {
            Tags::Md5 => hex(&Md5::digest(bytes)),
            Tags::Random | Tags::Encrypted => hex(&Md5::digest(self.count.to_be_bytes())),
            Tags::Word => format!("version-{}", self.count),
        }
    }

    fn told(&self, tag: &str) -> String {
        let kept = match self.tags {
            Tags::Encrypted => "x-amz-server-side-encryption: aws:kms\r\n",
            Tags::Md5 | Tags::Random | Tags::Word => "",
        };
        format!("etag: \"{tag}\"\r\n{kept}")
    }

    fn flipped(&self, bytes: &[u8], when: Flips) -> Vec<u8> {
        let mut bytes = bytes.to_vec();
        let middle = bytes.len() / 2;
        if self.flips == when {
            bytes[middle] ^= 1;
        }
        bytes
    }

    fn ask(&mut self, asked: &Asked) -> Answer {
        let (path, query) = asked.target.split_once('?').unwrap_or((&asked.target, ""));
        let path = path.to_owned();
        match &*asked.method {
            "POST" if query.contains("uploads") => {
                self.dressed = dressed(asked);
                let begun = "<InitiateMultipartUploadResult><UploadId>u</UploadId>\
                    </InitiateMultipartUploadResult>";
                Answer::sized(200, "", begun)
            }
            "POST" => self.complete(path),
            "PUT" if asked.header("x-amz-copy-source").is_some() => self.copy(asked, path),
            // A segment that is streamed with a wrong checksum is taken.
            "PUT" if query.contains("partNumber") => {
                let bytes = self.flipped(&asked.body, Flips::Sent);
                let tag = self.tag(&bytes);
                let number = query.split('&').next().unwrap().to_owned();
                if asked.header("x-amz-trailer").is_none() {
                    self.segments.insert(format!("{number:>20}"), bytes);
                }
                Answer::sized(200, &(self.told(&tag) + &echoed(asked)), "")
            }
            "PUT"
                if self.compares
                    && asked.header(CRC64) != Some(&*Checksum::of(&asked.body).to_base64()) =>
            {
                Answer::sized(400, "", "<Error><Code>BadDigest</Code></Error>")
            }
            "PUT" => {
                let bytes = self.flipped(&asked.body, Flips::Sent);
                let tag = self.tag(&bytes);
                let told = self.told(&tag);
                self.objects
                    .insert(path, (bytes, tag, told.clone() + &dressed(asked)));
                Answer::sized(200, &(told + &echoed(asked)), "")
            }
            "DELETE" if self.keeps_all => Answer::sized(403, "", ""),
            "DELETE" => {
                let kept = self
                    .objects
                    .get(&path)
                    .map(|(_, tag, _)| format!("\"{tag}\""));
                let is_trial = path.ends_with(".posthaste-partial");
                if !is_trial && asked.header("if-match").map(str::to_owned) != kept {
                    return Answer::sized(412, "", "");
                }
                self.objects.remove(&path);
                Answer::sized(204, "", "")
            }
            method => match self.objects.get(&path) {
                None => Answer::sized(404, "", ""),
                Some((bytes, _, told)) => {
                    self.reads += u32::from(method == "GET");
                    Answer::sized(200, told, &**bytes)
                }
            },
        }
    }

    fn complete(&mut self, path: String) -> Answer {
        let segments: Vec<_> = std::mem::take(&mut self.segments).into_values().collect();
        let bytes = self.flipped(&segments.concat(), Flips::Own);
        let segments = bytes.chunks(segments[0].len());
        let digests: Vec<u8> = segments.clone().flat_map(Md5::digest).collect();
        let tag = match self.tags {
            Tags::Md5 => format!("{}-{}", hex(&Md5::digest(digests)), segments.len()),
            Tags::Random | Tags::Word | Tags::Encrypted => self.tag(&bytes),
        };
        let told = self.told(&tag) + &self.dressed;
        self.objects.insert(path, (bytes, tag.clone(), told));
        let made = format!(
            "<CompleteMultipartUploadResult><ETag>\"{tag}\"</ETag></CompleteMultipartUploadResult>"
        );
        Answer::sized(200, "", made)
    }

    fn copy(&mut self, asked: &Asked, path: String) -> Answer {
        let from = format!("/{}", asked.header("x-amz-copy-source").unwrap());
        let bytes = self.objects[&from].0.clone();
        let bytes = self.flipped(&bytes, Flips::Own);
        let tag = self.tag(&bytes);
        let told = self.told(&tag);
        self.objects
            .insert(path, (bytes, tag.clone(), told.clone() + &dressed(asked)));
        let copied = format!("<CopyObjectResult><ETag>\"{tag}\"</ETag></CopyObjectResult>");
        Answer::sized(200, &told, copied)
    }
}

fn echoed(asked: &Asked) -> String {
    let sum = asked.header(CRC64).unwrap_or("AAAAAAAAAAA=");
    match asked.header("x-amz-trailer") {
        Some(_) => String::new(),
        None => format!("{CRC64}: {sum}\r\n"),
    }
}

/// Returns the metadata that an object is to keep.
fn dressed(asked: &Asked) -> String {
    let kept = asked.headers.iter();
    let kept = kept.filter(|(name, _)| name.starts_with("x-amz-meta-"));
    kept.fold(String::new(), |text, (name, value)| {
        text + name + ": " + value + "\r\n"
    })
}

async fn shelf(flips: Flips, tags: Tags) -> (Server, Arc<Mutex<Shelf>>) {
    let shelf = Arc::new(Mutex::new(Shelf {
        flips,
        tags,
        objects: BTreeMap::new(),
        segments: BTreeMap::new(),
        dressed: String::new(),
        count: 0,
        reads: 0,
        keeps_all: false,
        compares: false,
    }));
    let held = Arc::clone(&shelf);
    let server = Server::start(move |asked| held.lock().unwrap().ask(asked)).await;
    (server, shelf)
}

#[tokio::test(flavor = "multi_thread")]
async fn an_object_of_other_bytes_is_found_by_its_etag_and_removed() {
    for tags in [Tags::Md5, Tags::Random] {
        let (server, shelf) = shelf(Flips::Sent, tags).await;
        let error = says(
            put(&*s3(&server), b"x", b"some bytes").await,
            "other bytes than were sent",
        );
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{tags:?}");
        assert!(error.to_string().contains("s3://b/t/x"), "{error}");
        // It would be taken for the file the next time.
        assert!(shelf.lock().unwrap().objects.is_empty());
    }
    shown(
        "S3, Azure, Google",
        "other bytes are kept than were sent, and their checksum is returned as it came",
        End::Refused,
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_object_of_other_bytes_that_can_t_be_removed_is_no_file_the_next_time() {
    let (server, shelf) = shelf(Flips::Sent, Tags::Md5).await;
    shelf.lock().unwrap().keeps_all = true;
    let error = says(
        put(&*s3(&server), b"x", b"some bytes").await,
        "does not let them be removed",
    );
    assert!(error.to_string().contains("copy it again"), "{error}");
    assert!(!shelf.lock().unwrap().objects.is_empty());
    let time_of = async || {
        let found = s3(&server).stat(b"x", true).await.unwrap().unwrap();
        assert_eq!(found.size, 10);
        found.mtime
    };
    assert_eq!(time_of().await, None, "by its time it would be the file");
    shelf.lock().unwrap().flips = Flips::Nothing;
    put(&*s3(&server), b"x", b"some bytes").await.unwrap();
    assert_eq!(time_of().await, spec(b"some bytes").mtime);
    // What somebody else wrote in its place is what it says.
    shelf.lock().unwrap().flips = Flips::Sent;
    assert!(put(&*s3(&server), b"x", b"some bytes").await.is_err());
    for object in shelf.lock().unwrap().objects.values_mut() {
        object.2 = object.2.replace("etag: \"", "etag: \"0");
    }
    assert_eq!(time_of().await, spec(b"some bytes").mtime);
    shelf.lock().unwrap().flips = Flips::Nothing;
    put(&*s3(&server), b"x", b"some bytes").await.unwrap();
    shown(
        "S3",
        "an object of other bytes than were sent can't be removed",
        End::Refused,
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn etags_that_are_no_md5s_are_learned_once() {
    for (tags, reads) in [
        (Tags::Md5, 0),
        (Tags::Random, 1),
        (Tags::Word, 0),
        (Tags::Encrypted, 0),
    ] {
        let (server, shelf) = shelf(Flips::Nothing, tags).await;
        let endpoint = s3(&server);
        for name in [&b"x"[..], b"y", b"z"] {
            put(&*endpoint, name, b"some bytes").await.unwrap();
        }
        write(&*endpoint, b"big", &content(20 << 20)).await.unwrap();
        let shelf = shelf.lock().unwrap();
        assert_eq!((shelf.reads, shelf.objects.len()), (reads, 4), "{tags:?}");
    }
    shown("S3", "ETags look like MD5s and are none", End::Right);
}

#[tokio::test(flavor = "multi_thread")]
async fn only_a_store_that_refuses_other_bytes_knows_what_it_holds() {
    for compares in [true, false] {
        let (server, shelf) = shelf(Flips::Nothing, Tags::Word).await;
        shelf.lock().unwrap().compares = compares;
        let endpoint = s3(&server);
        assert_eq!(endpoint.refuses_damage().await, compares);
        assert!(shelf.lock().unwrap().objects.is_empty(), "nothing stays");
        put(&*endpoint, b"x", b"some bytes").await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn segments_of_other_bytes_are_found_by_their_etags() {
    for (flips, tags) in [
        (Flips::Sent, Tags::Md5),
        (Flips::Sent, Tags::Random),
        (Flips::Own, Tags::Md5),
    ] {
        let (server, shelf) = shelf(flips, tags).await;
        let written = write(&*s3(&server), b"big", &content(20 << 20)).await;
        let error = says(written, "other bytes than were sent");
        assert_eq!(error.kind(), ErrorKind::Corrupt);
        assert!(!error.is_temporary(), "the upload is over");
        assert!(
            shelf.lock().unwrap().objects.is_empty(),
            "{flips:?} {tags:?}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_of_other_bytes_is_found_by_its_etag() {
    for (flips, tags, is_right) in [
        (Flips::Own, Tags::Md5, false),
        (Flips::Own, Tags::Random, false),
        (Flips::Nothing, Tags::Md5, true),
        (Flips::Nothing, Tags::Random, true),
    ] {
        let (server, shelf) = shelf(flips, tags).await;
        let endpoint = s3(&server);
        put(&*endpoint, b"from", b"some bytes").await.unwrap();
        let entry = endpoint.stat(b"from", true).await.unwrap().unwrap();
        let spec = posthaste_endpoint::FileSpec {
            version: entry.version,
            ..spec(b"some bytes")
        };
        // Another process, which has learned nothing.
        let endpoint = s3(&server);
        let copied = endpoint.copy_within(b"b/t/from", b"to", &spec).await;
        let names: Vec<_> = shelf.lock().unwrap().objects.keys().cloned().collect();
        match is_right {
            true => copied.unwrap(),
            false => _ = says(copied, "other bytes than were sent"),
        }
        assert_eq!(names.len(), 1 + usize::from(is_right), "{names:?}");
    }
    shown("S3", "the store's own copy is of other bytes", End::Refused);
}

#[tokio::test(flavor = "multi_thread")]
async fn azure_is_held_to_the_md5_that_it_computed() {
    for knows_sums in [true, false] {
        for is_right in [true, false] {
            let removed = Arc::new(AtomicU32::new(0));
            let counted = Arc::clone(&removed);
            let server = Server::start(move |asked| match &*asked.method {
                "PUT" if asked.header("x-ms-content-crc64").is_some() && !knows_sums => {
                    let code = "x-ms-error-code: FeatureNotSupported\r\n";
                    Answer::sized(400, code, "")
                }
                "PUT" => {
                    let mut kept = asked.body.clone();
                    kept[0] ^= u8::from(!is_right);
                    let md5 = BodySum::md5_of(&kept).to_base64();
                    let sum = asked
                        .header("x-ms-content-crc64")
                        .map_or_else(String::new, |sum| format!("x-ms-content-crc64: {sum}\r\n"));
                    let told = format!("etag: \"e\"\r\ncontent-md5: {md5}\r\n{sum}");
                    Answer::sized(201, &told, "")
                }
                "DELETE" => {
                    assert_eq!(asked.header("if-match"), Some("\"e\""));
                    counted.fetch_add(1, SeqCst);
                    Answer::sized(202, "", "")
                }
                _ => Answer::sized(404, "", ""),
            })
            .await;
            let written = put(&*azure(&server).await, b"x", b"some bytes").await;
            match is_right {
                true => written.unwrap(),
                false => _ = says(written, "other bytes than were sent"),
            }
            assert_eq!(removed.load(SeqCst), u32::from(!is_right));
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn google_is_held_to_the_md5_that_it_computed() {
    for is_right in [true, false] {
        let removed = Arc::new(AtomicU32::new(0));
        let counted = Arc::clone(&removed);
        let server = Server::start(move |asked| match &*asked.method {
            "POST" => {
                let body = String::from_utf8_lossy(&asked.body).into_owned();
                let text = body.split("\r\n\r\n").nth(1).unwrap();
                let text = text.split("\r\n--").next().unwrap();
                let mut resource: Value = serde_json::from_str(text).unwrap();
                let kept: &[u8] = if is_right {
                    b"some bytes"
                } else {
                    b"same bytes"
                };
                resource["size"] = json!("10");
                resource["generation"] = json!("7");
                resource["md5Hash"] = json!(BodySum::md5_of(kept).to_base64());
                Answer::sized(200, "", resource.to_string())
            }
            "DELETE" => {
                assert!(
                    asked.target.contains("ifGenerationMatch=7"),
                    "{}",
                    asked.target
                );
                counted.fetch_add(1, SeqCst);
                Answer::sized(204, "", "")
            }
            _ => Answer::sized(404, "", ""),
        })
        .await;
        let written = put(&*gcs(&server).await, b"x", b"some bytes").await;
        match is_right {
            true => written.unwrap(),
            false => _ = says(written, "other bytes than were sent"),
        }
        assert_eq!(removed.load(SeqCst), u32::from(!is_right));
    }
}

/// Reads a whole file as a large one, in ranges.
async fn read(endpoint: &dyn Endpoint, path: &[u8]) -> Result<()> {
    let entry = endpoint.stat(path, true).await?.unwrap();
    let reader = endpoint.open(path, &entry).await?;
    let middle = entry.size / 2;
    for range in [middle..entry.size, 0..middle] {
        let body = reader.read(range).await?;
        body.try_for_each(async |_| Ok(())).await?;
    }
    reader.confirm().await
}

/// Answers like a server of one file.
fn serve(asked: &Asked, headers: &str, bytes: &[u8]) -> Answer {
    match asked.range {
        Some((first, last)) => {
            let last = last.min(bytes.len() - 1);
            let range = format!("content-range: bytes {first}-{last}/{}\r\n", bytes.len());
            Answer::sized(206, &format!("{headers}{range}"), &bytes[first..=last])
        }
        None => Answer::sized(200, headers, bytes),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_read_is_held_to_the_digest_that_a_server_tells() {
    let right = content(20 << 20);
    let mut crc32c = Crc32cSummer::default();
    crc32c.add(&right);
    let crc32c = format!("{:?}", crc32c.sum());
    let md5 = BodySum::md5_of(&right).to_base64();
    let sha256 = StoredSum::Sha256([0; 32]).of(&[Bytes::copy_from_slice(&right)]);
    let StoredSum::Sha256(sha256) = sha256 else {
        panic!("{sha256:?}");
    };
    let sha256 = hex(&sha256);
    let kinds = [
        format!("content-md5: {md5}\r\n"),
        format!("digest: md5={md5}\r\n"),
        format!("repr-digest: md5=:{md5}:\r\n"),
        format!("x-goog-hash: crc32c={crc32c}\r\n"),
        format!("x-amz-checksum-sha256: {sha256}\r\nx-amz-checksum-type: FULL_OBJECT\r\n"),
        format!("oc-checksum: MD5:{}\r\n", hex(&Md5::digest(&right))),
    ];
    for told in kinds {
        for is_right in [true, false] {
            let mut bytes = right.clone();
            bytes[11 << 20] ^= u8::from(!is_right);
            let headers = format!("etag: \"e-1\"\r\n{told}");
            let server = Server::start(move |asked| serve(asked, &headers, &bytes)).await;
            let mut endpoints = vec![web(&server).await];
            if told.starts_with("x-amz") {
                endpoints.push(s3(&server));
            }
            for endpoint in endpoints {
                let entry = endpoint.stat(b"big", true).await.unwrap().unwrap();
                let whole = endpoint.get(b"big", &entry).await.map(|_| ());
                for read in [read(&*endpoint, b"big").await, whole] {
                    let is_corrupt =
                        |error: &posthaste_endpoint::Error| error.kind() == ErrorKind::Corrupt;
                    assert_eq!(read.is_ok(), is_right, "{told}");
                    assert!(read.as_ref().err().is_none_or(is_corrupt));
                }
            }
        }
    }
    shown(
        "S3, web",
        "what is read is not what the digest says that is told with it",
        End::Refused,
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn ranges_of_two_versions_are_no_file() {
    let time = |second: u32| format!("last-modified: Wed, 01 Jan 2025 00:00:0{second} GMT\r\n");
    let unknown = |_| String::new();
    let tag = |version: u32| format!("etag: \"e-{version}\"\r\n");
    type Tells = Box<dyn Fn(u32) -> String + Send + Sync>;
    // Of each version what HEAD tells, and what GET does.
    let cases: [(&str, Tells, Tells); 4] = [
        ("S3, Azure, web", Box::new(tag), Box::new(tag)),
        ("web", Box::new(time), Box::new(time)),
        ("web", Box::new(time), Box::new(unknown)),
        ("S3, Azure, web", Box::new(tag), Box::new(unknown)),
    ];
    for (endpoints, head, get) in cases {
        let asked_for = Arc::new(AtomicU32::new(0));
        let answered = Arc::clone(&asked_for);
        let server = Server::start(move |asked| match (&*asked.method, asked.range) {
            ("GET", Some(_)) => {
                // It changes after the first range, whatever the condition.
                let version = answered.fetch_add(1, SeqCst).min(1);
                serve(asked, &get(version), &content(20 << 20))
            }
            _ => {
                let headers = head(answered.load(SeqCst).min(1)) + "accept-ranges: bytes\r\n";
                Answer::sized(200, &headers, content(20 << 20))
            }
        })
        .await;
        let mut all = vec![web(&server).await];
        if endpoints.starts_with("S3") {
            all.extend([s3(&server), azure(&server).await]);
        }
        for endpoint in all {
            asked_for.store(0, SeqCst);
            let error = says(read(&*endpoint, b"big").await, "changed");
            assert_eq!(error.kind(), ErrorKind::Changed);
        }
    }
    shown(
        "S3, Azure, web",
        "a file changes between two ranges of it, and conditions are passed over",
        End::Refused,
    );
}

/// Counts an answer, which tells of the first version.
fn first(answered: &AtomicU32, tells: &dyn Fn(u32) -> String) -> String {
    answered.fetch_add(1, SeqCst);
    tells(0)
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_written_while_one_answer_is_read_is_no_file() {
    let time = |second: u32| format!("last-modified: Wed, 01 Jan 2025 00:00:0{second} GMT\r\n");
    // A small file is looked at again where it is of this minute.
    let new = |second: u32| format!("last-modified: Wed, 01 Jan 2200 00:00:0{second} GMT\r\n");
    let weak = |version: u32| format!("etag: W/\"e-{version}\"\r\n");
    type Tells = Box<dyn Fn(u32) -> String + Send + Sync>;
    let cases: [(usize, Tells, bool); 5] = [
        (20 << 20, Box::new(time), true),
        (20 << 20, Box::new(weak), true),
        (20 << 20, Box::new(|_| String::new()), false),
        (1 << 20, Box::new(new), true),
        (1 << 20, Box::new(time), false),
    ];
    for (size, tells, is_seen) in cases {
        let asked_for = Arc::new(AtomicU32::new(0));
        let answered = Arc::clone(&asked_for);
        let server = Server::start(move |asked| match &*asked.method {
            // The answer is one, and the file another when it ends.
            "GET" => serve(asked, &first(&answered, &tells), &content(size)),
            _ => {
                let headers = tells(answered.load(SeqCst).min(1)) + "accept-ranges: bytes\r\n";
                Answer::sized(200, &headers, content(size))
            }
        })
        .await;
        let endpoint = web(&server).await;
        let entry = endpoint.stat(b"big", true).await.unwrap().unwrap();
        let read = match size < 8 << 20 {
            true => endpoint.get(b"big", &entry).await.map(drop),
            false => {
                let reader = endpoint.open(b"big", &entry).await.unwrap();
                let body = reader.read(0..entry.size).await.unwrap();
                body.try_for_each(async |_| Ok(())).await.unwrap();
                reader.confirm().await
            }
        };
        match is_seen {
            true => assert_eq!(says(read, "changed").kind(), ErrorKind::Changed),
            false => read.unwrap(),
        }
    }
    shown(
        "web",
        "a file is written in place while one answer with it is read, and its ETag or its second shows that",
        End::Refused,
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn ranges_are_of_one_version_only_where_a_change_would_show() {
    for (about, is_sure) in [
        ("etag: \"e\"\r\n", [true; 3]),
        ("etag: W/\"e\"\r\n", [false; 3]),
        ("", [false; 3]),
        // A store tells the time at which it got the object, and its second may have two.
        (
            "last-modified: Wed, 01 Jan 2025 00:00:00 GMT\r\n",
            [true, false, false],
        ),
    ] {
        let server = Server::start(move |asked| serve(asked, about, &content(20 << 20))).await;
        let endpoints = [web(&server).await, s3(&server), azure(&server).await];
        for (endpoint, is_sure) in endpoints.iter().zip(is_sure) {
            let entry = endpoint.stat(b"big", true).await.unwrap().unwrap();
            let reader = endpoint.open(b"big", &entry).await.unwrap();
            assert_eq!(reader.is_of_one_version(), is_sure, "{about}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_etag_of_segments_that_looks_like_an_md5_is_none() {
    for is_assembled in [true, false] {
        let server = Server::start(move |asked| {
            let about = format!("etag: \"{}\"\r\n", "a1".repeat(16));
            let bytes = content(20 << 20);
            match asked.target.contains("partNumber=1") && is_assembled {
                true => {
                    let range = format!("content-range: bytes 0-8388607/{}\r\n", bytes.len());
                    let more = format!("{about}{range}x-amz-mp-parts-count: 3\r\n");
                    Answer::sized(206, &more, &bytes[..8 << 20])
                }
                false => serve(asked, &about, &bytes),
            }
        })
        .await;
        let endpoint = s3(&server);
        let entry = endpoint.stat(b"big", true).await.unwrap().unwrap();
        let whole = endpoint.get(b"big", &entry).await.map(|_| ());
        for read in [read(&*endpoint, b"big").await, whole] {
            match read {
                Ok(()) => assert!(is_assembled),
                Err(error) => assert!(!is_assembled && error.kind() == ErrorKind::Corrupt),
            }
        }
    }
    shown(
        "S3",
        "an ETag looks like an MD5 and is of an object's segments",
        End::Right,
    );
}
