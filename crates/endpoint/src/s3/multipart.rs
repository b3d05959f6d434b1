//! Requests of a multipart upload.

use std::{
    collections::HashMap,
    fmt::Write,
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderMap, Method};

use super::{
    client::{Call, S3Client},
    frames,
    headers::{checksum_in, contradicts, crc32c_in, metadata_of},
    held::{self, Says},
    sums::{Sum, md5_of},
    wire::{
        CHECKSUM, CHECKSUM_CRC32C, CHECKSUM_TYPE, InitiateMultipartUploadResult, ListPartsResult,
        Made, escape,
    },
};
use crate::{
    Checksum, Error, ErrorKind, Kind, Locus, Result, Status,
    checksum::Crc32c,
    endpoint::{ByteStream, FileSpec},
    web::{Sent, text_of},
};

/// Most pages of a listing of segments: 10,000 by the smallest page that stores use, and a margin.
const PAGES_MAX: usize = 200;

/// Time that a store may take to copy a segment or to assemble an object.
const STORE_WORKS_FOR: Duration = Duration::from_secs(600);

/// Segment that the store holds.
#[derive(Debug, Clone)]
pub(super) struct Stored {
    /// Checksum; some stores do not report it for segments that they copied.
    pub checksum: Option<Checksum>,
    /// CRC-32C, if the store keeps it.
    pub crc32c: Option<Crc32c>,
    pub etag: String,
    /// True if the ETag is the MD5 of what was sent.
    pub is_md5: bool,
}

/// Upload that the store knows. Segments are numbered from 0.
pub(super) struct Multipart {
    pub client: Arc<S3Client>,
    pub key: String,
    pub id: String,
    /// Checksum with which the upload was begun.
    begun: Sum,
    /// True if the store checks the whole object, rather than the segments' checksums.
    is_whole: bool,
    /// Set once the ETag of a segment was not the MD5 of its bytes, though it may be one.
    is_doubted: AtomicBool,
}

/// Suffix of the id in ledgers for an upload begun with CRC-32C, over the whole object or not.
const NOTED_CRC32C: &str = ":crc32c";
const NOTED_CRC32C_EACH: &str = ":crc32c-each";

impl Multipart {
    /// Starts an upload; the store keeps its checksum if it is `summed`.
    pub(super) async fn initiate(
        client: Arc<S3Client>,
        key: String,
        spec: &FileSpec,
        summed: bool,
    ) -> Result<Self> {
        let started = client
            .sums
            .write(|sum| {
                let (client, key) = (&client, &key);
                let algorithm = sum.algorithm().filter(|_| summed);
                let mut call = Call::new(Method::POST, key, "write")
                    .query(&[("uploads", "")])
                    .at(Locus::Destination);
                call.headers.extend(metadata_of(spec, Kind::File));
                if let Some(algorithm) = algorithm {
                    call = call
                        .header("x-amz-checksum-algorithm", algorithm)
                        .header(CHECKSUM_TYPE, "FULL_OBJECT");
                }
                async move {
                    let answer = client.ask_headed_xml(call).await?;
                    let (headers, started): (_, InitiateMultipartUploadResult) = answer;
                    // A store from before 2025 ignores the type, and combines the segments'
                    // checksums.
                    let kind = text_of(&headers, CHECKSUM_TYPE);
                    let is_whole = sum == Sum::Crc64 || kind == Some("FULL_OBJECT");
                    let begun = if summed { sum } else { Sum::Md5 };
                    Ok((started.upload_id, begun, is_whole))
                }
            })
            .await?;
        let (id, begun, is_whole) = started;
        Ok(Self {
            client,
            key,
            id,
            begun,
            is_whole,
            is_doubted: AtomicBool::new(false),
        })
    }

    /// Restores an upload that a ledger noted.
    pub(super) fn noted_as(client: Arc<S3Client>, key: String, token: &str) -> Self {
        let each = token.strip_suffix(NOTED_CRC32C_EACH);
        let (id, begun) = match each.or_else(|| token.strip_suffix(NOTED_CRC32C)) {
            Some(id) => (id, Sum::Crc32c),
            None => (token, Sum::Crc64),
        };
        Self {
            client,
            key,
            id: id.to_owned(),
            begun,
            is_whole: each.is_none(),
            is_doubted: AtomicBool::new(false),
        }
    }

