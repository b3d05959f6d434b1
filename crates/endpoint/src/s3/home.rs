//! Location of a bucket: as configured, or after a redirect.

use http::{HeaderMap, StatusCode, Uri};
use reqsign_aws_v4::{Credential, RequestSigner};
use reqsign_core::Signer;

use super::wire::Refusal;
use crate::web::text_of;

/// Address of a store's buckets.
#[derive(Debug, Clone)]
pub(super) struct Address {
    /// URL `https://host` or `http://host:port`; `None` for Amazon's own.
    pub endpoint: Option<String>,
    pub region: String,
    /// Store and owner of the keys: the store itself copies among objects of one realm.
    pub realm: String,
    /// True if the requester pays rather than the owner of the bucket.
    pub requester_pays: bool,
}

/// Location of a bucket, and the signing of requests to it.
pub(super) struct Home {
    /// Signer; none for anonymous requests.
    pub signer: Option<Signer<Credential>>,
    region: String,
    /// URL `https://host` or `http://host:port/bucket`, without a slash at the end.
    pub base: String,
    /// True if the bucket is part of the path rather than of the host.
    pub path_style: bool,
}

impl Home {
    pub(super) fn of(address: &Address, bucket: &str, signer: Option<Signer<Credential>>) -> Self {
        let (base, path_style) = base_of(address.endpoint.as_deref(), &address.region, bucket);
        Self {
            signer,
            region: address.region.clone(),
            base,
            path_style,
        }
    }

    /// Returns the target of a redirect: another region or host of the same provider, else a hint.
    pub(super) fn sent_on(
        &self,
        (endpoint, bucket): (Option<&str>, &str),
        (status, headers): (StatusCode, &HeaderMap),
        refusal: &Refusal,
    ) -> Option<Result<Self, String>> {
        if !matches!(status.as_u16(), 301 | 307 | 400) {
            return None;
        }
        let region = text_of(headers, "x-amz-bucket-region").or(refusal.region.as_deref());
        let region = region.filter(|region| is_region(region));
        let region = region.unwrap_or(&self.region);
        let address = text_of(headers, "location").or(refusal.endpoint.as_deref());
        let (base, path_style) = match (endpoint, address.and_then(host_in)) {
            // Amazon's hosts follow from the region.
            (None, _) => base_of(None, region, bucket),
            (Some(_), None) => (self.base.clone(), self.path_style),
            (Some(endpoint), Some(host)) => {
                if !is_of_provider(&host, endpoint, &self.region) {
                    return Some(Err(format!(
                        "it is in region {region} at {host}: set both in a profile"
                    )));
                }
                let (scheme, _) = endpoint.split_once("://").unwrap_or(("https", ""));
                match host.starts_with(&format!("{bucket}.")) {
                    true => (format!("{scheme}://{host}"), false),
                    false => (format!("{scheme}://{host}/{bucket}"), true),
                }
            }
        };
        if region == self.region && base == self.base {
            return None;
        }
        let signer = self.signer.clone();
        Some(Ok(Self {
            signer: signer
                .map(|signer| signer.with_request_signer(RequestSigner::new("s3", region))),
            region: region.to_owned(),
            base,
            path_style,
        }))
    }
}

/// Returns the address of a bucket, and whether the bucket is part of the path.
fn base_of(endpoint: Option<&str>, region: &str, bucket: &str) -> (String, bool) {
    match endpoint {
        // Path style, since a private store rarely has a wildcard certificate.
        Some(endpoint) => (format!("{endpoint}/{bucket}"), true),
        // A dot in a bucket's name breaks the wildcard certificate.
        None if bucket.contains('.') => {
            let base = format!("https://s3.{region}.amazonaws.com/{bucket}");
            (base, true)
        }
        None => (format!("https://{bucket}.s3.{region}.amazonaws.com"), false),
    }
}

/// Returns whether a text can be a region: it becomes part of a host name.
fn is_region(text: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    (1..=32).contains(&text.len()) && text.bytes().all(is_plain)
}

/// Returns the host, with its port, of an address or a text that stands for one.
fn host_in(text: &str) -> Option<String> {
    let uri: Uri = text.parse().ok()?;
    Some(uri.authority()?.as_str().to_owned())
}

