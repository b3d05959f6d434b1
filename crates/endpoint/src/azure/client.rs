//! Single requests to the blobs of one container, signed without reading the body.

use std::{
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode, Uri, header};
use hyper::body::Incoming;

use super::{
    account::{Account, Credential},
    page::Page,
    refusal::refusal,
    sign::{self, Signed},
};
use crate::{
    ErrorKind, FileTime, Result, clock, dates,
    reach::Reach,
    web::{About, STALLED_AFTER, Sent, Web, encode, read_refusal, read_whole},
};

/// Version of the service whose answers this client understands: blocks of 4000 MiB, checksums of
/// blocks, names that XML can't hold.
pub(super) const VERSION: &str = "2021-12-02";

/// Time that the service may take for one request before it answers.
const PATIENCE: Duration = STALLED_AFTER;

/// Request to the service.
pub(super) struct Call<'a> {
    method: &'static str,
    /// Blob; `None` for the container.
    key: Option<&'a str>,
    /// Other container, if not the client's.
    container: Option<&'a str>,
    query: Vec<(&'a str, &'a str)>,
    headers: Vec<(&'static str, String)>,
    body: Sent,
    about: About,
}

impl<'a> Call<'a> {
    /// Creates a request about the blob `key`.
    pub(super) fn new(method: &'static str, key: &'a str, about: About) -> Self {
        Self {
            method,
            key: Some(key),
            container: None,
            query: Vec::new(),
            headers: Vec::new(),
            body: Sent::nothing(),
            about,
        }
    }

    /// Creates a request about the container.
    pub(super) fn container(method: &'static str, about: About) -> Self {
        Self {
            key: None,
            ..Self::new(method, "", about)
        }
    }

    /// Directs the request to another container.
    pub(super) fn in_container(mut self, container: &'a str) -> Self {
        self.container = Some(container);
        self
    }

    pub(super) fn query(mut self, query: &[(&'a str, &'a str)]) -> Self {
        self.query.extend_from_slice(query);
        self
    }

    pub(super) fn header(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }

    pub(super) fn headers(mut self, headers: Vec<(&'static str, String)>) -> Self {
        self.headers.extend(headers);
        self
    }

    pub(super) fn body(mut self, body: Sent) -> Self {
        self.body = body;
        self
    }
}

/// Client of one container.
pub(crate) struct AzureClient {
    web: Web,
    account: Account,
    container: String,
    /// True while the service is believed to check the CRC-64/NVME of uploads.
    knows_sums: AtomicBool,
}

impl AzureClient {
    /// # Errors
    /// Fails if no certificates can be had.
    pub(super) fn new(account: Account, container: &str, reach: Reach) -> Result<Self> {
        Ok(Self {
            web: Web::reaching(reach, account.ca_file.as_deref())?,
            account,
            container: container.to_owned(),
            knows_sums: AtomicBool::new(true),
        })
    }

    pub(super) fn knows_sums(&self) -> bool {
        self.knows_sums.load(Relaxed)
    }

    /// Records that the service refused an unknown checksum.
    pub(super) fn learn_no_sums(&self) {
        self.knows_sums.store(false, Relaxed);
    }

    /// Returns the round trip time to the service, once something connected.
    pub(super) fn round_trip(&self) -> Option<Duration> {
        self.web.round_trip()
    }

    /// Returns the name of the account and of our rights there.
    pub(super) fn realm(&self) -> String {
        let Account {
            base, credential, ..
        } = &self.account;
        format!("azblob {base} {}", credential.fingerprint())
    }

    /// Returns the name of the container, for records of unfinished uploads.
    pub(super) fn place(&self) -> String {
        format!("{}/{}", self.account.base, self.container)
    }

    pub(super) fn credential(&self) -> &Credential {
        &self.account.credential
    }

    pub(super) fn container(&self) -> &str {
        &self.container
    }

    /// Returns the address of `key` for messages.
    pub(super) fn show(&self, key: &str) -> String {
        if key.is_empty() {
            return format!("azblob://{}", self.container);
        }
        format!("azblob://{}/{key}", self.container)
    }

    pub(super) fn reading(&self, operation: &'static str, key: &str) -> About {
        About::reading(operation, self.show(key))
    }

    pub(super) fn writing(&self, operation: &'static str, key: &str) -> About {
        About::writing(operation, self.show(key))
    }

    /// Returns the address of `container/key`, from which the service itself reads: with the
    /// signature, which makes it a secret.
    pub(super) fn source(&self, place: &str) -> String {
        let address = format!("{}/{}", self.account.base, encode(place.as_bytes(), true));
        match &self.account.credential {
            Credential::Sas(sas) => format!("{address}?{}", sas.reveal()),
            Credential::Key { .. } | Credential::Token(_) | Credential::Nobody => address,
        }
    }

