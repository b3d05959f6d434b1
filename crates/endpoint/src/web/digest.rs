//! Digests that servers report of the bytes they hold.

use http::HeaderMap;

use super::text_of;

/// Returns the Adler-32 of the stored file, which grid storage keeps: `Digest: adler32=0a1b2c3d`
/// (RFC 3230), or `Repr-Digest: adler=:ChssPQ==:` (RFC 9530). `None` if an answer has no valid one.
pub(crate) fn told_adler32(headers: &HeaderMap) -> Option<u32> {
    let told = |name, algorithm: &str| {
        let sums = text_of(headers, name)?.split(',');
        let mut sums = sums.filter_map(|sum| sum.trim().split_once('='));
        let (_, value) = sums.find(|(found, _)| found.eq_ignore_ascii_case(algorithm))?;
        Some(value.to_owned())
    };
    let from_hex = |text: String| u32::from_str_radix(&text, 16).ok();
    let from_base64 = |text: String| {
        let bytes = reqsign_core::hash::base64_decode(text.trim_matches(':')).ok()?;
        Some(u32::from_be_bytes(bytes.try_into().ok()?))
    };
    let digest = told("digest", "adler32").and_then(from_hex);
    digest.or_else(|| told("repr-digest", "adler").and_then(from_base64))
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
}
