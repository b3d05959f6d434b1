//! Digests that servers report of the bytes they hold.

use http::{HeaderMap, StatusCode};

use super::{content::is_coded, text_of};
use crate::{Checksum, StoredSum, checksum::Crc32c};

/// Headers of S3 and the algorithm of each.
const AMAZON: [(&str, &str); 6] = [
    ("x-amz-checksum-crc64nvme", "crc64nvme"),
    ("x-amz-checksum-crc32c", "crc32c"),
    ("x-amz-checksum-crc32", "crc32"),
    ("x-amz-checksum-sha256", "sha-256"),
    ("x-amz-checksum-sha512", "sha-512"),
    ("x-amz-checksum-sha1", "sha-1"),
];

/// Returns the best digest of the whole file that an answer reports: `Repr-Digest` (RFC 9530),
/// `Digest` (RFC 3230), `Content-MD5` (RFC 1864), `OC-Checksum`, and what S3 and Google report.
///
/// An answer with a part is not asked for `Content-MD5`, which is of that part then. What is said
/// of a body that was coded on its way, or is decoded on its way, is said of other bytes.
pub(crate) fn told_sum(status: StatusCode, headers: &HeaderMap) -> Option<StoredSum> {
    let is_other = text_of(headers, "x-goog-stored-content-encoding");
    if is_coded(headers) || is_other.is_some_and(|coding| coding != "identity") {
        return None;
    }
    let names = ["repr-digest", "digest", "x-goog-hash"];
    let mut told: Vec<_> = names
        .iter()
        .flat_map(|name| listed(headers, name, '='))
        .collect();
    told.extend(of_owncloud(headers));
    if status == StatusCode::OK {
        told.extend(text_of(headers, "content-md5").and_then(|value| sum_of("md5", value)));
    }
    told.extend(of_amazon(headers));
    StoredSum::best(told)
}

/// Returns the best checksum of a whole object that S3 reports; one that is composed of those of
/// its segments is of another type.
pub(crate) fn of_amazon(headers: &HeaderMap) -> Option<StoredSum> {
    let kind = text_of(headers, "x-amz-checksum-type");
    if kind.is_some_and(|kind| kind != "FULL_OBJECT") {
        return None;
    }
    let told = AMAZON.iter().filter_map(|(name, algorithm)| {
        let value = text_of(headers, name)?;
        sum_of(algorithm, value)
    });
    StoredSum::best(told)
}

/// Returns the best checksum that ownCloud and its relatives report of a file.
pub(crate) fn of_owncloud(headers: &HeaderMap) -> Option<StoredSum> {
    StoredSum::best(listed(headers, "oc-checksum", ':'))
}

/// Reads the digests in a header, each an algorithm, a mark and a value.
fn listed(headers: &HeaderMap, name: &str, mark: char) -> Vec<StoredSum> {
    let values = headers.get_all(name).iter();
    let values = values.filter_map(|value| value.to_str().ok());
    let sums = values.flat_map(|value| value.split([',', ' ']));
    let sums = sums.filter_map(|sum| {
        let (algorithm, value) = sum.trim().split_once(mark)?;
        sum_of(algorithm, value)
    });
    sums.collect()
}

/// Reads a digest by its algorithm, as RFC 9530, RFC 3230, ownCloud or a store call it.
fn sum_of(algorithm: &str, value: &str) -> Option<StoredSum> {
    Some(match &*algorithm.to_ascii_lowercase() {
        "sha-256" | "sha256" => StoredSum::Sha256(bytes_of(value)?),
        "sha-512" | "sha512" => StoredSum::Sha512(bytes_of(value)?),
        "sha" | "sha-1" | "sha1" => StoredSum::Sha1(bytes_of(value)?),
        "md5" => StoredSum::Md5(bytes_of(value)?),
        "crc64nvme" => StoredSum::Crc64(Checksum::from_be_bytes(bytes_of(value)?)),
        "crc32c" => StoredSum::Crc32c(Crc32c::from_be_bytes(bytes_of(value)?)),
        "crc32" => StoredSum::Crc32(u32::from_be_bytes(bytes_of(value)?)),
        // Grid storage leaves zeros out at the start.
        "adler32" => StoredSum::Adler32(match u32::from_str_radix(value, 16) {
            Ok(sum) => sum,
            Err(_) => u32::from_be_bytes(bytes_of(value)?),
        }),
        "adler" => StoredSum::Adler32(u32::from_be_bytes(bytes_of(value)?)),
        _ => return None,
    })
}

