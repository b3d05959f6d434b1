//! Single S3 requests over kept connections, signed without reading the body.

use std::{
    sync::{
        OnceLock,
        atomic::{AtomicBool, AtomicU8, Ordering::Relaxed},
    },
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, StatusCode, Uri, request};
use hyper::body::Incoming;
use reqsign_aws_v4::Credential;
use reqsign_core::Signer;

use super::{
    held::Etags,
    home::{Address, Home},
    page::Page,
    refusal::{parse_refusal, refused},
    sums::{Sum, Sums},
    wire::{Refusal, encode, root_of},
};
use crate::{
    Error, ErrorKind, Locus, Pass, Result, Status, config,
    web::{About, STALLED_AFTER, Sent, Web, read_refusal, read_whole},
};

/// Value in place of the body's hash, which the signature does not cover.
const UNSIGNED: &str = "UNSIGNED-PAYLOAD";

/// Request to the store.
pub(super) struct Call<'a> {
    pub method: Method,
    pub key: &'a str,
    pub query: &'a [(&'a str, &'a str)],
    pub headers: Vec<(&'static str, String)>,
    pub body: Sent,
    /// Value of `x-amz-content-sha256`.
    pub signed_as: &'static str,
    /// Operation for errors: a verb and the locus of a fault.
    pub operation: &'static str,
    pub locus: Locus,
    /// Time that the store may take before it answers.
    pub patience: Duration,
}

impl<'a> Call<'a> {
    pub(super) fn new(method: Method, key: &'a str, operation: &'static str) -> Self {
        Self {
            method,
            key,
            query: &[],
            headers: Vec::new(),
            body: Sent::nothing(),
            signed_as: UNSIGNED,
            operation,
            locus: Locus::Source,
            patience: STALLED_AFTER,
        }
    }

    pub(super) fn query(mut self, query: &'a [(&'a str, &'a str)]) -> Self {
        self.query = query;
        self
    }

    pub(super) fn header(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }

    pub(super) fn body(mut self, pieces: Vec<Bytes>) -> Self {
        self.body = Sent::pieces(pieces);
        self
    }

    /// Sets the body like [`Call::body`], with the bytes of a file.
    pub(super) fn payload(mut self, pieces: Vec<Bytes>) -> Self {
        self.body = Sent::payload(pieces);
        self
    }

    pub(super) fn at(mut self, locus: Locus) -> Self {
        self.locus = locus;
        self
    }

    pub(super) fn patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }
}

/// Client of one bucket.
pub(super) struct S3Client {
    web: Web,
    address: Address,
    bucket: String,
    /// Configured address of the bucket.
    told: Home,
    /// Address to which the store redirected, which it may do once.
    found: OnceLock<Home>,
    /// Checksums that the store accepts.
    pub(super) sums: Sums,
    /// Kind of its ETags.
    pub(super) etags: Etags,
    streams: AtomicU8,
    /// True if the store reports wrong checksums of segments that it copied.
    pub(super) miscounts: AtomicBool,
}

/// Checksums with which the store accepts streamed segments: none, or these.
const STREAMS_NOT: u8 = 1;
const STREAMS_CRC64: u8 = 2;
const STREAMS_CRC32C: u8 = 3;

impl S3Client {
    pub(super) fn new(
        web: Web,
        signer: Option<Signer<Credential>>,
        address: Address,
        bucket: String,
    ) -> Self {
        Self {
            web,
            told: Home::of(&address, &bucket, signer),
            found: OnceLock::new(),
            address,
            bucket,
            sums: Sums::default(),
            etags: Etags::default(),
            streams: AtomicU8::new(0),
            miscounts: AtomicBool::new(false),
        }
    }

    /// Creates a client of another bucket of this store.
    pub(super) fn sibling(&self, bucket: &str) -> Self {
        let (web, signer) = (self.web.clone(), self.told.signer.clone());
        Self::new(web, signer, self.address.clone(), bucket.to_owned())
    }

    /// Returns the trailing checksum with which the store accepts streamed segments, in an upload
    /// begun with `sum`. `None` before the store was probed; MD5 if it accepts none.
    pub(super) fn trailing(&self, sum: Sum) -> Option<Sum> {
        let found = match self.streams.load(Relaxed) {
            STREAMS_CRC64 => Sum::Crc64,
            STREAMS_CRC32C => Sum::Crc32c,
            STREAMS_NOT => return Some(Sum::Md5),
            _ => return None,
        };
        // An upload with another checksum does not accept it any more.
        (sum == Sum::Md5 || sum == found).then_some(found)
    }

    /// Records the result of a probe for [`S3Client::trailing`].
    pub(super) fn found_trailing(&self, sum: Sum) {
        let found = match sum {
            Sum::Crc64 => STREAMS_CRC64,
            Sum::Crc32c => STREAMS_CRC32C,
            Sum::Md5 => STREAMS_NOT,
        };
        self.streams.store(found, Relaxed);
    }

