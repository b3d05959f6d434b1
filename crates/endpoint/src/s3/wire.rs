//! S3's XML, percent-encoding and header names.

use std::{borrow::Cow, fmt::Write};

use serde::Deserialize;

use crate::FileTime;

pub(super) const CHECKSUM: &str = "x-amz-checksum-crc64nvme";
pub(super) const CHECKSUM_TYPE: &str = "x-amz-checksum-type";
pub(super) const MTIME: &str = "x-amz-meta-mtime";
pub(super) const MODE: &str = "x-amz-meta-mode";

/// How rclone names the object that holds a symbolic link's target.
pub(super) const LINK_SUFFIX: &str = ".rclonelink";

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct ListBucketResult {
    #[serde(default)]
    pub contents: Vec<Contents>,
    #[serde(default)]
    pub common_prefixes: Vec<CommonPrefix>,
    pub next_continuation_token: Option<String>,
    pub encoding_type: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Contents {
    pub key: String,
    pub size: u64,
    #[serde(rename = "ETag")]
    pub etag: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct CommonPrefix {
    pub prefix: String,
}

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

/// Undoes the encoding of keys in a listing, where the store encoded them.
pub(super) fn decode_key(text: &str, encoded: bool) -> Option<String> {
    if !encoded {
        return Some(text.to_owned());
    }
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

/// Reads an HTTP date (RFC 9110, section 5.6.7): `Sun, 06 Nov 1994 08:49:37 GMT`.
pub(super) fn parse_http_date(text: &str) -> Option<FileTime> {
    const MONTHS: &str = "JanFebMarAprMayJunJulAugSepOctNovDec";
    let mut words = text.split_once(", ")?.1.split([' ', ':']);
    let day: i64 = words.next()?.parse().ok()?;
    let month_name = words.next().filter(|name| name.len() == 3)?;
    let month = i64::try_from(MONTHS.find(month_name)? / 3 + 1).ok()?;
    let year: i64 = words.next()?.parse().ok()?;
    let mut clock = [0i64; 3];
    for field in &mut clock {
        *field = words.next()?.parse().ok()?;
    }
    // Days from civil, Howard Hinnant, "chrono-Compatible Low-Level Date Algorithms".
    let (y, m) = if month > 2 {
        (year, month - 3)
    } else {
        (year - 1, month + 9)
    };
    let (era, year_of_era) = (y.div_euclid(400), y.rem_euclid(400));
    let day_of_era =
        year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + (153 * m + 2) / 5 + day - 1;
    let days = era * 146_097 + day_of_era - 719_468;
    let secs = days * 86_400 + clock[0] * 3600 + clock[1] * 60 + clock[2];
    Some(FileTime { secs, nanos: 0 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_survive_the_listing() {
        let key = "a b+c%d/é\n\u{1}";
        assert_eq!(decode_key(&encode(key, true), true).as_deref(), Some(key));
        assert_eq!(decode_key("a+b", true).as_deref(), Some("a b"));
        assert_eq!(decode_key("a+b", false).as_deref(), Some("a+b"));
        assert_eq!(decode_key("%zz", true), None);
        assert_eq!(decode_key("%f", true), None);
    }

    #[test]
    fn http_dates_are_read() {
        let time = |secs| Some(FileTime { secs, nanos: 0 });
        assert_eq!(
            parse_http_date("Sun, 06 Nov 1994 08:49:37 GMT"),
            time(784_111_777)
        );
        assert_eq!(
            parse_http_date("Thu, 29 Feb 2024 00:00:00 GMT"),
            time(1_709_164_800)
        );
        assert_eq!(parse_http_date("yesterday"), None);
    }

    #[test]
    fn listings_are_read() {
        let text = "<?xml version=\"1.0\"?><ListBucketResult><IsTruncated>true</IsTruncated>\
            <Contents><Key>a</Key><Size>3</Size><ETag>&quot;e&quot;</ETag></Contents>\
            <Contents><Key>b</Key><Size>0</Size></Contents>\
            <CommonPrefixes><Prefix>c/</Prefix></CommonPrefixes>\
            <NextContinuationToken>t</NextContinuationToken></ListBucketResult>";
        let list: ListBucketResult = quick_xml::de::from_str(text).unwrap();
        assert_eq!(list.contents.len(), 2);
        assert_eq!(list.contents[0].etag.as_deref(), Some("\"e\""));
        assert_eq!(list.common_prefixes[0].prefix, "c/");
        assert_eq!(list.next_continuation_token.as_deref(), Some("t"));
    }
}
