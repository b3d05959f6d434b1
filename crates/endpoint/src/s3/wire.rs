//! S3's XML, percent-encoding and header names.

use std::{borrow::Cow, fmt::Write};

use serde::Deserialize;

use crate::{Checksum, checksum::Crc32c};

pub(super) const CHECKSUM: &str = "x-amz-checksum-crc64nvme";
pub(super) const CHECKSUM_CRC32C: &str = "x-amz-checksum-crc32c";
pub(super) const CHECKSUM_TYPE: &str = "x-amz-checksum-type";
pub(super) const MTIME: &str = "x-amz-meta-mtime";
pub(super) const MODE: &str = "x-amz-meta-mode";

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct InitiateMultipartUploadResult {
    pub upload_id: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct ListPartsResult {
    #[serde(default, rename = "Part")]
    pub segments: Vec<ListedSegment>,
    #[serde(rename = "NextPartNumberMarker")]
    pub next_marker: Option<String>,
    #[serde(default)]
    pub is_truncated: bool,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct ListedSegment {
    #[serde(rename = "PartNumber")]
    pub number: u64,
    #[serde(rename = "ETag")]
    pub etag: String,
    pub size: u64,
}

/// Store's answer about an object or segment that it assembled or copied.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Made {
    #[serde(default, rename = "ETag")]
    pub etag: String,
    #[serde(rename = "ChecksumCRC64NVME")]
    checksum: Option<String>,
    #[serde(rename = "ChecksumCRC32C")]
    crc32c: Option<String>,
}

impl Made {
    pub(super) fn checksum(&self) -> Option<Checksum> {
        Checksum::from_base64(self.checksum.as_deref()?)
    }

    /// Returns the CRC-32C; one that is composed of the segments' checksums can't be parsed.
    pub(super) fn crc32c(&self) -> Option<Crc32c> {
        Crc32c::from_base64(self.crc32c.as_deref()?)
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Refusal {
    #[serde(default)]
    pub code: String,
    #[serde(default)]
    pub message: String,
    /// Region of the bucket, if it is elsewhere.
    pub region: Option<String>,
    pub endpoint: Option<String>,
}

/// Returns the name of the root element; empty if the answer is no XML.
pub(super) fn root_of(body: &[u8]) -> &[u8] {
    let mut rest = body.strip_prefix(b"\xef\xbb\xbf").unwrap_or(body);
    // Stores send spaces while they work, to keep the connection.
    while let Some(tag) = rest.trim_ascii_start().strip_prefix(b"<") {
        if !tag.starts_with(b"?") && !tag.starts_with(b"!") {
            let name = tag.split(|byte| b" \t\r\n/>".contains(byte)).next();
            let name = name.unwrap_or_default();
            return name.rsplit(|byte| *byte == b':').next().unwrap_or(name);
        }
        let end = tag.iter().position(|byte| *byte == b'>');
        rest = end.map_or(&[], |end| &tag[end + 1..]);
    }
    &[]
}

/// Percent-encodes all but RFC 3986's unreserved characters, as SigV4 requires; also `/` unless
/// kept.
pub(super) fn encode(text: &str, keep_slash: bool) -> String {
    let mut encoded = String::with_capacity(text.len() + 16);
    for &byte in text.as_bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) || (keep_slash && byte == b'/') {
            encoded.push(char::from(byte));
        } else {
            let _ = write!(encoded, "%{byte:02X}");
        }
    }
    encoded
}

/// Decodes a key in a listing.
pub(super) fn decode_key(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        match byte {
            b'+' => bytes.push(b' '),
            b'%' => {
                let digits = std::str::from_utf8(rest.get(..2)?).ok()?;
                bytes.push(u8::from_str_radix(digits, 16).ok()?);
                rest = &rest[2..];
            }
            _ => bytes.push(byte),
        }
    }
    String::from_utf8(bytes).ok()
}

/// Escapes text for XML.
pub(super) fn escape(text: &str) -> Cow<'_, str> {
    quick_xml::escape::escape(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_known_by_its_root() {
        for (body, root) in [
            ("<Error><Code/></Error>", "Error"),
            (
                "\u{feff}<?xml version=\"1.0\"?>\n<!-- x -->\n<a:Error x='y'>",
                "Error",
            ),
            ("<DeleteResult/>", "DeleteResult"),
            ("", ""),
            ("<?xml", ""),
            ("what", ""),
        ] {
            assert_eq!(root_of(body.as_bytes()), root.as_bytes(), "{body}");
        }
        let late = " ".repeat(10_000) + "<Error>";
        assert_eq!(root_of(late.as_bytes()), b"Error");
    }

    #[test]
    fn keys_survive_the_listing() {
        let key = "a b+c%d/é\n\u{1}";
        assert_eq!(decode_key(&encode(key, true)).as_deref(), Some(key));
        assert_eq!(decode_key("a+b").as_deref(), Some("a b"));
        assert_eq!(decode_key("%zz"), None);
        assert_eq!(decode_key("%f"), None);
    }
}