    /// Returns its form in ledgers.
    pub(super) fn show_token(&self) -> String {
        let suffix = match (self.begun, self.is_whole) {
            (Sum::Crc32c, true) => NOTED_CRC32C,
            (Sum::Crc32c, false) => NOTED_CRC32C_EACH,
            (Sum::Crc64 | Sum::Md5, _) => "",
        };
        format!("{}{suffix}", self.id)
    }

    /// Returns the checksum for its segments: the one it was begun with, unless the store was found
    /// to ignore that.
    pub(super) fn sum(&self) -> Sum {
        match self.begun < self.client.sums.preferred() {
            true => Sum::Md5,
            false => self.begun,
        }
    }

    fn fail(&self, kind: ErrorKind) -> Error {
        Error::new(kind, "write", self.client.show(&self.key)).at(Locus::Destination)
    }

    /// Sends a segment that is in memory.
    pub(super) async fn send_held(
        &self,
        index: u64,
        data: &[Bytes],
        checksum: Checksum,
    ) -> Result<Stored> {
        let number = (index + 1).to_string();
        let query = [("partNumber", &*number), ("uploadId", &*self.id)];
        let sums = &self.client.sums;
        let (headers, sum) = sums
            .write_on(self.sum(), |sum| {
                let (name, value) = sum.header(checksum, data);
                let call = Call::new(Method::PUT, &self.key, "write")
                    .query(&query)
                    .header(name, value)
                    .payload(data.to_vec())
                    .at(Locus::Destination);
                async move {
                    let (headers, _) = self.client.ask(call).await?;
                    sums.learn(sum, &headers);
                    Ok((headers, sum))
                }
            })
            .await?;
        if contradicts(&headers, checksum, data) {
            return Err(self.differs());
        }
        let are_md5s = self.client.etags.are_md5s();
        let says = self.client.etags.compare(&headers, || md5_of(data));
        match says {
            Says::Other if are_md5s => return Err(self.differs()),
            Says::Other => self.is_doubted.store(true, Relaxed),
            Says::Same | Says::Nothing => {}
        }
        let crc32c = (sum == Sum::Crc32c).then(|| Crc32c::of_pieces(data));
        let stored = self.stored(&headers, checksum, crc32c)?;
        Ok(Stored {
            is_md5: says == Says::Same,
            ..stored
        })
    }

    /// Sends a segment while it is read; its checksum follows the last byte.
    pub(super) async fn send_stream(
        &self,
        index: u64,
        body: ByteStream,
        len: u64,
        trailing: Sum,
    ) -> Result<(Checksum, Stored)> {
        let (body, summer) = frames::framed(body, len, trailing, &self.client.show(&self.key));
        let headers = self.send_framed(index, body, len, trailing).await?;
        self.client.sums.learn(trailing, &headers);
        let (checksum, crc32c) = summer.sums();
        let differs = checksum_in(&headers).is_some_and(|found| found != checksum)
            || crc32c_in(&headers).is_some_and(|found| crc32c.is_some_and(|own| own != found));
        if differs {
            return Err(self.differs());
        }
        Ok((checksum, self.stored(&headers, checksum, crc32c)?))
    }

    async fn send_framed(
        &self,
        index: u64,
        body: ByteStream,
        len: u64,
        trailing: Sum,
    ) -> Result<HeaderMap> {
        let number = (index + 1).to_string();
        let query = [("partNumber", &*number), ("uploadId", &*self.id)];
        let mut call = Call::new(Method::PUT, &self.key, "write")
            .query(&query)
            .header("content-encoding", "aws-chunked")
            .header("x-amz-decoded-content-length", len.to_string())
            .header("x-amz-trailer", trailing.name().unwrap_or_default())
            .at(Locus::Destination);
        call.body = Sent::stream(body, frames::framed_len(len, trailing));
        call.signed_as = "STREAMING-UNSIGNED-PAYLOAD-TRAILER";
        Ok(self.client.ask(call).await?.0)
    }

    /// Returns whether the store accepts streamed segments and checks them: it has to refuse one
    /// with a wrong checksum. `None` if the probe failed.
    pub(super) async fn takes_streams(&self, index: u64, trailing: Sum) -> Option<bool> {
        let (body, len) = frames::wrong(trailing);
        match self.send_framed(index, body, len, trailing).await {
            Err(error) if error.kind() == ErrorKind::Corrupt => Some(true),
            Err(error) if error.is_temporary() => None,
            Ok(_) | Err(_) => Some(false),
        }
    }

