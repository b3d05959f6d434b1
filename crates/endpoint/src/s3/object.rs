//! Objects that travel in one request, range reads, and removal.

use std::{ops::Range, sync::Arc};

use bytes::Bytes;
use futures_util::StreamExt;
use http::Method;

use super::{
    client::{Call, S3Client},
    headers::{checksum_in, contradicts, entry_of, has_sum, metadata_of, sum_in, tells_sum},
    held::{self, Says},
    sums::{Sum, md5_of},
};
use crate::{
    Checksum, Condition, Error, ErrorKind, Kind, Locus, Result, Status, StoredSum, Summer,
    endpoint::{Boxed, ByteStream, Entry, FileSpec, Reader, Whole},
    objects::{Head, Spans, check_held},
    web::{
        About, OneVersion, check_status, check_version, content_length, cut, gathered, is_strong,
        of_amazon, stream, text_of,
    },
};

pub(super) struct S3Reader {
    client: Arc<S3Client>,
    key: String,
    entry: Entry,
    checksum: Option<Checksum>,
    /// Spans, with the store's own checksum if it keeps none of ours.
    spans: Spans,
    /// True if that is the MD5 that the ETag looks like.
    is_guess: bool,
    one: OneVersion,
}

impl S3Reader {
    pub(super) fn new(client: Arc<S3Client>, key: String, head: &Head) -> Self {
        let checksum = checksum_in(&head.headers);
        let other = sum_in(&client, &head.headers);
        let entry = entry_of(&head.headers, head.size, Kind::File);
        Self {
            client,
            key,
            one: OneVersion::new(entry.version.as_deref().is_some_and(is_strong)),
            entry,
            checksum,
            spans: Spans::of(other.filter(|_| checksum.is_none())),
            is_guess: of_amazon(&head.headers).is_none(),
        }
    }

    /// Requests a range on the condition that the object is the opened one.
    async fn fetch(&self, range: &Range<u64>) -> Result<ByteStream> {
        let span = format!("bytes={}-{}", range.start, range.end - 1);
        let mut call = Call::new(Method::GET, &self.key, "read").header("range", span);
        // A weak version can't be a condition (RFC 9110, section 13.1.1).
        if let Some(version) = self.entry.version.as_deref().filter(|tag| is_strong(tag)) {
            call = call.header("if-match", version);
        }
        let about = About::reading("read", self.client.show(&self.key));
        let answer = self.client.send(call).await?;
        check_version(answer.headers(), &self.entry, range, &about)?;
        cut(answer, range, self.entry.size, about)
    }
}

impl Reader for S3Reader {
    fn entry(&self) -> &Entry {
        &self.entry
    }

    fn checksum(&self) -> Option<Checksum> {
        self.checksum
    }

    fn stored_sum(&self) -> Option<StoredSum> {
        let ours = self.checksum.map(StoredSum::Crc64);
        ours.or(self.spans.wanted())
    }

    fn is_of_one_version(&self) -> bool {
        self.one.is_sure()
    }

    fn is_compared(&self) -> bool {
        self.spans.is_same(self.entry.size)
    }

    fn read(&self, range: Range<u64>) -> Boxed<'_, Result<ByteStream>> {
        Box::pin(async move {
            if range.is_empty() {
                let nothing: ByteStream = Box::pin(futures_util::stream::empty());
                return Ok(nothing);
            }
            let body = self.one.judge(self.fetch(&range).await)?;
            let len = range.end - range.start;
            Ok(self.spans.watch(range.start, len, body))
        })
    }

    /// Every range was requested with `If-Match`, so only the bytes remain to be checked.
    fn confirm(&self) -> Boxed<'_, Result<()>> {
        Box::pin(async {
            let size = self.entry.size;
            if !self.spans.is_other(size) {
                return Ok(());
            }
            if self.is_guess && is_assembled(&self.client, &self.key, size).await {
                self.spans.forget();
                return Ok(());
            }
            Err(damaged(&self.client, &self.key))
        })
    }
}

/// Removes an object.
pub(super) async fn delete(client: &S3Client, key: &str) -> Result<()> {
    let call = Call::new(Method::DELETE, key, "remove").at(Locus::Destination);
    client.ask(call).await.map(|_| ())
}