/// Returns whether a host belongs to the provider that runs `endpoint`, since it gets the files,
/// and requests signed with the keys. The name of an S3 service starts with its kind and region;
/// the provider's domain follows.
fn is_of_provider(host: &str, endpoint: &str, region: &str) -> bool {
    let Some(known) = host_in(endpoint) else {
        return false;
    };
    let is_of_service = |label: &str| label == "s3" || label.starts_with("s3-") || label == region;
    let mut provider = known.as_str();
    while let Some((_, rest)) = provider
        .split_once('.')
        .filter(|(label, _)| is_of_service(label))
    {
        provider = rest;
    }
    let is_below = provider.len() < known.len()
        && provider.contains('.')
        && host
            .strip_suffix(provider)
            .is_some_and(|rest| rest.ends_with('.'));
    host == known
        || host
            .strip_suffix(&known)
            .is_some_and(|rest| rest.ends_with('.'))
        || is_below
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent_on(
        endpoint: Option<&str>,
        status: u16,
        told: &[(&'static str, &str)],
        body: &str,
    ) -> String {
        let address = Address {
            endpoint: endpoint.map(str::to_owned),
            region: "us-1".to_owned(),
            realm: String::new(),
            requester_pays: false,
        };
        let mut headers = HeaderMap::new();
        for (name, value) in told {
            headers.insert(*name, value.parse().unwrap());
        }
        let status = StatusCode::from_u16(status).unwrap();
        let refusal = quick_xml::de::from_str(body).unwrap();
        let home = Home::of(&address, "b", None);
        match home.sent_on((endpoint, "b"), (status, &headers), &refusal) {
            Some(Ok(home)) => format!("{} {}", home.region, home.base),
            Some(Err(hint)) => hint,
            None => String::new(),
        }
    }

    #[test]
    fn the_region_is_taken_from_where_stores_tell_it() {
        let header = [("x-amz-bucket-region", "eu-1")];
        let amazon = "eu-1 https://b.s3.eu-1.amazonaws.com";
        for status in [301, 307, 400] {
            assert_eq!(sent_on(None, status, &header, "<Error/>"), amazon);
        }
        let body = "<Error><Code>AuthorizationHeaderMalformed</Code><Region>eu-1</Region></Error>";
        assert_eq!(sent_on(None, 400, &[], body), amazon);
        let own = Some("http://minio:9000");
        assert_eq!(sent_on(own, 400, &[], body), "eu-1 http://minio:9000/b");
        for region in ["us-1", "eu.evil.org/", ""] {
            let body = format!("<Error><Region>{region}</Region></Error>");
            assert_eq!(sent_on(None, 400, &[], &body), "");
        }
        assert_eq!(sent_on(None, 403, &header, "<Error/>"), "");
    }

    #[test]
    fn another_host_is_followed_where_it_is_the_providers() {
        let own = Some("https://s3.us-1.store.org");
        for (host, wanted) in [
            (
                "https://s3.eu-1.store.org/b/k?x",
                "us-1 https://s3.eu-1.store.org/b",
            ),
            (
                "http://b.s3.eu-1.store.org/k",
                "us-1 https://b.s3.eu-1.store.org",
            ),
            ("s3-eu-1.store.org", "us-1 https://s3-eu-1.store.org/b"),
            (
                "https://evilstore.org/b",
                "it is in region us-1 at evilstore.org: set both in a profile",
            ),
            (
                "https://org/b",
                "it is in region us-1 at org: set both in a profile",
            ),
        ] {
            assert_eq!(sent_on(own, 307, &[("location", host)], "<Error/>"), wanted);
        }
        let body = "<Error><Endpoint>s3.eu-1.store.org</Endpoint></Error>";
        assert_eq!(
            sent_on(own, 301, &[], body),
            "us-1 https://s3.eu-1.store.org/b"
        );
        // A name without a service name belongs only to itself.
        for (known, host) in [
            ("http://127.0.0.1:9000", "127.0.0.1:9001"),
            ("https://a.ac.uk", "b.ac.uk"),
        ] {
            let told = sent_on(Some(known), 307, &[("location", host)], "<Error/>");
            assert!(told.starts_with("it is in"), "{told}");
        }
    }
}