    /// Makes the store copy a segment of its object `from`, which must still be `version`.
    pub(super) async fn copy(
        &self,
        index: u64,
        from: &str,
        version: Option<&str>,
        range: Range<u64>,
    ) -> Result<Stored> {
        let number = (index + 1).to_string();
        let query = [("partNumber", &*number), ("uploadId", &*self.id)];
        let span = format!("bytes={}-{}", range.start, range.end - 1);
        let mut call = Call::new(Method::PUT, &self.key, "copy on the server to")
            .query(&query)
            .header("x-amz-copy-source", from)
            .header("x-amz-copy-source-range", span)
            .patience(STORE_WORKS_FOR)
            .at(Locus::Destination);
        if let Some(version) = version {
            call = call.header("x-amz-copy-source-if-match", version);
        }
        let copied: Made = self.client.ask_xml(call).await?;
        if copied.etag.is_empty() {
            return Err(self.no_receipt());
        }
        Ok(Stored {
            checksum: copied.checksum(),
            crc32c: copied.crc32c(),
            etag: copied.etag,
            is_md5: false,
        })
    }

    fn differs(&self) -> Error {
        self.fail(ErrorKind::Corrupt)
            .cause("the store holds other bytes than were sent")
            .status_is(Status::Temporary)
    }

    fn no_receipt(&self) -> Error {
        self.fail(ErrorKind::Corrupt)
            .cause("the store gave no receipt for a segment")
    }

    fn stored(
        &self,
        headers: &HeaderMap,
        checksum: Checksum,
        crc32c: Option<Crc32c>,
    ) -> Result<Stored> {
        let etag = text_of(headers, "etag").ok_or_else(|| self.no_receipt())?;
        Ok(Stored {
            checksum: Some(checksum),
            crc32c,
            etag: etag.to_owned(),
            is_md5: false,
        })
    }

    /// Assembles the object, which must have these checksums. Returns whether it has, as far as the
    /// store reports, and its ETag.
    pub(super) async fn put_together<'a>(
        &self,
        segments: impl Iterator<Item = (u64, &'a Stored)> + Clone,
        (whole, crc32c): (Option<Checksum>, Option<Crc32c>),
        only_new: bool,
    ) -> Result<(bool, String)> {
        let query = [("uploadId", &*self.id)];
        let completed = self.client.sums.write_on(self.sum(), |sum| {
            let mut call = Call::new(Method::POST, &self.key, "finish")
                .query(&query)
                .header("content-type", "application/xml")
                .body(vec![order(segments.clone(), sum).into()])
                .patience(STORE_WORKS_FOR)
                .at(Locus::Destination);
            if only_new {
                call = call.header("if-none-match", "*");
            }
            let told = match sum {
                Sum::Crc64 => whole.map(|whole| (CHECKSUM, whole.to_base64())),
                Sum::Crc32c => crc32c.map(|whole| (CHECKSUM_CRC32C, whole.to_base64())),
                Sum::Md5 => None,
            };
            if let Some((name, told)) = told.filter(|_| self.is_whole) {
                call = call.header(name, told).header(CHECKSUM_TYPE, "FULL_OBJECT");
            }
            self.client.ask_xml(call)
        });
        let completed: Made = completed.await?;
        let is_other = |(found, wanted)| found != wanted;
        let is_right = !completed.checksum().zip(whole).is_some_and(is_other)
            && !completed.crc32c().zip(crc32c).is_some_and(|(a, b)| a != b);
        Ok((is_right, completed.etag))
    }

