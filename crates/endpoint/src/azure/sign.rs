//! Shared Key: requests signed with the account's key ("Authorize with Shared Key", Blob Storage).

use std::fmt::Write;

use reqsign_core::hash::base64_hmac_sha256;

/// Headers with a place of their own in the signed text, in that order.
const PLACES: [&str; 11] = [
    "content-encoding",
    "content-language",
    "content-length",
    "content-md5",
    "content-type",
    "date",
    "if-modified-since",
    "if-match",
    "if-none-match",
    "if-unmodified-since",
    "range",
];

/// Signed fields of a request.
pub(super) struct Signed<'a> {
    pub method: &'static str,
    /// Path of the request, as sent.
    pub path: &'a str,
    pub query: &'a [(&'a str, &'a str)],
    pub headers: &'a [(&'static str, String)],
    pub body_len: u64,
}

/// Returns the value of the header `authorization`.
pub(super) fn authorization(account: &str, key: &[u8], signed: &Signed<'_>) -> String {
    let signature = base64_hmac_sha256(key, text_of(account, signed).as_bytes());
    format!("SharedKey {account}:{signature}")
}

fn text_of(account: &str, signed: &Signed<'_>) -> String {
    let mut text = format!("{}\n", signed.method);
    let header = |name| {
        let found = signed.headers.iter().find(|(found, _)| *found == name);
        found.map_or("", |(_, value)| value)
    };
    for name in PLACES {
        match name {
            // From version 2015-02-21 on 0 is written as an empty text.
            "content-length" if signed.body_len > 0 => {
                let _ = write!(text, "{}", signed.body_len);
            }
            "content-length" => {}
            name => text.push_str(header(name)),
        }
        text.push('\n');
    }
    let mut own: Vec<_> = signed.headers.iter().collect();
    own.retain(|(name, _)| name.starts_with("x-ms-"));
    own.sort_by_key(|(name, _)| *name);
    for (name, value) in own {
        let _ = writeln!(text, "{name}:{}", value.trim());
    }
    let _ = write!(text, "/{account}{}", signed.path);
    let mut query: Vec<_> = signed.query.iter().collect();
    query.sort_unstable();
    for (name, value) in query {
        let _ = write!(text, "\n{name}:{value}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_signed_is_as_the_documentation_has_it() {
        let headers = [
            ("x-ms-version", "2015-02-21".to_owned()),
            ("x-ms-date", "Fri, 26 Jun 2015 23:39:12 GMT".to_owned()),
        ];
        let signed = Signed {
            method: "GET",
            path: "/mycontainer",
            query: &[
                ("restype", "container"),
                ("comp", "metadata"),
                ("timeout", "20"),
            ],
            headers: &headers,
            body_len: 0,
        };
        let wanted = "GET\n\n\n\n\n\n\n\n\n\n\n\nx-ms-date:Fri, 26 Jun 2015 23:39:12 GMT\n\
            x-ms-version:2015-02-21\n/myaccount/mycontainer\ncomp:metadata\nrestype:container\n\
            timeout:20";
        assert_eq!(text_of("myaccount", &signed), wanted);
    }
}
