//! One S3 request at a time over kept connections, signed without reading the body.

use std::{
    collections::VecDeque,
    convert::Infallible,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use bytes::{Bytes, BytesMut};
use futures_util::StreamExt;
use http::{HeaderMap, Method, Request, Response, StatusCode, Uri};
use http_body_util::BodyExt;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper_rustls::HttpsConnector;
use hyper_util::{
    client::legacy::Client,
    rt::{TokioExecutor, TokioTimer},
};
use reqsign_aws_v4::Credential;
use reqsign_core::Signer;
use tokio::time::timeout;

use super::{
    page::Page,
    wire::{Refusal, encode},
};
use crate::{Error, ErrorKind, Locus, Result, dial::Dialler, endpoint::ByteStream};

/// Nothing moved for this long: the connection counts as dead.
const STALLED_AFTER: Duration = Duration::from_secs(60);

/// Idle connections are kept this long; stores close them after some minutes.
const IDLE_FOR: Duration = Duration::from_secs(30);

/// Longest answer that is read whole, in bytes: a listing page of 1,000 keys of 1 KiB each,
/// percent-encoded, and room.
const ANSWER_BYTES_MAX: usize = 16 << 20;

/// Bytes read from a connection at once: few wake-ups, and still in the cache when summed.
const READ_BYTES: usize = 128 << 10;

/// A body whose pieces are sent as they are.
#[derive(Debug, Default)]
pub(super) struct Pieces {
    pieces: VecDeque<Bytes>,
    left: u64,
}

impl From<Vec<Bytes>> for Pieces {
    fn from(pieces: Vec<Bytes>) -> Self {
        let left = pieces.iter().map(|piece| piece.len() as u64).sum();
        Self {
            pieces: pieces.into(),
            left,
        }
    }
}

impl Body for Pieces {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let piece = self.pieces.pop_front();
        if let Some(piece) = &piece {
            self.left -= piece.len() as u64;
        }
        Poll::Ready(piece.map(|piece| Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.pieces.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left)
    }
}

/// What to ask of the store.
pub(super) struct Call<'a> {
    pub method: Method,
    pub key: &'a str,
    pub query: &'a [(&'a str, &'a str)],
    pub headers: Vec<(&'static str, String)>,
    pub body: Pieces,
    /// For errors: a verb and where the fault would be.
    pub operation: &'static str,
    pub locus: Locus,
}

impl<'a> Call<'a> {
    pub(super) fn new(method: Method, key: &'a str, operation: &'static str) -> Self {
        Self {
            method,
            key,
            query: &[],
            headers: Vec::new(),
            body: Pieces::default(),
            operation,
            locus: Locus::Source,
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
        self.body = pieces.into();
        self
    }

    pub(super) fn at(mut self, locus: Locus) -> Self {
        self.locus = locus;
        self
    }
}

/// How to reach one bucket.
pub(super) struct S3Client {
    http: Client<HttpsConnector<Dialler>, Pieces>,
    dialler: Dialler,
    signer: Signer<Credential>,
    /// `https://host` or `http://host:port/bucket`, without a slash at the end.
    base: String,
    bucket: String,
    /// The bucket is part of the path rather than of the host.
    path_style: bool,
}

/// The HTTP client all buckets share.
pub(super) fn http_client<B>(dialler: &Dialler) -> Result<Client<HttpsConnector<Dialler>, B>>
where
    B: Body + Send,
    B::Data: Send,
{
    let tls = hyper_rustls::HttpsConnectorBuilder::new()
        .with_provider_and_native_roots(rustls::crypto::ring::default_provider())
        .map_err(|cause| {
            Error::io("read", "the system's certificates", cause)
                .hint("install the package ca-certificates")
        })?
        .https_or_http()
        .enable_http1()
        .wrap_connector(dialler.clone());
    Ok(Client::builder(TokioExecutor::new())
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(IDLE_FOR)
        .http1_read_buf_exact_size(READ_BYTES)
        .build(tls))
}

impl S3Client {
    pub(super) fn new(
        signer: Signer<Credential>,
        base: String,
        bucket: String,
        path_style: bool,
    ) -> Result<Self> {
        let dialler = Dialler::default();
        Ok(Self {
            http: http_client(&dialler)?,
            dialler,
            signer,
            base,
            bucket,
            path_style,
        })
    }

    /// The way to the store and back, once something connected.
    pub(super) fn round_trip(&self) -> Option<Duration> {
        self.dialler.round_trip()
    }

    /// The address of the bucket.
    pub(super) fn base(&self) -> &str {
        &self.base
    }

    /// The address of `key` for people.
    pub(super) fn show(&self, key: &str) -> String {
        if key.is_empty() {
            return format!("s3://{}", self.bucket);
        }
        format!("s3://{}/{key}", self.bucket)
    }

    fn uri(&self, call: &Call<'_>) -> Result<Uri> {
        let mut text = format!("{}/{}", self.base, encode(call.key, true));
        if call.key.is_empty() && self.path_style {
            text.pop();
        }
        for (index, (name, value)) in call.query.iter().enumerate() {
            text.push(if index == 0 { '?' } else { '&' });
            text.push_str(&encode(name, false));
            text.push('=');
            text.push_str(&encode(value, false));
        }
        Uri::try_from(text).map_err(|cause| {
            Error::new(ErrorKind::Invalid, call.operation, self.show(call.key)).cause(cause)
        })
    }

    /// Makes the request and returns the answer's head and body.
    ///
    /// # Errors
    /// What the store refuses, by its code; [`ErrorKind::Unreachable`], [`ErrorKind::TimedOut`].
    pub(super) async fn send(&self, call: Call<'_>) -> Result<Response<Incoming>> {
        let shown = self.show(call.key);
        let (operation, locus) = (call.operation, call.locus);
        let fail = |kind| Error::new(kind, operation, &*shown).at(locus);
        let mut request = Request::builder()
            .method(&call.method)
            .uri(self.uri(&call)?);
        for (name, value) in &call.headers {
            request = request.header(*name, value);
        }
        let request = request
            .header("x-amz-content-sha256", "UNSIGNED-PAYLOAD")
            .body(())
            .map_err(|cause| fail(ErrorKind::Invalid).cause(cause))?;
        let (mut head, ()) = request.into_parts();
        self.signer.sign(&mut head, None).await.map_err(|cause| {
            fail(ErrorKind::Unauthenticated)
                .cause(format!(
                    "no usable credentials: {}",
                    first_line(&cause.to_string())
                ))
                .hint("set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, AWS_PROFILE or --profile")
        })?;
        let request = Request::from_parts(head, call.body);
        let answer = timeout(STALLED_AFTER, self.http.request(request))
            .await
            .map_err(|_| fail(ErrorKind::TimedOut).cause("no answer"))?
            .map_err(|cause| {
                fail(ErrorKind::Unreachable)
                    .cause(format!(
                        "no connection to {}: {}",
                        self.base,
                        deepest(&cause)
                    ))
                    .hint("check the address and the network")
                    .at(Locus::Network)
            })?;
        if answer.status().is_success() {
            return Ok(answer);
        }
        let status = answer.status();
        let refusal = match read_whole(answer.into_body()).await {
            Ok(body) => parse_refusal(&body),
            Err(_) => Refusal::default(),
        };
        Err(refused(fail, status, &refusal))
    }

    /// Makes the request and reads the answer whole.
    ///
    /// # Errors
    /// As [`S3Client::send`].
    pub(super) async fn ask(&self, call: Call<'_>) -> Result<(HeaderMap, Bytes)> {
        let (shown, operation, locus) = (self.show(call.key), call.operation, call.locus);
        let (head, body) = self.send(call).await?.into_parts();
        let body = read_whole(body).await.map_err(|cause| {
            Error::new(ErrorKind::Unreachable, operation, shown)
                .cause(cause)
                .at(locus)
        })?;
        Ok((head.headers, body))
    }

    /// Makes the request and reads the answer as XML.
    ///
    /// # Errors
    /// As [`S3Client::send`]; [`ErrorKind::Other`] for an answer that makes no sense.
    pub(super) async fn ask_xml<T: serde::de::DeserializeOwned>(
        &self,
        call: Call<'_>,
    ) -> Result<T> {
        self.ask_and_read(call, |body| {
            quick_xml::de::from_reader(body).map_err(|cause| cause.to_string())
        })
        .await
    }

    /// Asks for a page of keys.
    ///
    /// # Errors
    /// As [`S3Client::ask_xml`].
    pub(super) async fn ask_page(&self, query: &[(&str, &str)]) -> Result<Page> {
        let call = Call::new(Method::GET, "", "list").query(query);
        self.ask_and_read(call, Page::parse).await
    }

    async fn ask_and_read<T>(
        &self,
        call: Call<'_>,
        read: impl FnOnce(&[u8]) -> Result<T, String>,
    ) -> Result<T> {
        let (shown, operation, locus) = (self.show(call.key), call.operation, call.locus);
        let (_, body) = self.ask(call).await?;
        let fail = |kind| Error::new(kind, operation, &*shown).at(locus);
        if body.windows(7).take(200).any(|window| window == b"<Error>") {
            return Err(refused(
                fail,
                StatusCode::INTERNAL_SERVER_ERROR,
                &parse_refusal(&body),
            ));
        }
        read(&body)
            .map_err(|cause| fail(ErrorKind::Other).cause(format!("unreadable answer: {cause}")))
    }
}

/// A response body as a stream; it ends with an error when nothing comes for too long.
pub(super) fn stream(body: Incoming, subject: String) -> ByteStream {
    let frames = futures_util::stream::try_unfold(body, move |mut body| {
        let subject = subject.clone();
        async move {
            let fail = |kind| Error::new(kind, "read", subject).at(Locus::Source);
            match timeout(STALLED_AFTER, body.frame()).await {
                Err(_) => Err(fail(ErrorKind::TimedOut).cause("nothing came for a minute")),
                Ok(None) => Ok(None),
                Ok(Some(Err(cause))) => Err(fail(ErrorKind::Unreachable).cause(cause)),
                Ok(Some(Ok(frame))) => Ok(Some((frame.into_data().unwrap_or_default(), body))),
            }
        }
    });
    Box::pin(frames.filter(|frame| {
        let keep = !matches!(frame, Ok(bytes) if bytes.is_empty());
        async move { keep }
    }))
}

async fn read_whole(body: Incoming) -> Result<Bytes, Box<dyn std::error::Error + Send + Sync>> {
    let mut body = http_body_util::Limited::new(body, ANSWER_BYTES_MAX);
    let mut whole = BytesMut::new();
    while let Some(frame) = timeout(STALLED_AFTER, body.frame()).await? {
        if let Ok(data) = frame?.into_data() {
            whole.extend_from_slice(&data);
        }
    }
    Ok(whole.freeze())
}

fn parse_refusal(body: &[u8]) -> Refusal {
    quick_xml::de::from_reader(body).unwrap_or_default()
}

/// The error a refusal means.
fn refused(fail: impl Fn(ErrorKind) -> Error, status: StatusCode, refusal: &Refusal) -> Error {
    let (kind, hint) = kind_of(status, &refusal.code);
    let cause = match (&*refusal.code, &*refusal.message) {
        ("", _) => format!("the store answered {status}"),
        (code, "") => code.to_owned(),
        (code, message) => format!("{code}: {}", message.trim_end_matches('.')),
    };
    let error = fail(kind).cause(cause).with("status", status.as_u16());
    let error = if refusal.code == "BadDigest" {
        error.status_is(crate::Status::Temporary)
    } else {
        error
    };
    match hint {
        "" => error,
        hint => error.hint(hint),
    }
}

fn kind_of(status: StatusCode, code: &str) -> (ErrorKind, &'static str) {
    match code {
        "NoSuchBucket" => return (ErrorKind::NotFound, "create the bucket first"),
        "NoSuchKey" | "NoSuchUpload" => return (ErrorKind::NotFound, ""),
        "InvalidAccessKeyId"
        | "SignatureDoesNotMatch"
        | "InvalidToken"
        | "ExpiredToken"
        | "XAdminUserNotFound" => {
            return (
                ErrorKind::Unauthenticated,
                "check the access key and its secret",
            );
        }
        "RequestTimeTooSkewed" => return (ErrorKind::Unauthenticated, "set this machine's clock"),
        "AccessDenied" => {
            return (
                ErrorKind::PermissionDenied,
                "ask the bucket's owner for access",
            );
        }
        "SlowDown" | "RequestTimeout" | "InternalError" | "ServiceUnavailable" => {
            return (ErrorKind::Busy, "");
        }
        "QuotaExceeded" | "XMinioStorageFull" | "InsufficientCapacity" => {
            return (ErrorKind::Full, "free space in the store");
        }
        "BadDigest" => return (ErrorKind::Corrupt, ""),
        "KeyTooLongError" => return (ErrorKind::Unsupported, "shorten the path"),
        _ => {}
    }
    match status.as_u16() {
        401 | 403 => (
            ErrorKind::Unauthenticated,
            "check the credentials and what they allow",
        ),
        404 => (ErrorKind::NotFound, ""),
        409 => (ErrorKind::Conflict, ""),
        412 | 416 => (
            ErrorKind::Changed,
            "copy it again when nothing writes to it",
        ),
        408 | 429 | 500 | 502..=504 => (ErrorKind::Busy, ""),
        507 => (ErrorKind::Full, "free space in the store"),
        _ => (ErrorKind::Other, ""),
    }
}

fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or_default()
}

/// The last cause, which is the one people understand.
fn deepest(error: &dyn std::error::Error) -> String {
    let mut last = error;
    while let Some(next) = last.source() {
        last = next;
    }
    last.to_string()
}
