//! Reading objects, storing them in one piece, and removing them.

use std::{ops::Range, sync::Arc};

use bytes::Bytes;
use futures_util::StreamExt;
use http::Method;
use serde_json::{Value, json};

use super::{
    client::{Call, GcsClient},
    resource::{FIELDS, Resource, kept_of},
};
use crate::{
    BodySum, Checksum, Condition, Error, ErrorKind, Result, Status, StoredSum, Summer,
    checksum::{Crc32c, Crc32cSummer},
    endpoint::{Boxed, ByteStream, Entry, FileSpec, Kind, Reader, Whole},
    objects::{Removed, Spans, other_bytes},
    web::{About, OneVersion, cut, text_of},
};

/// Requests the store's description of an object; `None` if there is no such object.
pub(super) async fn find(
    client: &GcsClient,
    key: &str,
    operation: &'static str,
) -> Result<Option<Resource>> {
    let about = About::reading(operation, client.show(key));
    let call = Call::new(Method::GET, client.object(key), about).query("fields", FIELDS);
    match client.ask(call).await {
        Ok(resource) => Ok(Some(resource)),
        // A missing bucket has a hint.
        Err(error) if error.kind() == ErrorKind::NotFound && error.advice().is_none() => Ok(None),
        Err(error) => Err(error),
    }
}

/// Requests bytes of an object that must still match `entry`. Returns them with the whole object's
/// checksum, if the store reports it.
async fn fetch(
    client: &GcsClient,
    key: &str,
    entry: &Entry,
    range: Range<u64>,
) -> Result<(ByteStream, Option<Crc32c>)> {
    let about = About::reading("read", client.show(key));
    let mut call = Call::new(Method::GET, client.object(key), about.clone())
        .query("alt", "media")
        // A compressed object comes as it is stored.
        .header("accept-encoding", "gzip");
    if range != (0..entry.size) {
        let span = format!("bytes={}-{}", range.start, range.end - 1);
        call = call.header("range", span);
    }
    if let Some(generation) = &entry.version {
        call = call.query("ifGenerationMatch", &**generation);
    }
    let answer = client.send(call).await?;
    let found = text_of(answer.headers(), "x-goog-generation");
    let is_other = |wanted: &str| found.is_some_and(|found| found != wanted);
    if entry.version.as_deref().is_some_and(is_other) {
        return Err(about
            .fail(ErrorKind::Changed)
            .cause("it changed while it was read")
            .hint("copy it again when nothing writes to it"));
    }
    let hashes = answer.headers().get_all("x-goog-hash").iter();
    let checksum = hashes
        .filter_map(|hash| hash.to_str().ok())
        .flat_map(|hashes| hashes.split(','))
        .find_map(|hash| Crc32c::from_base64(hash.trim().strip_prefix("crc32c=")?));
    Ok((cut(answer, &range, entry.size, about)?, checksum))
}

/// Reads a whole small object.
pub(super) async fn get(client: &GcsClient, key: &str, entry: &Entry) -> Result<Whole> {
    let mut entry = entry.clone();
    let mut wanted = None;
    if entry.version.is_none() {
        let found = find(client, key, "read").await?;
        let found = found.ok_or_else(|| missing(client, key))?;
        wanted = found.crc32c;
        entry = found.entry(Kind::File);
    }
    let (mut body, told) = fetch(client, key, &entry, 0..entry.size).await?;
    let mut content = Content::default();
    while let Some(bytes) = body.next().await {
        content.add(bytes?);
    }
    let is_wrong = |wanted| wanted != content.own_sum();
    if told.or(wanted).is_some_and(is_wrong) {
        return Err(damaged(client, key));
    }
    Ok(Whole {
        entry: Entry {
            name: Vec::new(),
            ..entry
        },
        checksum: content.sum(),
        data: content.data,
    })
}

fn missing(client: &GcsClient, key: &str) -> Error {
    About::reading("read", client.show(key)).fail(ErrorKind::NotFound)
}

fn damaged(client: &GcsClient, key: &str) -> Error {
    About::reading("read", client.show(key))
        .fail(ErrorKind::Corrupt)
        .cause("what was read has not the checksum the store keeps for it")
        .hint("copy it again; if it stays, the stored object is damaged")
        .status_is(Status::Temporary)
}

/// Object open for range reads.
pub(super) struct GcsReader {
    client: Arc<GcsClient>,
    key: String,
    entry: Entry,
    read: Spans,
    one: OneVersion,
}

impl GcsReader {
    pub(super) fn new(client: Arc<GcsClient>, key: String, resource: &Resource) -> Self {
        let entry = resource.entry(Kind::File);
        Self {
            client,
            key,
            one: OneVersion::new(entry.version.is_some()),
            entry,
            read: Spans::of(resource.crc32c.map(StoredSum::Crc32c)),
        }
    }
}

impl Reader for GcsReader {
    fn entry(&self) -> &Entry {
        &self.entry
    }

    /// Returns none: the store keeps another checksum, which [`Reader::confirm`] compares.
    fn checksum(&self) -> Option<Checksum> {
        None
    }

    fn stored_sum(&self) -> Option<StoredSum> {
        self.read.wanted()
    }

    fn is_of_one_version(&self) -> bool {
        self.one.is_sure()
    }

    fn is_compared(&self) -> bool {
        self.read.is_same(self.entry.size)
    }

