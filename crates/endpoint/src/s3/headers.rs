//! Headers of an object: those that a store reports, and those that it keeps.

use bytes::Bytes;
use http::HeaderMap;

use super::{
    client::S3Client,
    wire::{CHECKSUM, CHECKSUM_CRC32C, CHECKSUM_TYPE, MODE, MTIME},
};
use crate::{
    Checksum, StoredSum,
    checksum::Crc32c,
    dates,
    endpoint::{Entry, FileSpec, Kind},
    objects::{content_type, parse_mode, show_mode},
    web::{of_amazon, text_of},
};

/// Returns the checksum that the store keeps of the whole object: one of its own, or else the MD5
/// in a plain ETag.
pub(super) fn sum_in(client: &S3Client, headers: &HeaderMap) -> Option<StoredSum> {
    let md5 = || md5_in(headers).filter(|_| !client.etags.are_others());
    of_amazon(headers).or_else(|| md5().map(StoredSum::Md5))
}

/// Returns whether `data` of the checksum `sum` has this checksum too.
pub(super) fn has_sum(told: StoredSum, sum: Checksum, data: &[Bytes]) -> bool {
    if let StoredSum::Crc64(wanted) = told {
        return wanted == sum;
    }
    told.of(data) == told
}

/// Returns whether the store reports a checksum of what it was sent, and another one.
pub(super) fn contradicts(headers: &HeaderMap, sum: Checksum, data: &[Bytes]) -> bool {
    of_amazon(headers).is_some_and(|told| !has_sum(told, sum, data))
}

/// Returns whether the store reports a checksum of what it was sent.
pub(super) fn tells_sum(headers: &HeaderMap) -> bool {
    of_amazon(headers).is_some() || md5_in(headers).is_some()
}

/// Returns the MD5 in a plain ETag. The ETag of an encrypted object is no MD5 of its bytes, whoever
/// holds the key.
pub(super) fn md5_in(headers: &HeaderMap) -> Option<[u8; 16]> {
    let etag = text_of(headers, "etag").map(|etag| etag.trim_matches('"'));
    etag.filter(|_| !is_encrypted(headers))
        .and_then(md5_from_hex)
}

/// Returns whether the object is kept encrypted by the store.
pub(super) fn is_encrypted(headers: &HeaderMap) -> bool {
    let mut names = headers.keys();
    names.any(|name| name.as_str().starts_with("x-amz-server-side-encryption"))
}

/// Parses 32 hexadecimal digits.
pub(super) fn md5_from_hex(digits: &str) -> Option<[u8; 16]> {
    let is_one = digits.len() == 32 && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    let digest = is_one.then(|| u128::from_str_radix(digits, 16));
    digest?.ok().map(u128::to_be_bytes)
}

/// Returns the whole object's checksum, if the store keeps one.
pub(super) fn checksum_in(headers: &HeaderMap) -> Option<Checksum> {
    Checksum::from_base64(told_whole(headers, CHECKSUM)?)
}

/// Returns the whole object's CRC-32C, if the store keeps one.
pub(super) fn crc32c_in(headers: &HeaderMap) -> Option<Crc32c> {
    Crc32c::from_base64(told_whole(headers, CHECKSUM_CRC32C)?)
}

/// Returns the checksum of all bytes; one that is composed from those of the segments has another
/// type.
fn told_whole<'a>(headers: &'a HeaderMap, name: &'static str) -> Option<&'a str> {
    let composite = text_of(headers, CHECKSUM_TYPE).is_some_and(|kind| kind != "FULL_OBJECT");
    text_of(headers, name).filter(|_| !composite)
}

pub(super) fn entry_of(headers: &HeaderMap, size: u64, kind: Kind) -> Entry {
    let mtime = text_of(headers, MTIME)
        .and_then(|text| text.parse().ok())
        .or_else(|| dates::parse_http(text_of(headers, "last-modified")?));
    Entry {
        name: Vec::new(),
        kind,
        size,
        mtime,
        stored: None,
        mode: text_of(headers, MODE).and_then(parse_mode),
        version: text_of(headers, "etag").map(Into::into),
    }
}

/// Returns the metadata that an object keeps besides its bytes, in rclone's form.
pub(super) fn metadata_of(spec: &FileSpec, kind: Kind) -> Vec<(&'static str, String)> {
    let mut headers = vec![("content-type", content_type(kind).to_owned())];
    if let Some(mtime) = spec.mtime {
        headers.push((MTIME, mtime.to_string()));
    }
    if let Some(mode) = spec.mode {
        headers.push((MODE, show_mode(kind, mode)));
    }
    headers
}
