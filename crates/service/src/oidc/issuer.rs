//! Asks an OpenID provider for its endpoints, its keys, and tokens.

use std::{path::Path, time::Duration};

use bytes::Bytes;
use http::{Method, Request, StatusCode, Uri, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper_util::{client::legacy::Client, rt::TokioExecutor};
use posthaste_endpoint::{
    Error, ErrorKind, Locus, Result, WebConnector, deepest, encode, relay::is_loopback,
    web_connector, web_tls,
};
use serde::Deserialize;
use serde_json::Value;
use tokio::time::timeout;

use super::keys::Keys;

/// Time limit for a provider's whole answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// Largest answer: discovery documents and keys have some thousand bytes, tokens with hundreds of
/// groups tens of thousands.
const ANSWER_BYTES_MAX: usize = 256 << 10;

/// OpenID provider.
#[derive(Debug, Clone)]
pub struct Issuer {
    name: String,
    client: Client<WebConnector, Full<Bytes>>,
}

/// Endpoints of a provider (OpenID Connect Discovery 1.0, section 3; RFC 8628, section 4).
#[derive(Debug, Clone, Deserialize)]
pub struct Discovery {
    issuer: String,
    jwks_uri: String,
    /// Endpoint that issues tokens.
    pub token_endpoint: String,
    /// Endpoint that starts a device's login; none if unsupported.
    #[serde(default)]
    pub device_authorization_endpoint: Option<String>,
    /// Endpoint that revokes tokens, if any.
    #[serde(default)]
    pub revocation_endpoint: Option<String>,
}

impl Issuer {
    /// Prepares the connection. Asks nothing yet.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] for an invalid or unsafe address; those of `ca_file`.
    pub fn open(name: &str, ca_file: Option<&Path>) -> Result<Self> {
        let address = safe(name)?;
        let is_secure = address.scheme_str() == Some("https");
        Ok(Self {
            name: name.to_owned(),
            client: Client::builder(TokioExecutor::new())
                .pool_max_idle_per_host(0)
                .build(web_connector(web_tls(is_secure, ca_file)?, PATIENCE)),
        })
    }

    /// Fetches the discovery document.
    ///
    /// # Errors
    /// [`ErrorKind::Unreachable`], [`ErrorKind::TimedOut`], and [`ErrorKind::Invalid`] for an
    /// invalid document, or another issuer's.
    pub async fn discover(&self) -> Result<Discovery> {
        let base = self.name.trim_end_matches('/');
        let address = format!("{base}/.well-known/openid-configuration");
        let found: Discovery = self.get(&address).await?;
        if found.issuer != self.name {
            return Err(self
                .fail(ErrorKind::Invalid)
                .cause(format!("it says that it is {:.200}", found.issuer))
                .hint("the issuer in the settings is to be written as it writes it itself"));
        }
        Ok(found)
    }

    /// Fetches the provider's keys.
    ///
    /// # Errors
    /// Errors of [`Issuer::discover`].
    pub(super) async fn keys(&self, discovery: &Discovery) -> Result<Keys> {
        let keys = Keys::new(self.get(&discovery.jwks_uri).await?);
        if keys.is_empty() {
            let error = self.fail(ErrorKind::Invalid);
            return Err(error.cause("it has no key that signs with RSA, ECDSA or Ed25519"));
        }
        Ok(keys)
    }

    async fn get<T: serde::de::DeserializeOwned>(&self, address: &str) -> Result<T> {
        let (status, body) = self.send(Method::GET, address, String::new()).await?;
        if status != StatusCode::OK {
            let error = self.fail(ErrorKind::Unreachable);
            return Err(error.cause(format!("it answered {status} to {address}")));
        }
        serde_json::from_slice(&body).map_err(|cause| {
            let error = self.fail(ErrorKind::Invalid);
            error.cause(format!("{address} is not what it should be: {cause}"))
        })
    }

    /// Sends a form and returns the answer, whatever its status.
    ///
    /// # Errors
    /// [`ErrorKind::Unreachable`], [`ErrorKind::TimedOut`], and [`ErrorKind::Invalid`] for an
    /// answer that is neither empty nor JSON.
    pub async fn post(&self, address: &str, form: &[(&str, &str)]) -> Result<(StatusCode, Value)> {
        let pairs = form.iter().map(|(name, value)| {
            let value = encode(value.as_bytes(), false);
            format!("{name}={value}")
        });
        let form = pairs.collect::<Vec<_>>().join("&");
        let (status, body) = self.send(Method::POST, address, form).await?;
        if body.is_empty() {
            return Ok((status, Value::Null));
        }
        let answer = serde_json::from_slice(&body).map_err(|_| {
            // The answer may hold a token, so it is not shown.
            let error = self.fail(ErrorKind::Invalid);
            error.cause(format!("it answered {status} to {address}, and no JSON"))
        })?;
        Ok((status, answer))
    }

    async fn send(
        &self,
        method: Method,
        address: &str,
        form: String,
    ) -> Result<(StatusCode, Bytes)> {
        let request = Request::builder()
            .method(method)
            .uri(safe(address)?)
            .header(header::ACCEPT, "application/json")
            .header(header::CONTENT_TYPE, "application/x-www-form-urlencoded")
            .body(Full::from(form))
            .map_err(|cause| self.fail(ErrorKind::Invalid).cause(cause))?;
        let asked = async {
            let unreachable = |cause: &dyn std::error::Error| {
                self.fail(ErrorKind::Unreachable).cause(deepest(cause))
            };
            let answer = self.client.request(request).await;
            let answer = answer.map_err(|cause| unreachable(&cause))?;
            let status = answer.status();
            let body = Limited::new(answer.into_body(), ANSWER_BYTES_MAX).collect();
            let body = body.await.map_err(|cause| unreachable(&*cause))?;
            Ok((status, body.to_bytes()))
        };
        timeout(PATIENCE, asked).await.unwrap_or_else(|_| {
            let waited = format!("no whole answer within {} s", PATIENCE.as_secs());
            Err(self.fail(ErrorKind::TimedOut).cause(waited))
        })
    }

    fn fail(&self, kind: ErrorKind) -> Error {
        Error::new(kind, "ask", format!("the OpenID provider {}", self.name)).at(Locus::Network)
    }
}

/// Parses an address that nobody on the path can read or change.
///
/// # Errors
/// [`ErrorKind::Invalid`] for another.
pub(super) fn safe(address: &str) -> Result<Uri> {
    let invalid = |why: &str| {
        Error::new(
            ErrorKind::Invalid,
            "ask",
            format!("the OpenID provider at {address:.200}"),
        )
        .cause(why.to_owned())
    };
    let uri: Uri = address.parse().map_err(|_| invalid("it is no address"))?;
    match (uri.scheme_str(), uri.host()) {
        (Some("https"), Some(_)) => Ok(uri),
        (Some("http"), Some(host)) if is_loopback(host) => Ok(uri),
        _ => Err(invalid("it is neither https:// nor on this machine")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_asked_in_the_clear_beyond_this_machine() {
        for good in [
            "https://id.example",
            "http://127.0.0.1:8080/realm",
            "http://[::1]/",
        ] {
            safe(good).unwrap();
        }
        for bad in [
            "http://id.example",
            "id.example",
            "ftp://id.example",
            "",
            "/realm",
        ] {
            assert_eq!(safe(bad).unwrap_err().kind(), ErrorKind::Invalid, "{bad}");
        }
    }
}