/// Requests an object's head; `None` if the object does not exist.
pub(super) async fn head(
    client: &S3Client,
    key: &str,
    operation: &'static str,
) -> Result<Option<Head>> {
    let about = About::reading(operation, client.show(key));
    let call = Call::new(Method::HEAD, key, operation).header("x-amz-checksum-mode", "ENABLED");
    match client.ask(call).await {
        Ok((headers, _)) => Head::of(headers, &about).map(Some),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Reads a whole object and compares it with the store's checksum.
pub(super) async fn fetch(
    client: &S3Client,
    key: &str,
    entry: &Entry,
    operation: &'static str,
) -> Result<Whole> {
    let mut call = Call::new(Method::GET, key, operation).header("x-amz-checksum-mode", "ENABLED");
    if let Some(version) = entry.version.as_deref() {
        call = call.header("if-match", version);
    }
    let about = About::reading(operation, client.show(key));
    let answer = client.send(call).await?;
    check_status(&answer, &about)?;
    let (head, body) = answer.into_parts();
    let mut body = gathered(stream(body, client.show(key)), entry, about);
    let mut data = Vec::new();
    let mut summer = Summer::default();
    while let Some(bytes) = body.next().await {
        let bytes = bytes?;
        summer.add(&bytes);
        data.push(bytes);
    }
    let checksum = summer.sum();
    // Everything arrived: a body without a length marks its own end.
    let size = data.iter().map(|bytes| bytes.len() as u64).sum();
    let told = sum_in(client, &head.headers);
    if told.is_some_and(|told| !has_sum(told, checksum, &data)) {
        let is_guess = of_amazon(&head.headers).is_none();
        if !(is_guess && is_assembled(client, key, size).await) {
            return Err(damaged(client, key));
        }
    }
    Ok(Whole {
        entry: entry_of(&head.headers, size, Kind::File),
        data,
        checksum,
    })
}

/// Returns whether the store assembled an object from segments: then its ETag is no MD5 of it, even
/// where it has no number of segments at its end.
async fn is_assembled(client: &S3Client, key: &str, size: u64) -> bool {
    let call = Call::new(Method::HEAD, key, "look at").query(&[("partNumber", "1")]);
    let Ok((headers, _)) = client.ask(call).await else {
        return false;
    };
    let first = content_length(&headers);
    text_of(&headers, "x-amz-mp-parts-count").is_some() || first.is_some_and(|first| first < size)
}

fn damaged(client: &S3Client, key: &str) -> Error {
    Error::new(ErrorKind::Corrupt, "read", client.show(key))
        .cause("what was read has not the checksum the store keeps for it")
        .hint("copy it again; if it stays, the stored object is damaged")
        .status_is(Status::Temporary)
        .at(Locus::Source)
}

/// Stores one object; the store refuses it unless the checksum is right.
pub(super) async fn store(
    client: &S3Client,
    key: &str,
    (spec, kind): (&FileSpec, Kind),
    (data, checksum): (Vec<Bytes>, Checksum),
    condition: Option<&Condition>,
) -> Result<()> {
    let mut headers = metadata_of(spec, kind);
    match condition {
        Some(Condition::Absent) => headers.push(("if-none-match", "*".to_owned())),
        Some(Condition::Version(version)) => headers.push(("if-match", version.to_string())),
        None => {}
    }
    let sums = &client.sums;
    let answer = sums.write(|sum| {
        let (name, value) = sum.header(checksum, &data);
        let mut call = Call::new(Method::PUT, key, "write")
            .header(name, value)
            .payload(data.clone())
            .at(Locus::Destination);
        call.headers.extend_from_slice(&headers);
        // Other checksums are computed from these bytes, whatever bytes were intended.
        let is_right = sum == Sum::Crc64 || sum_of(&data) == checksum;
        async move {
            if !is_right {
                let error = held::differs(client, key);
                return Err(error.cause("it has not the checksum it was sent with"));
            }
            let (headers, _) = client.ask(call).await?;
            sums.learn(sum, &headers);
            Ok(headers)
        }
    });
    let answer = match answer.await {
        // An object that vanished has changed.
        Err(error)
            if error.kind() == ErrorKind::NotFound
                && matches!(condition, Some(Condition::Version(_))) =>
        {
            let error = Error::new(ErrorKind::Changed, "write", client.show(key));
            return Err(error.at(Locus::Destination));
        }
        answer => answer?,
    };
    if contradicts(&answer, checksum, &data) {
        return Err(held::differs_there(client, key, text_of(&answer, "etag")).await);
    }
    let size = data.iter().map(|bytes| bytes.len() as u64).sum();
    if client.etags.compare(&answer, || md5_of(&data)) == Says::Other {
        let etag = text_of(&answer, "etag").unwrap_or_default();
        held::prove(client, key, etag, (size, checksum)).await?;
    }
    let is_told = tells_sum(&answer);
    let is_page =
        || text_of(&answer, "content-type").is_some_and(|kind| kind.starts_with("text/html"));
    if is_told && !is_page() {
        return Ok(());
    }
    // An intermediary may have answered.
    check_held(client, key, spec, spec.size).await
}

fn sum_of(data: &[Bytes]) -> Checksum {
    let mut summer = Summer::default();
    data.iter().for_each(|bytes| summer.add(bytes));
    summer.sum()
}
