//! Single requests to Google Cloud Storage's JSON API, over kept connections.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, StatusCode, Uri, header};
use hyper::body::Incoming;
use serde::de::DeserializeOwned;

use super::{credentials::Authority, refusal};
use crate::{
    Error, ErrorKind, Result,
    web::{About, Sent, Web, drain, encode, read_whole},
};

/// Time that the store may take before it answers: a composition takes longest.
const ANSWERS_WITHIN: Duration = Duration::from_secs(300);

/// Request to the store.
pub(super) struct Call {
    pub method: Method,
    /// Path of the request, percent-encoded.
    pub path: String,
    pub query: Vec<(&'static str, String)>,
    pub headers: Vec<(&'static str, String)>,
    pub body: Sent,
    pub about: About,
}

impl Call {
    pub(super) fn new(method: Method, path: String, about: About) -> Self {
        Self {
            method,
            path,
            query: Vec::new(),
            headers: Vec::new(),
            body: Sent::nothing(),
            about,
        }
    }

    pub(super) fn query(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.query.push((name, value.into()));
        self
    }

    pub(super) fn header(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }

    pub(super) fn pieces(mut self, content_type: String, pieces: Vec<Bytes>) -> Self {
        self.headers.push(("content-type", content_type));
        self.body = Sent::pieces(pieces);
        self
    }

    /// Sets the body like [`Call::pieces`], with the bytes of a file among them.
    pub(super) fn payload(mut self, content_type: String, pieces: Vec<Bytes>) -> Self {
        self.headers.push(("content-type", content_type));
        self.body = Sent::payload(pieces);
        self
    }

    pub(super) fn json(self, value: &serde_json::Value) -> Self {
        let text = value.to_string().into();
        self.pieces("application/json; charset=utf-8".to_owned(), vec![text])
    }

    fn target(&self) -> String {
        let mut target = self.path.clone();
        for (index, (name, value)) in self.query.iter().enumerate() {
            target.push(if index == 0 { '?' } else { '&' });
            target.push_str(name);
            target.push('=');
            target.push_str(&encode(value.as_bytes(), false));
        }
        target
    }
}

/// Client of one bucket.
pub(crate) struct GcsClient {
    web: Web,
    authority: Authority,
    /// URL `https://host` or `http://host:port`.
    base: String,
    bucket: String,
    /// Boundary between the pieces of one body, which no file can contain by design.
    boundary: String,
}

impl GcsClient {
    pub(super) fn new(
        web: Web,
        authority: Authority,
        base: String,
        bucket: String,
    ) -> Result<Self> {
        let mut secret = [0; 16];
        getrandom::fill(&mut secret)
            .map_err(|cause| Error::new(ErrorKind::Other, "get", "random bytes").cause(cause))?;
        let digits: String = secret.iter().map(|byte| format!("{byte:02x}")).collect();
        Ok(Self {
            web,
            authority,
            base,
            bucket,
            boundary: format!("posthaste-{digits}"),
        })
    }

    /// Returns the round trip time to the store, once something connected.
    pub(super) fn round_trip(&self) -> Option<Duration> {
        self.web.round_trip()
    }

    pub(super) fn base(&self) -> &str {
        &self.base
    }

    pub(super) fn bucket(&self) -> &str {
        &self.bucket
    }

    pub(super) fn boundary(&self) -> &str {
        &self.boundary
    }

    /// Returns the name of the store and of the requester.
    pub(super) fn realm(&self) -> String {
        format!("gs {} {}", self.base, self.authority.name())
    }

    /// Returns the address of `key` for messages.
    pub(super) fn show(&self, key: &str) -> String {
        if key.is_empty() {
            return format!("gs://{}", self.bucket);
        }
        format!("gs://{}/{key}", self.bucket)
    }

    /// Returns the path of the bucket's objects.
    pub(super) fn objects(&self) -> String {
        objects_in(&self.bucket)
    }

    /// Returns the path of an object.
    pub(super) fn object(&self, key: &str) -> String {
        object_in(&self.bucket, key)
    }

    /// Sends the request and returns the answer's head and body.
    ///
    /// # Errors
    /// Refusals of the store, by their reason; [`ErrorKind::Unreachable`], [`ErrorKind::TimedOut`].
    pub(super) async fn send(&self, call: Call) -> Result<Response<Incoming>> {
        let again = call.body.again();
        let about = call.about.clone();
        let uri = Uri::try_from(format!("{}{}", self.base, call.target()))
            .map_err(|cause| about.fail(ErrorKind::Invalid).cause(cause))?;
        let (head, body) = (Head::of(&call), call.body);
        let shown = self.authority.header(&self.web).await?;
        let response = self
            .try_to_send((&head, &uri), body, &shown, &about)
            .await?;
        // A token may be revoked before its time; a new one is worth one more request.
        if response.status() == StatusCode::UNAUTHORIZED
            && let Some(body) = again
            && self.authority.forget(&shown).await
        {
            drain(response.into_body()).await;
            let shown = self.authority.header(&self.web).await?;
            let response = self
                .try_to_send((&head, &uri), body, &shown, &about)
                .await?;
            return accepted(response, &about).await;
        }
        accepted(response, &about).await
    }

    async fn try_to_send(
        &self,
        (head, uri): (&Head, &Uri),
        body: Sent,
        authorization: &Option<HeaderValue>,
        about: &About,
    ) -> Result<Response<Incoming>> {
        let mut request = Request::builder().method(&head.method).uri(uri);
        for (name, value) in &head.headers {
            request = request.header(*name, value);
        }
        if let Some(authorization) = authorization {
            request = request.header(header::AUTHORIZATION, authorization);
        }
        let agent = concat!("posthaste/", env!("CARGO_PKG_VERSION"));
        let request = request
            .header(header::USER_AGENT, agent)
            .body(body)
            .map_err(|cause| about.fail(ErrorKind::Invalid).cause(cause))?;
        self.web.send(request, about, ANSWERS_WITHIN).await
    }

    /// Sends the request and parses the answer as JSON.
    ///
    /// # Errors
    /// Errors of [`GcsClient::send`]; [`ErrorKind::Other`] for an invalid answer.
    pub(super) async fn ask<T: DeserializeOwned>(&self, call: Call) -> Result<T> {
        let about = call.about.clone();
        let response = self.send(call).await?;
        let body = read_whole(response.into_body(), &about).await?;
        serde_json::from_slice(&body).map_err(|cause| {
            let error = about.fail(ErrorKind::Other);
            error.cause(format!("unreadable answer: {cause}"))
        })
    }

    /// Sends a request that only needs to succeed.
    ///
    /// # Errors
    /// Errors of [`GcsClient::send`].
    pub(super) async fn command(&self, call: Call) -> Result<()> {
        let response = self.send(call).await?;
        drain(response.into_body()).await;
        Ok(())
    }
}

/// Fields that two attempts share.
struct Head {
    method: Method,
    headers: Vec<(&'static str, String)>,
}

impl Head {
    fn of(call: &Call) -> Self {
        Self {
            method: call.method.clone(),
            headers: call.headers.clone(),
        }
    }
}

async fn accepted(response: Response<Incoming>, about: &About) -> Result<Response<Incoming>> {
    if response.status().is_success() {
        return Ok(response);
    }
    Err(refusal::read(response, about).await)
}

/// Returns the path of a bucket's objects.
pub(super) fn objects_in(bucket: &str) -> String {
    format!("/storage/v1/b/{}/o", encode(bucket.as_bytes(), false))
}

/// Returns the path of an object in a bucket. A slash in its key is not one of the path.
pub(super) fn object_in(bucket: &str, key: &str) -> String {
    format!("{}/{}", objects_in(bucket), encode(key.as_bytes(), false))
}