    fn uri(&self, call: &Call<'_>) -> Result<Uri> {
        let container = call.container.unwrap_or(&self.container);
        let mut text = format!("{}/{container}", self.account.base);
        if let Some(key) = call.key {
            text.push('/');
            text.push_str(&encode(key.as_bytes(), true));
        }
        let mut mark = '?';
        for (name, value) in &call.query {
            text.push(mark);
            text.push_str(name);
            text.push('=');
            text.push_str(&encode(value.as_bytes(), false));
            mark = '&';
        }
        if let Credential::Sas(sas) = &self.account.credential {
            text.push(mark);
            text.push_str(sas.reveal());
        }
        Uri::try_from(text).map_err(|cause| call.about.fail(ErrorKind::Invalid).cause(cause))
    }

    /// Returns the authorization header, unless the credential is a bearer token.
    fn authorization(&self, call: &Call<'_>, uri: &Uri) -> Result<Option<HeaderValue>> {
        let text = match &self.account.credential {
            Credential::Sas(_) | Credential::Token(_) | Credential::Nobody => return Ok(None),
            Credential::Key { account, key } => {
                let signed = Signed {
                    method: call.method,
                    path: uri.path(),
                    query: &call.query,
                    headers: &call.headers,
                    body_len: call.body.len(),
                };
                sign::authorization(account, key, &signed)
            }
        };
        let value = HeaderValue::try_from(text);
        let mut value = value.map_err(|_| {
            let error = call.about.fail(ErrorKind::Invalid);
            error.cause("the account's name has characters no header can carry")
        })?;
        value.set_sensitive(true);
        Ok(Some(value))
    }

    /// Sends the request and returns the answer.
    ///
    /// # Errors
    /// Refusals of the service, by their code; errors of [`Web::send`].
    pub(super) async fn send(&self, mut call: Call<'_>) -> Result<Response<Incoming>> {
        let secs = i64::try_from(clock::unix_secs()).unwrap_or(i64::MAX);
        let date = dates::show_http(FileTime { secs, nanos: 0 });
        call.headers.push(("x-ms-date", date));
        call.headers.push(("x-ms-version", VERSION.to_owned()));
        let uri = self.uri(&call)?;
        let authorization = match &self.account.credential {
            Credential::Token(token) => Some(token.header(&self.web).await?),
            Credential::Key { .. } | Credential::Sas(_) | Credential::Nobody => {
                self.authorization(&call, &uri)?
            }
        };
        let mut request = Request::builder().method(call.method).uri(uri);
        for (name, value) in &call.headers {
            request = request.header(*name, value);
        }
        if let Some(authorization) = &authorization {
            request = request.header(header::AUTHORIZATION, authorization);
        }
        let about = call.about;
        let request = request
            .header(
                header::USER_AGENT,
                concat!("posthaste/", env!("CARGO_PKG_VERSION")),
            )
            .body(call.body)
            .map_err(|cause| about.fail(ErrorKind::Invalid).cause(cause))?;
        let response = self.web.send(request, &about, PATIENCE).await?;
        if response.status().is_success() {
            return Ok(response);
        }
        let (head, body) = response.into_parts();
        let body = read_refusal(body).await;
        if let (Credential::Token(token), Some(shown)) = (&self.account.credential, &authorization)
            && head.status == StatusCode::UNAUTHORIZED
            && token.forget(shown).await
        {
            // The next attempt uses a new one.
            return Err(about.fail(ErrorKind::Busy).cause("the token has ended"));
        }
        Err(refusal(&about, head.status, &head.headers, &body))
    }

    /// Sends the request and reads the whole answer.
    ///
    /// # Errors
    /// Errors of [`AzureClient::send`].
    pub(super) async fn ask(&self, call: Call<'_>) -> Result<(HeaderMap, Bytes)> {
        let about = call.about.clone();
        let (head, body) = self.send(call).await?.into_parts();
        Ok((head.headers, read_whole(body, &about).await?))
    }

    /// Sends a request that stores something, and returns the headers of the answer. A page with
    /// another success status stores nothing.
    ///
    /// # Errors
    /// Errors of [`AzureClient::send`]; [`ErrorKind::Other`] for a success status other than the
    /// one for stored.
    pub(super) async fn store(&self, call: Call<'_>) -> Result<HeaderMap> {
        let about = call.about.clone();
        let (head, body) = self.send(call).await?.into_parts();
        if head.status != StatusCode::CREATED {
            return Err(about
                .fail(ErrorKind::Other)
                .cause(format!(
                    "answered {}, which does not say that it is stored",
                    head.status
                ))
                .hint("check the address, and what is between here and there"));
        }
        read_whole(body, &about).await?;
        Ok(head.headers)
    }

    /// Requests a page of names.
    ///
    /// # Errors
    /// Errors of [`AzureClient::send`]; [`ErrorKind::Other`] for an invalid answer.
    pub(super) async fn ask_page(&self, prefix: &str, query: &[(&str, &str)]) -> Result<Page> {
        let about = self.reading("list", prefix.trim_end_matches('/'));
        let mut call = Call::container("GET", about.clone())
            .query(&[("restype", "container"), ("comp", "list")])
            .query(&[("include", "metadata")])
            .query(query);
        if !prefix.is_empty() {
            call = call.query(&[("prefix", prefix)]);
        }
        let (_, body) = self.ask(call).await?;
        Page::parse(&body).map_err(|cause| {
            let error = about.fail(ErrorKind::Other);
            error.cause(format!("unreadable answer: {cause}"))
        })
    }
}
