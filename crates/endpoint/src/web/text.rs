//! Percent-encoding and header values.

use std::fmt::Write;

use http::HeaderMap;

/// Returns a header's value, if it is text.
pub(crate) fn text_of<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

/// Returns an entity tag as requests name it: some servers leave its quotes out, in listings above
/// all.
pub(crate) fn quoted(etag: &str) -> String {
    match etag.starts_with('"') || etag.starts_with("W/") {
        true => etag.to_owned(),
        false => format!("\"{etag}\""),
    }
}

/// Percent-encodes all but RFC 3986's unreserved characters; also `/` unless kept.
pub fn encode(text: &[u8], keep_slash: bool) -> String {
    let mut encoded = String::with_capacity(text.len() + 16);
    for &byte in text {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) || (keep_slash && byte == b'/') {
            encoded.push(char::from(byte));
        } else {
            let _ = write!(encoded, "%{byte:02X}");
        }
    }
    encoded
}

/// Decodes percent-encoding; `None` for a broken escape.
pub(crate) fn decode(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let digits = rest.get(..2)?;
        if !digits.iter().all(u8::is_ascii_hexdigit) {
            return None;
        }
        bytes.push(u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?);
        rest = &rest[2..];
    }
    Some(bytes)
}

/// Returns the token of an `Authorization` header of the scheme `Bearer`, in any case; `None` if it
/// is empty.
#[must_use]
pub fn bearer_token(value: &str) -> Option<&str> {
    let (scheme, token) = value.split_once(' ')?;
    let token = token.trim();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_shown_in_any_case_and_never_empty() {
        for value in ["Bearer abc", "bearer abc", "BEARER  abc "] {
            assert_eq!(bearer_token(value), Some("abc"));
        }
        for value in ["Bearer ", "Bearer", "Basic abc", "abc", ""] {
            assert_eq!(bearer_token(value), None);
        }
    }

    #[test]
    fn names_survive_an_address() {
        let name: Vec<u8> = (0..=255).collect();
        assert_eq!(decode(&encode(&name, true)), Some(name.clone()));
        assert_eq!(decode(&encode(&name, false)), Some(name));
        assert_eq!(encode(b"a/b c", true), "a/b%20c");
        assert_eq!(encode(b"a/b", false), "a%2Fb");
        for broken in ["%", "%f", "%zz", "%+1"] {
            assert_eq!(decode(broken), None, "{broken}");
        }
    }
}
