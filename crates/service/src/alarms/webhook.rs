//! Signed requests, by [Standard Webhooks](https://www.standardwebhooks.com/).

use std::time::Duration;

use base64::{Engine, prelude::BASE64_STANDARD};
use bytes::Bytes;
use http::{Request, Uri, header};
use http_body_util::Full;
use hyper_util::{client::legacy::Client, rt::TokioExecutor};
use posthaste_endpoint::{
    Error, ErrorKind, Locus, Result, WebConnector, deepest, web_connector, web_tls,
};
use posthaste_types::Timestamp;
use ring::hmac;
use tokio::time::timeout;

use super::{book, notice::Notice};
use crate::secrets;

/// Longest response time of a receiver, as Standard Webhooks recommends.
const PATIENCE: Duration = Duration::from_secs(20);

/// Bytes of a secret, as Standard Webhooks bounds them.
const SECRET_BYTES: std::ops::RangeInclusive<usize> = 24..=64;

/// Longest pause that a receiver may ask for.
const PAUSE_MAX: Duration = Duration::from_secs(900);

/// Receiver of signed requests.
pub(super) struct Webhook {
    address: Uri,
    key: hmac::Key,
    client: Client<WebConnector, Full<Bytes>>,
}

impl Webhook {
    /// # Errors
    /// Errors of the files that it names, and [`ErrorKind::Invalid`] for an invalid secret.
    pub(super) fn open(of: &book::Webhook) -> Result<Self> {
        let is_secure = of.address.scheme_str() == Some("https");
        let tls = web_tls(is_secure, of.ca_file.as_deref())?;
        let text = secrets::read_private(&of.secret_file)?;
        let key = read_key(&text).ok_or_else(|| {
            let shown = of.secret_file.display().to_string();
            Error::new(ErrorKind::Invalid, "use the secret in", shown)
                .cause("it is not 24 to 64 bytes in base64")
                .hint("make one with: openssl rand -base64 32")
        })?;
        Ok(Self {
            address: of.address.clone(),
            key,
            // Alarms are rare: no connection would live until the next.
            client: Client::builder(TokioExecutor::new())
                .pool_max_idle_per_host(0)
                .build(web_connector(tls, PATIENCE)),
        })
    }

    /// # Errors
    /// [`ErrorKind::Unreachable`], [`ErrorKind::TimedOut`], and [`ErrorKind::Busy`] for an answer other than 2xx.
    pub(super) async fn tell(&self, notice: &Notice, now: Timestamp) -> Result<()> {
        let body = notice.json();
        let seconds = (now.as_micros() / 1_000_000).to_string();
        let request = Request::post(&self.address)
            .header(header::CONTENT_TYPE, "application/json")
            .header(
                header::USER_AGENT,
                concat!("posthaste/", env!("CARGO_PKG_VERSION")),
            )
            .header("webhook-id", &notice.id)
            .header("webhook-timestamp", &seconds)
            .header(
                "webhook-signature",
                sign(&self.key, [&notice.id, &seconds, &body]),
            )
            .body(Full::new(Bytes::from(body)))
            .map_err(|cause| self.fail(ErrorKind::Invalid).cause(cause))?;
        let asked = timeout(PATIENCE, self.client.request(request)).await;
        let late = |_| {
            let waited = format!("no answer within {} s", PATIENCE.as_secs());
            self.fail(ErrorKind::TimedOut).cause(waited)
        };
        let answer = asked
            .map_err(late)?
            .map_err(|cause| self.fail(ErrorKind::Unreachable).cause(deepest(&cause)))?;
        if answer.status().is_success() {
            return Ok(());
        }
        let error = self.fail(ErrorKind::Busy);
        let error = error.cause(format!("the receiver answered {}", answer.status()));
        let asked_for = answer.headers().get(header::RETRY_AFTER);
        let seconds = asked_for.and_then(|value| value.to_str().ok()?.trim().parse().ok());
        Err(match seconds.map(Duration::from_secs) {
            Some(pause) => error.retry_after(pause.min(PAUSE_MAX)),
            None => error,
        })
    }

    /// Returns an error that names only the host: an address may contain secrets.
    fn fail(&self, kind: ErrorKind) -> Error {
        let host = self.address.host().unwrap_or_default();
        Error::new(kind, "tell", format!("the webhook at {host}")).at(Locus::Destination)
    }
}

/// Returns the key in a secret's text: base64, with or without `whsec_`.
fn read_key(text: &str) -> Option<hmac::Key> {
    let bytes = BASE64_STANDARD.decode(text.strip_prefix("whsec_").unwrap_or(text));
    let bytes = bytes
        .ok()
        .filter(|bytes| SECRET_BYTES.contains(&bytes.len()))?;
    Some(hmac::Key::new(hmac::HMAC_SHA256, &bytes))
}

/// Signs an id, a time in seconds and a body.
fn sign(key: &hmac::Key, of: [&str; 3]) -> String {
    let tag = hmac::sign(key, of.join(".").as_bytes());
    format!("v1,{}", BASE64_STANDARD.encode(tag))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Uses the example of Standard Webhooks' own documents and libraries.
    #[test]
    fn it_signs_as_everybody_does() {
        let key = read_key("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").unwrap();
        let of = [
            "msg_p5jXN8AQM9LWM0D4loKWxJek",
            "1614265330",
            r#"{"test": 2432232314}"#,
        ];
        assert_eq!(
            sign(&key, of),
            "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
        );
        for wrong in [
            "",
            "whsec_",
            "MfKQ9r8G",
            "not base64, but long enough to be some",
        ] {
            assert!(read_key(wrong).is_none(), "{wrong}");
        }
    }
}