    /// Returns whether segments are streamed, as far as is known.
    pub(super) fn takes_streams(&self) -> bool {
        let trailing = self.trailing(self.sums.preferred());
        trailing.is_some_and(|sum| sum != Sum::Md5)
    }

    /// Returns the round trip time to the store, once something connected.
    pub(super) fn round_trip(&self) -> Option<Duration> {
        self.web.round_trip()
    }

    /// Returns the address of the bucket.
    pub(super) fn base(&self) -> &str {
        &self.told.base
    }

    fn home(&self) -> &Home {
        self.found.get().unwrap_or(&self.told)
    }

    pub(super) fn realm(&self) -> &str {
        &self.address.realm
    }

    pub(super) fn bucket(&self) -> &str {
        &self.bucket
    }

    /// Returns the address of `key` for messages.
    pub(super) fn show(&self, key: &str) -> String {
        if key.is_empty() {
            return format!("s3://{}", self.bucket);
        }
        format!("s3://{}/{key}", self.bucket)
    }

    fn about(&self, call: &Call<'_>) -> About {
        About {
            operation: call.operation,
            subject: self.show(call.key),
            locus: call.locus,
        }
    }

    fn uri(&self, home: &Home, call: &Call<'_>, about: &About) -> Result<Uri> {
        let mut text = format!("{}/{}", home.base, encode(call.key, true));
        if call.key.is_empty() && home.path_style {
            text.pop();
        }
        for (index, (name, value)) in call.query.iter().enumerate() {
            text.push(if index == 0 { '?' } else { '&' });
            text.push_str(&encode(name, false));
            text.push('=');
            text.push_str(&encode(value, false));
        }
        Uri::try_from(text).map_err(|cause| about.fail(ErrorKind::Invalid).cause(cause))
    }

    /// Sends the request and returns the answer's head and body.
    ///
    /// # Errors
    /// Refusals of the store, by their code; [`ErrorKind::Unreachable`], [`ErrorKind::TimedOut`].
    pub(super) async fn send(&self, mut call: Call<'_>) -> Result<Response<Incoming>> {
        let (about, again) = (self.about(&call), call.body.again());
        let home = self.home();
        let body = std::mem::replace(&mut call.body, Sent::nothing());
        let request = self.request(home, &call, &about)?;
        let (patience, request) = (call.patience, Request::from_parts(request, body));
        let refused = match self.try_to_send(home, request, &about, patience).await? {
            Ok(answer) => return Ok(answer),
            Err(refused) => refused,
        };
        let (bucket, endpoint) = (&*self.bucket, self.address.endpoint.as_deref());
        let (status, headers) = (refused.status, &refused.headers);
        let sent_on = home.sent_on((endpoint, bucket), (status, headers), &refused.told);
        let error = refused.error(&about);
        let found = match sent_on {
            None => return Err(error),
            Some(Err(hint)) => return Err(error.hint(hint)),
            Some(Ok(found)) => self.found.get_or_init(|| found),
        };
        if std::ptr::eq(found, home) {
            return Err(error);
        }
        // The caller reads a body that can't be sent again from its source once more.
        let Some(body) = again else {
            return Err(error.status_is(Status::Temporary));
        };
        let request = self.request(found, &call, &about)?;
        let request = Request::from_parts(request, body);
        let answer = self.try_to_send(found, request, &about, patience).await?;
        answer.map_err(|refused| refused.error(&about))
    }

    async fn try_to_send(
        &self,
        home: &Home,
        request: Request<Sent>,
        about: &About,
        patience: Duration,
    ) -> Result<Result<Response<Incoming>, Refused>> {
        let (mut head, body) = request.into_parts();
        if let Some(signer) = &home.signer {
            sign(signer, &mut head, None, about).await?;
        }
        let is_put = head.method == "PUT";
        let request = Request::from_parts(head, body);
        let answer = self.web.send(request, about, patience).await?;
        let status = answer.status();
        if is_put && matches!(status.as_u16(), 202..=299) {
            let error = about.fail(ErrorKind::Other);
            return Err(error.cause(format!(
                "the store answers {status}, which says of no object that it is there"
            )));
        }
        if status.is_success() {
            return Ok(Ok(answer));
        }
        let (head, body) = answer.into_parts();
        Ok(Err(Refused {
            status: head.status,
            headers: head.headers,
            told: parse_refusal(&read_refusal(body).await),
        }))
    }

    /// Builds the head of the request, unsigned.
    fn request(&self, home: &Home, call: &Call<'_>, about: &About) -> Result<request::Parts> {
        let request = self.begin(home, call, about)?;
        let request = request.header("x-amz-content-sha256", call.signed_as);
        let request = request.body(());
        let request = request.map_err(|cause| about.fail(ErrorKind::Invalid).cause(cause))?;
        Ok(request.into_parts().0)
    }

