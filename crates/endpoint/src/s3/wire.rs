//! S3's XML, percent-encoding and header names.

use std::{borrow::Cow, fmt::Write};

use serde::Deserialize;

use crate::{FileTime, dates};

pub(super) const CHECKSUM: &str = "x-amz-checksum-crc64nvme";
pub(super) const CHECKSUM_TYPE: &str = "x-amz-checksum-type";
pub(super) const MTIME: &str = "x-amz-meta-mtime";
pub(super) const MODE: &str = "x-amz-meta-mode";

/// How rclone names the object that holds a symbolic link's target.
pub(super) const LINK_SUFFIX: &str = ".rclonelink";

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

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct CompleteMultipartUploadResult {
    #[serde(rename = "ChecksumCRC64NVME")]
    pub checksum: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Refusal {
    #[serde(default)]
    pub code: String,
    #[serde(default)]
    pub message: String,
}

/// Percent-encodes all but RFC 3986's unreserved characters, as SigV4 wants; `/` too unless kept.
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

/// Undoes the encoding of a key in a listing.
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

/// Reads the permission bits rclone keeps: octal, with the file type above them.
pub(super) fn parse_mode(text: &str) -> Option<u32> {
    u32::from_str_radix(text, 8).ok().map(|mode| mode & 0o7777)
}

/// Reads the date of a listing (RFC 3339 in UTC): `2009-10-12T17:50:30.000Z`.
pub(super) fn parse_iso_date(text: &str) -> Option<FileTime> {
    let (day, clock) = text.strip_suffix('Z')?.split_once('T')?;
    let (clock, fraction) = clock.split_once('.').unwrap_or((clock, ""));
    let three = |text: &str, mark| -> Option<[i64; 3]> {
        let mut numbers = text.split(mark).map(str::parse);
        let three = [
            numbers.next()?.ok()?,
            numbers.next()?.ok()?,
            numbers.next()?.ok()?,
        ];
        numbers.next().is_none().then_some(three)
    };
    let mut nanos = 0;
    for place in 0..9 {
        let digit = fraction
            .as_bytes()
            .get(place)
            .map_or(Some(0), |byte| char::from(*byte).to_digit(10))?;
        nanos = nanos * 10 + digit;
    }
    dates::moment(three(day, '-')?, three(clock, ':')?, nanos)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_survive_the_listing() {
        let key = "a b+c%d/é\n\u{1}";
        assert_eq!(decode_key(&encode(key, true)).as_deref(), Some(key));
        assert_eq!(decode_key("a+b").as_deref(), Some("a b"));
        assert_eq!(decode_key("%zz"), None);
        assert_eq!(decode_key("%f"), None);
    }

    #[test]
    fn dates_of_listings_are_read() {
        for (text, secs, nanos) in [
            ("2009-10-12T17:50:30.000Z", 1_255_369_830, 0),
            ("2024-02-29T00:00:00Z", 1_709_164_800, 0),
            ("1969-12-31T23:59:59.5Z", -1, 500_000_000),
        ] {
            assert_eq!(parse_iso_date(text), Some(FileTime { secs, nanos }));
        }
        let endless = "9999999999999-02-29T00:00:00Z";
        for text in [
            endless,
            "2024-02-29",
            "2024-02T00:00:00Z",
            "2024-02-29T00:00:00.xZ",
        ] {
            assert_eq!(parse_iso_date(text), None, "{text}");
        }
    }
}