    /// Compares the ETag of the assembled object with those of its segments, where all were the
    /// MD5s of what was sent. Where something does not fit, the object is read back.
    ///
    /// # Errors
    /// Errors of [`held::prove`].
    pub(super) async fn prove<'a>(
        &self,
        mut segments: impl Iterator<Item = &'a Stored> + Clone,
        etag: &str,
        whole: (u64, Checksum),
    ) -> Result<()> {
        let are_md5s = segments.clone().all(|stored| stored.is_md5);
        let etags = segments.by_ref().map(|stored| &*stored.etag);
        let wanted = etag_over(etags).filter(|_| are_md5s);
        let found = etag.trim_matches('"');
        let is_alike = |wanted: &String| {
            let count = wanted.rsplit('-').next();
            let (digits, of) = found.split_once('-').unwrap_or_default();
            digits.len() == 32 && Some(of) == count && !wanted.eq_ignore_ascii_case(found)
        };
        let is_doubted = self.is_doubted.load(Relaxed) || wanted.as_ref().is_some_and(is_alike);
        if !is_doubted || self.client.etags.are_others() {
            return Ok(());
        }
        let proved = held::prove(&self.client, &self.key, etag, whole).await;
        // The upload is over: it can't be finished once more.
        proved.map_err(|error| error.status_is(Status::Permanent))
    }

    pub(super) async fn abort(&self) {
        let query = [("uploadId", &*self.id)];
        let call = Call::new(Method::DELETE, &self.key, "abort").query(&query);
        // The bucket's own rules remove an upload that can't be aborted.
        let _ = self.client.ask(call).await;
    }

    /// Returns the ETag and size of each segment that the store holds; `None` if it does not know
    /// the upload.
    pub(super) async fn list(&self) -> Result<Option<HashMap<u64, (String, u64)>>> {
        let mut listed = HashMap::new();
        let mut marker = "0".to_owned();
        for _ in 0..PAGES_MAX {
            let query = [("part-number-marker", &*marker), ("uploadId", &*self.id)];
            let call = Call::new(Method::GET, &self.key, "continue")
                .query(&query)
                .at(Locus::Destination);
            let page: ListPartsResult = match self.client.ask_xml(call).await {
                Ok(page) => page,
                Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
                Err(error) => return Err(error),
            };
            for segment in page.segments {
                let index = segment.number.saturating_sub(1);
                listed.insert(index, (segment.etag, segment.size));
            }
            match page.next_marker {
                Some(next) if page.is_truncated && next != marker => marker = next,
                Some(_) | None => break,
            }
        }
        Ok(Some(listed))
    }
}

/// Returns whether the object with these headers consists of these segments: by its checksum, else
/// by its ETag, which most stores compute from the segments' MD5s.
pub(super) fn is_made_of<'a>(
    headers: &HeaderMap,
    segments: impl Iterator<Item = &'a Stored>,
    whole: Option<Checksum>,
    crc32c: Option<Crc32c>,
) -> bool {
    if let Some((found, wanted)) = checksum_in(headers).zip(whole) {
        return found == wanted;
    }
    if let Some((found, wanted)) = crc32c_in(headers).zip(crc32c) {
        return found == wanted;
    }
    let etags = segments.map(|segment| &*segment.etag);
    let found = text_of(headers, "etag").map(|etag| etag.trim_matches('"'));
    found.is_some_and(|found| etag_over(etags).is_some_and(|etag| etag.eq_ignore_ascii_case(found)))
}

/// Returns the ETag of an object assembled from segments with these, if they are MD5s.
fn etag_over<'a>(etags: impl Iterator<Item = &'a str>) -> Option<String> {
    let (mut digests, mut count) = (Vec::new(), 0);
    for etag in etags {
        let digits = etag.trim_matches('"');
        if digits.len() != 32 || !digits.is_ascii() {
            return None;
        }
        for place in (0..digits.len()).step_by(2) {
            digests.push(u8::from_str_radix(&digits[place..place + 2], 16).ok()?);
        }
        count += 1;
    }
    let mut etag = String::new();
    for byte in md5_of(&[digests.into()]) {
        let _ = write!(etag, "{byte:02x}");
    }
    Some(format!("{etag}-{count}"))
}

/// Returns the list of segments of an object.
fn order<'a>(segments: impl Iterator<Item = (u64, &'a Stored)>, sum: Sum) -> String {
    let mut text = String::from("<CompleteMultipartUpload>");
    for (index, stored) in segments {
        let _ = write!(text, "<Part><ETag>{}</ETag>", escape(&stored.etag));
        let told = match sum {
            Sum::Crc64 => stored.checksum.map(Checksum::to_base64),
            Sum::Crc32c => stored.crc32c.map(Crc32c::to_base64),
            Sum::Md5 => None,
        };
        if let Some((told, name)) = told.zip(sum.algorithm()) {
            let _ = write!(text, "<Checksum{name}>{told}</Checksum{name}>");
        }
        let _ = write!(text, "<PartNumber>{}</PartNumber></Part>", index + 1);
    }
    text.push_str("</CompleteMultipartUpload>");
    text
}