/// Reads so many bytes in hexadecimal digits, or in base64 with or without colons around it: some
/// servers write either where the other is meant. No text is both.
fn bytes_of<const N: usize>(value: &str) -> Option<[u8; N]> {
    let text = value.trim().trim_matches(['"', ':']);
    if text.len() == 2 * N && text.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        let mut bytes = [0; N];
        for (place, byte) in bytes.iter_mut().enumerate() {
            *byte = u8::from_str_radix(&text[2 * place..2 * place + 2], 16).ok()?;
        }
        return Some(bytes);
    }
    reqsign_core::hash::base64_decode(text)
        .ok()?
        .try_into()
        .ok()
}

/// Returns the Adler-32 of the stored bytes, which grid storage keeps of each file: `Digest:
/// adler32=0a1b2c3d` (RFC 3230), or `Repr-Digest: adler=:ChssPQ==:` (RFC 9530). Returns `None` if
/// an answer has none that can be read.
pub(crate) fn told_adler32(headers: &HeaderMap) -> Option<u32> {
    let told = |name, algorithm: &str| {
        let sums = text_of(headers, name)?.split(',');
        let mut sums = sums.filter_map(|sum| sum.trim().split_once('='));
        let (_, value) = sums.find(|(found, _)| found.eq_ignore_ascii_case(algorithm))?;
        let StoredSum::Adler32(sum) = sum_of(algorithm, value)? else {
            return None;
        };
        Some(sum)
    };
    told("digest", "adler32").or_else(|| told("repr-digest", "adler"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_read_as_servers_write_them() {
        for (name, text, sum) in [
            ("digest", "adler32=91e01de", Some(0x091e_01de)),
            ("digest", "md5=xx==, ADLER32=091E01DE", Some(0x091e_01de)),
            ("repr-digest", "adler=:CR4B3g==:", Some(0x091e_01de)),
            ("repr-digest", "sha-256=:CR4B3g==:", None),
            ("digest", "adler32=nonsense", None),
            ("digest", "adler32", None),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(name, text.parse().unwrap());
            assert_eq!(told_adler32(&headers), sum, "{text}");
        }
    }

    #[test]
    fn a_digest_of_the_whole_is_known_however_it_is_told() {
        // Of "123456789", by other tools.
        let md5 = "JfnnlDI7RTiF9RgfG2JNCw==";
        let sha1 = "98O8HYCOBHMq32eZZczDTKeuNEE=";
        let sha256 = "FeKw08M4keuw8e9gnsQZQgwg4yDOlMZfvIwzEkSOsiU=";
        let crc32c = 0xe306_9283_u32.to_be_bytes();
        let of_crc32c = Some(StoredSum::Crc32c(Crc32c::from_be_bytes(crc32c)));
        let bytes = [bytes::Bytes::from_static(b"123456789")];
        let [of_md5, of_sha1, of_sha256, of_adler] = [
            StoredSum::Md5([0; 16]),
            StoredSum::Sha1([0; 20]),
            StoredSum::Sha256([0; 32]),
            StoredSum::Adler32(0),
        ]
        .map(|way| Some(way.of(&bytes)));
        for (status, lines, sum) in [
            (206, format!("repr-digest: sha-256=:{sha256}:"), of_sha256),
            (200, format!("digest: SHA={sha1},md5={md5}"), of_sha1),
            (
                200,
                "digest: md5=25f9e794323b453885f5181f1b624d0b".to_owned(),
                of_md5,
            ),
            (200, format!("content-md5: {md5}"), of_md5),
            (206, format!("content-md5: {md5}"), None),
            (
                200,
                format!("x-goog-hash: crc32c=4waSgw==,md5={md5}"),
                of_crc32c,
            ),
            (200, "oc-checksum: ADLER32:91e01de".to_owned(), of_adler),
            (
                200,
                "oc-checksum: SHA1:f7c3bc1d808e04732adf679965ccc34ca7ae3441".to_owned(),
                of_sha1,
            ),
            (206, format!("x-amz-checksum-sha256: {sha256}"), of_sha256),
            (200, format!("x-amz-checksum-sha256: {sha256}-3"), None),
            (
                200,
                format!("x-amz-checksum-sha256: {sha256}\nx-amz-checksum-type: COMPOSITE"),
                None,
            ),
            (
                200,
                format!("content-md5: {md5}\ncontent-encoding: gzip"),
                None,
            ),
            (
                200,
                format!("x-goog-hash: md5={md5}\nx-goog-stored-content-encoding: gzip"),
                None,
            ),
            (200, "digest: sha-256=short, what=else".to_owned(), None),
        ] {
            let mut headers = HeaderMap::new();
            for line in lines.lines() {
                let (name, value) = line.split_once(": ").unwrap();
                let name: http::HeaderName = name.parse().unwrap();
                headers.append(name, value.parse().unwrap());
            }
            let status = StatusCode::from_u16(status).unwrap();
            assert_eq!(told_sum(status, &headers), sum, "{lines}");
        }
    }
}