    /// Builds the request's method, address and headers.
    fn begin(&self, home: &Home, call: &Call<'_>, about: &About) -> Result<request::Builder> {
        let mut request = Request::builder()
            .method(&call.method)
            .uri(self.uri(home, call, about)?);
        for (name, value) in &call.headers {
            request = request.header(*name, value);
        }
        if self.address.requester_pays {
            request = request.header("x-amz-request-payer", "requester");
        }
        Ok(request)
    }

    /// Presigns a URL that allows anybody to make this request, with its headers, for `lifetime`.
    ///
    /// # Errors
    /// [`ErrorKind::Unauthenticated`] without credentials that are valid for that long.
    pub(super) async fn presign(&self, call: Call<'_>, lifetime: Duration) -> Result<Pass> {
        let (about, home) = (self.about(&call), self.home());
        let signer = home.signer.as_ref().ok_or_else(|| {
            let error = about.fail(ErrorKind::Unauthenticated);
            error.cause("only who has keys can hand something out")
        })?;
        let request = self
            .begin(home, &call, &about)?
            .body(())
            .map_err(|cause| about.fail(ErrorKind::Invalid).cause(cause))?;
        let headers = request.headers().clone();
        let (mut head, ()) = request.into_parts();
        sign(signer, &mut head, Some(lifetime), &about).await?;
        let url = head.uri.to_string();
        Ok(Pass { url, headers })
    }

    /// Sends the request and reads the whole answer.
    ///
    /// # Errors
    /// Errors of [`S3Client::send`].
    pub(super) async fn ask(&self, call: Call<'_>) -> Result<(HeaderMap, Bytes)> {
        let about = self.about(&call);
        let (head, body) = self.send(call).await?.into_parts();
        let body = read_whole(body, &about).await?;
        // A store that works for long first answers with success, and then perhaps with an error.
        if root_of(&body) == b"Error" {
            let status = StatusCode::INTERNAL_SERVER_ERROR;
            return Err(refused(
                &about,
                status,
                &head.headers,
                &parse_refusal(&body),
            ));
        }
        Ok((head.headers, body))
    }

    /// Sends the request and parses the answer as XML.
    ///
    /// # Errors
    /// Errors of [`S3Client::send`]; [`ErrorKind::Other`] for an invalid answer.
    pub(super) async fn ask_xml<T: serde::de::DeserializeOwned>(
        &self,
        call: Call<'_>,
    ) -> Result<T> {
        Ok(self.ask_headed_xml(call).await?.1)
    }

    /// Sends the request, parses the answer as XML and returns its headers too.
    ///
    /// # Errors
    /// Errors of [`S3Client::ask_xml`].
    pub(super) async fn ask_headed_xml<T: serde::de::DeserializeOwned>(
        &self,
        call: Call<'_>,
    ) -> Result<(HeaderMap, T)> {
        self.ask_and_read(call, |body| {
            if !root_of(body).ends_with(b"Result") {
                return Err("it is no result".to_owned());
            }
            quick_xml::de::from_reader(body).map_err(|cause| cause.to_string())
        })
        .await
    }

    /// Requests a page of keys.
    ///
    /// # Errors
    /// Errors of [`S3Client::ask_xml`].
    pub(super) async fn ask_page(&self, query: &[(&str, &str)]) -> Result<Page> {
        let call = Call::new(Method::GET, "", "list").query(query);
        Ok(self.ask_and_read(call, Page::parse).await?.1)
    }

    async fn ask_and_read<T>(
        &self,
        call: Call<'_>,
        read: impl FnOnce(&[u8]) -> Result<T, String>,
    ) -> Result<(HeaderMap, T)> {
        let about = self.about(&call);
        let (headers, body) = self.ask(call).await?;
        let read = read(&body).map_err(|cause| {
            let error = about.fail(ErrorKind::Other);
            error.cause(format!("unreadable answer: {cause}"))
        });
        Ok((headers, read?))
    }
}

/// Refused request.
struct Refused {
    status: StatusCode,
    headers: HeaderMap,
    told: Refusal,
}

impl Refused {
    fn error(&self, about: &About) -> Error {
        refused(about, self.status, &self.headers, &self.told)
    }
}

async fn sign(
    signer: &Signer<Credential>,
    head: &mut request::Parts,
    lifetime: Option<Duration>,
    about: &About,
) -> Result<()> {
    signer.sign(head, lifetime).await.map_err(|cause| {
        let cause = match config::aws_unknown() {
            Some(name) => format!("~/.aws knows no profile `{name}`, which AWS_PROFILE names"),
            None => first_line(&cause.to_string()).to_owned(),
        };
        about
            .fail(ErrorKind::Unauthenticated)
            .cause(format!("no usable credentials: {cause}"))
            .hint(
                "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, AWS_PROFILE or --profile; a public bucket is read \
                 with --no-sign-request, or anonymous = true in a profile",
            )
    })
}

fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or_default()
}
