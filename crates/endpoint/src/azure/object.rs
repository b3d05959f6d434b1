//! Headers and metadata of a blob, and range reads.

use std::{ops::Range, sync::Arc};

use bytes::Bytes;
use http::HeaderMap;
use md5::{Digest as _, Md5};
use reqsign_core::hash::{base64_decode, base64_encode};

use super::client::{AzureClient, Call};
use crate::{
    Checksum, Error, ErrorKind, FileTime, Result, Status, StoredSum, Summer, dates,
    endpoint::{Boxed, ByteStream, Entry, FileSpec, Kind, Reader},
    objects::{Head, Spans, content_type, parse_mode, show_mode},
    web::{About, OneVersion, check_version, cut, is_strong, quoted, text_of},
};

const MTIME: &str = "x-ms-meta-mtime";
const MODE: &str = "x-ms-meta-mode";
const WHOLE_SUM: &str = "x-ms-meta-crc64nvme";
const FOLDER: &str = "x-ms-meta-hdi_isfolder";
/// Header with the CRC-64/NVME of a request's body.
pub(super) const BODY_SUM: &str = "x-ms-content-crc64";

/// Metadata of a blob.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Metadata {
    pub mtime: Option<FileTime>,
    pub mode: Option<u32>,
    /// Checksum of the whole blob, as its writer computed it.
    pub checksum: Option<Checksum>,
    /// True if it stands for a directory, as Azure's own tools mark them.
    pub is_folder: bool,
}

impl Metadata {
    /// Returns the names that matter, in any case; empty for others.
    pub(super) fn known_name(name: &str) -> &'static str {
        let known = ["mtime", "mode", "crc64nvme", "hdi_isfolder"];
        let found = known.iter().find(|known| known.eq_ignore_ascii_case(name));
        found.copied().unwrap_or_default()
    }

    /// Adds a value. An invalid one is not ours, and counts as none.
    pub(super) fn add(&mut self, name: &str, text: &str) {
        match name {
            // rclone writes the first, similar tools the second.
            "mtime" => {
                self.mtime = dates::parse_rfc3339(text).or_else(|| text.parse().ok());
            }
            "mode" => self.mode = parse_mode(text),
            "crc64nvme" => self.checksum = Checksum::from_base64(text),
            "hdi_isfolder" => self.is_folder = text.eq_ignore_ascii_case("true"),
            _ => {}
        }
    }

    pub(super) fn of(headers: &HeaderMap) -> Self {
        let mut metadata = Self::default();
        for header in [MTIME, MODE, WHOLE_SUM, FOLDER] {
            if let Some(text) = text_of(headers, header) {
                metadata.add(header.trim_start_matches("x-ms-meta-"), text);
            }
        }
        metadata
    }
}

/// Returns the metadata to keep with a blob; `whole` is the checksum of its bytes.
pub(super) fn metadata_of(
    spec: &FileSpec,
    kind: Kind,
    whole: Option<Checksum>,
) -> Vec<(&'static str, String)> {
    let mut headers = Vec::new();
    if let Some(mtime) = spec.mtime.and_then(dates::show_rfc3339) {
        headers.push((MTIME, mtime));
    }
    if let Some(mode) = spec.mode {
        headers.push((MODE, show_mode(kind, mode)));
    }
    if let Some(whole) = whole {
        headers.push((WHOLE_SUM, whole.to_base64()));
    }
    if kind == Kind::Directory {
        headers.push((FOLDER, "true".to_owned()));
    }
    headers
}

/// Returns the metadata and the media type of a `kind`.
pub(super) fn dressed(
    spec: &FileSpec,
    kind: Kind,
    whole: Option<Checksum>,
) -> Vec<(&'static str, String)> {
    let mut headers = metadata_of(spec, kind, whole);
    headers.push(("x-ms-blob-content-type", content_type(kind).to_owned()));
    headers
}

/// Returns the entry that an answer's headers describe.
pub(super) fn entry_of(headers: &HeaderMap, size: u64, kind: Kind) -> Entry {
    let metadata = Metadata::of(headers);
    let stored = text_of(headers, "last-modified").and_then(dates::parse_http);
    let kind = match metadata.is_folder && size == 0 {
        true => Kind::Directory,
        false => kind,
    };
    Entry {
        name: Vec::new(),
        kind,
        size,
        mtime: metadata.mtime.or(stored),
        stored: None,
        mode: metadata.mode,
        version: text_of(headers, "etag").map(|etag| quoted(etag).into()),
    }
}

/// Formats a checksum like the service: base64 of the little-endian bytes.
pub(super) fn show_sum(sum: Checksum) -> String {
    let mut bytes = sum.to_be_bytes();
    bytes.reverse();
    base64_encode(&bytes)
}