    fn read(&self, range: Range<u64>) -> Boxed<'_, Result<ByteStream>> {
        Box::pin(async move {
            if range.is_empty() {
                let nothing: ByteStream = Box::pin(futures_util::stream::empty());
                return Ok(nothing);
            }
            let (start, len) = (range.start, range.end - range.start);
            let fetched = fetch(&self.client, &self.key, &self.entry, range).await;
            let (body, _) = self.one.judge(fetched)?;
            Ok(self.read.watch(start, len, body))
        })
    }

    /// Checks only the bytes, since every range was requested on the condition that the object is
    /// unchanged.
    fn confirm(&self) -> Boxed<'_, Result<()>> {
        Box::pin(async {
            match self.read.is_other(self.entry.size) {
                true => Err(damaged(&self.client, &self.key)),
                false => Ok(()),
            }
        })
    }
}

/// Bytes being sent to an object, hashed as they pass.
#[derive(Default)]
pub(super) struct Content {
    data: Vec<Bytes>,
    pub len: u64,
    summer: Summer,
    own: Crc32cSummer,
}

impl Content {
    pub(super) fn add(&mut self, bytes: Bytes) {
        self.summer.add(&bytes);
        self.own.add(&bytes);
        self.len += bytes.len() as u64;
        self.data.push(bytes);
    }

    pub(super) fn sum(&self) -> Checksum {
        self.summer.sum()
    }

    pub(super) fn own_sum(&self) -> Crc32c {
        self.own.sum()
    }
}

/// Stores an object in one request; the store refuses it unless the checksum is right.
pub(super) async fn store(
    client: &GcsClient,
    key: &str,
    mut kept: Value,
    content: Content,
    condition: Option<&Condition>,
) -> Result<Resource> {
    let about = About::writing("write", client.show(key));
    kept["name"] = json!(key);
    let sum = content.own_sum();
    kept["crc32c"] = json!(sum.to_base64());
    let mut call = Call::new(
        Method::POST,
        format!("/upload{}", client.objects()),
        about.clone(),
    )
    .query("uploadType", "multipart")
    .query("fields", FIELDS);
    match condition {
        None => {}
        Some(Condition::Absent) => call = call.query("ifGenerationMatch", "0"),
        Some(Condition::Version(version)) => {
            call = call.query("ifGenerationMatch", &**version);
        }
    }
    let content_type = format!("multipart/related; boundary={}", client.boundary());
    let (len, data) = (content.len, content.data.clone());
    let pieces = related(client.boundary(), &kept, content.data);
    let stored: Result<Resource> = client.ask(call.payload(content_type, pieces)).await;
    let stored = match stored {
        // The store addresses objects by their bucket: only that can be missing.
        Err(error) if error.kind() == ErrorKind::NotFound && error.advice().is_none() => {
            return Err(error.hint("create the bucket first"));
        }
        stored => stored?,
    };
    let is_wrong = |found| found != sum;
    // A store that checks nothing may return the CRC-32C that it was sent.
    let is_other = |told: &str| match BodySum::md5_from_base64(told) {
        Some(BodySum::Md5(told)) => StoredSum::Md5(told).of(&data) != StoredSum::Md5(told),
        Some(BodySum::Crc64(_)) | None => false,
    };
    if stored.size != len
        || stored.crc32c.is_some_and(is_wrong)
        || stored.md5_hash.as_deref().is_some_and(is_other)
    {
        // By its size and time it would be the file.
        let call = Call::new(
            Method::DELETE,
            client.object(key),
            About::writing("remove", client.show(key)),
        );
        let call = call.query("ifGenerationMatch", &*stored.generation);
        let answer = client.command(call).await;
        let removed = Removed::by(&answer, &stored.generation);
        return Err(other_bytes(client, key, removed));
    }
    Ok(stored)
}

/// Joins the metadata of an object and its bytes in one body (RFC 2387).
fn related(boundary: &str, kept: &Value, data: Vec<Bytes>) -> Vec<Bytes> {
    let content_type = kept["contentType"].as_str();
    let content_type = content_type.unwrap_or("application/octet-stream");
    let head = format!(
        "--{boundary}\r\ncontent-type: application/json; charset=utf-8\r\n\r\n{kept}\r\n\
         --{boundary}\r\ncontent-type: {content_type}\r\n\r\n"
    );
    let mut pieces = Vec::with_capacity(data.len() + 2);
    pieces.push(head.into());
    pieces.extend(data);
    pieces.push(format!("\r\n--{boundary}--\r\n").into());
    pieces
}

/// Stores a small file that must have the checksum `sum`.
pub(super) async fn put(
    client: &GcsClient,
    key: &str,
    (spec, kind): (&FileSpec, Kind),
    (data, sum): (Vec<Bytes>, Checksum),
    condition: Option<&Condition>,
) -> Result<()> {
    let mut content = Content::default();
    data.into_iter().for_each(|bytes| content.add(bytes));
    if content.sum() != sum {
        return Err(About::writing("write", client.show(key))
            .fail(ErrorKind::Corrupt)
            .cause("the bytes have not the checksum they came with")
            .status_is(Status::Temporary));
    }
    let stored = store(client, key, kept_of(spec, kind), content, condition).await;
    stored.map(|_| ())
}

/// Removes an object; a missing one is no error.
pub(super) async fn remove(client: &GcsClient, key: &str) -> Result<()> {
    let about = About::writing("remove", client.show(key));
    let call = Call::new(Method::DELETE, client.object(key), about);
    match client.command(call).await {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}
