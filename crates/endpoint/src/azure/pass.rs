//! Shared access signatures of one blob ("Create a service SAS", version 2020-12-06).

use std::time::Duration;

use http::{HeaderMap, HeaderValue};
use reqsign_core::hash::base64_hmac_sha256;

use super::{
    account::Credential,
    client::{AzureClient, VERSION},
    object::{BODY_SUM, show_sum},
};
use crate::{BodySum, Errand, ErrorKind, FileTime, Pass, Result, clock, dates, web::encode};

/// Returns the text to sign, in its order; missing fields are empty.
fn text_of(permission: &str, expiry: &str, resource: &str) -> String {
    let (start, identifier, address, protocol) = ("", "", "", "");
    let (snapshot, scope, answers) = ("", "", "\n\n\n\n");
    [
        permission, start, expiry, resource, identifier, address, protocol, VERSION, "b", snapshot,
        scope, answers,
    ]
    .join("\n")
}

/// Presigns a URL like [`crate::Endpoint::pass`].
pub(super) fn pass(
    client: &AzureClient,
    key: &str,
    errand: &Errand,
    lifetime: Duration,
) -> Result<Pass> {
    let about = client.reading("hand out", key);
    let Credential::Key {
        account,
        key: secret,
    } = client.credential()
    else {
        return Err(about
            .fail(ErrorKind::Unsupported)
            .cause("only the account's key signs passes for single blobs")
            .hint("give the key: account_key in a profile, or AZURE_STORAGE_KEY"));
    };
    let permission = match errand {
        Errand::Read => "r",
        // Create and write, since a broken upload is sent again.
        Errand::Write(_) => "cw",
    };
    let until_s = clock::unix_secs().saturating_add(lifetime.as_secs());
    let until = FileTime {
        secs: i64::try_from(until_s).unwrap_or(i64::MAX),
        nanos: 0,
    };
    let expiry = dates::show_rfc3339(until)
        .ok_or_else(|| about.fail(ErrorKind::Invalid).cause("no such lifetime"))?
        .replace(".000000000Z", "Z");
    let resource = format!("/blob/{account}/{}/{key}", client.container());
    let signature = base64_hmac_sha256(secret, text_of(permission, &expiry, &resource).as_bytes());
    let mut url = client.source(&format!("{}/{key}", client.container()));
    let query = [
        ("sv", VERSION),
        ("sr", "b"),
        ("sp", permission),
        ("se", &*expiry),
        ("sig", &*signature),
    ];
    for (index, (name, value)) in query.iter().enumerate() {
        url.push(if index == 0 { '?' } else { '&' });
        url.push_str(name);
        url.push('=');
        url.push_str(&encode(value.as_bytes(), false));
    }
    let mut headers = HeaderMap::new();
    headers.insert("x-ms-version", HeaderValue::from_static(VERSION));
    if let Errand::Write(sum) = errand {
        headers.insert("x-ms-blob-type", HeaderValue::from_static("BlockBlob"));
        let (name, text) = match sum {
            BodySum::Crc64(sum) => (BODY_SUM, show_sum(*sum)),
            BodySum::Md5(_) => ("content-md5", sum.to_base64()),
        };
        let text = HeaderValue::try_from(text)
            .map_err(|cause| about.fail(ErrorKind::Invalid).cause(cause))?;
        headers.insert(name, text);
    }
    Ok(Pass { url, headers })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_signed_is_as_the_documentation_has_it() {
        let signed = text_of("r", "2026-01-02T03:04:05Z", "/blob/account/container/a/b");
        let wanted = "r\n\n2026-01-02T03:04:05Z\n/blob/account/container/a/b\n\n\n\n2021-12-02\nb\n\n\n\n\n\n\n";
        assert_eq!(signed, wanted);
    }
}