/// Returns the checksum that the service computed over the received body, if it reports one.
pub(super) fn sum_in(headers: &HeaderMap) -> Option<Checksum> {
    let bytes = base64_decode(text_of(headers, BODY_SUM)?).ok()?;
    let mut bytes: [u8; 8] = bytes.try_into().ok()?;
    bytes.reverse();
    Some(Checksum::from_be_bytes(bytes))
}

/// Returns the MD5 of a whole blob, which the service keeps if its writer sent it or it came in one
/// request.
fn md5_in(headers: &HeaderMap) -> Option<[u8; 16]> {
    let bytes = base64_decode(text_of(headers, "content-md5")?.trim()).ok()?;
    bytes.try_into().ok()
}

/// Returns the error for bytes that differ from the stored ones.
pub(super) fn damaged(about: &About) -> Error {
    about
        .fail(ErrorKind::Corrupt)
        .cause("what was read has not the checksum that is kept with it")
        .hint("copy it again; if it stays, the stored blob is damaged")
        .status_is(Status::Temporary)
}

/// Returns the MD5 of the bytes, as headers have it.
pub(super) fn md5_of(data: &[Bytes]) -> String {
    let mut md5 = Md5::new();
    data.iter().for_each(|bytes| md5.update(bytes));
    base64_encode(&md5.finalize())
}

pub(super) fn sum_of(data: &[Bytes]) -> Checksum {
    let mut summer = Summer::default();
    data.iter().for_each(|bytes| summer.add(bytes));
    summer.sum()
}

pub(super) struct ObjectReader {
    client: Arc<AzureClient>,
    key: String,
    entry: Entry,
    checksum: Option<Checksum>,
    /// Spans, with the MD5 of a blob that others wrote.
    spans: Spans,
    one: OneVersion,
}

impl ObjectReader {
    pub(super) fn new(client: Arc<AzureClient>, key: String, head: &Head) -> Self {
        let checksum = Metadata::of(&head.headers).checksum;
        let md5 = md5_in(&head.headers).filter(|_| checksum.is_none());
        let entry = entry_of(&head.headers, head.size, Kind::File);
        Self {
            client,
            key,
            one: OneVersion::new(entry.version.as_deref().is_some_and(is_strong)),
            entry,
            checksum,
            spans: Spans::of(md5.map(StoredSum::Md5)),
        }
    }

    /// Requests a range on the condition that the blob is the opened one.
    async fn fetch(&self, range: &Range<u64>) -> Result<ByteStream> {
        let about = self.client.reading("read", &self.key);
        let span = format!("bytes={}-{}", range.start, range.end - 1);
        let mut call = Call::new("GET", &self.key, about.clone()).header("x-ms-range", span);
        if let Some(version) = &self.entry.version {
            call = call.header("if-match", &**version);
        }
        let answer = self.client.send(call).await?;
        check_version(answer.headers(), &self.entry, range, &about)?;
        cut(answer, range, self.entry.size, about)
    }
}

impl Reader for ObjectReader {
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

    /// Checks only the bytes, since every range was requested with `If-Match`.
    fn confirm(&self) -> Boxed<'_, Result<()>> {
        Box::pin(async {
            match self.spans.is_other(self.entry.size) {
                true => Err(damaged(&self.client.reading("read", &self.key))),
                false => Ok(()),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_are_written_as_the_service_does() {
        // Little-endian: the documentation's polynomial over "123456789" is ae8b14860a799888.
        let sum = Checksum::of(b"123456789");
        assert_eq!(
            show_sum(sum),
            base64_encode(&0xae8b_1486_0a79_9888_u64.to_le_bytes())
        );
        let mut headers = HeaderMap::new();
        headers.insert(BODY_SUM, show_sum(sum).parse().unwrap());
        assert_eq!(sum_in(&headers), Some(sum));
    }

    #[test]
    fn what_an_object_keeps_comes_back() {
        let spec = FileSpec {
            size: 3,
            mtime: Some(FileTime {
                secs: 1_600_000_000,
                nanos: 123_456_789,
            }),
            mode: Some(0o640),
            origin: "".into(),
            version: None,
        };
        let sum = Checksum::of(b"abc");
        let mut headers = HeaderMap::new();
        for (name, value) in metadata_of(&spec, Kind::File, Some(sum)) {
            headers.insert(name, value.parse().unwrap());
        }
        let found = Metadata::of(&headers);
        let wanted = Metadata {
            mtime: spec.mtime,
            mode: spec.mode,
            checksum: Some(sum),
            is_folder: false,
        };
        assert_eq!(found, wanted);
        let mut other = Metadata::default();
        other.add("mtime", "1600000000.123456789");
        assert_eq!(other.mtime, spec.mtime);
        other.add("mtime", "yesterday");
        assert_eq!(other.mtime, None);
    }
}
