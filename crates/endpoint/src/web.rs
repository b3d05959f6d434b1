//! HTTP for the stores that speak it: kept connections, streamed bodies both ways, errors by their
//! meaning.

mod after;
pub(crate) mod bearer;
mod body;
pub(crate) mod connector;
mod content;
mod digest;
mod gate;
pub(crate) mod oauth;
mod pages;
mod place;
mod range;
mod redirect;
mod status;
mod text;
pub(crate) mod tls;
mod told;
mod version;

use std::{error::Error as StdError, path::Path, sync::atomic::Ordering::Relaxed, time::Duration};

use bytes::{Bytes, BytesMut};
use futures_util::StreamExt;
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Limited};
use hyper::body::{Body, Incoming};
use hyper_rustls::HttpsConnector;
use hyper_util::{
    client::legacy::Client,
    rt::{TokioExecutor, TokioTimer},
};
use tokio::time::timeout;

pub(crate) use crate::trickle::STALLED_AFTER;
pub(crate) use body::{Sent, next_step};
pub(crate) use content::{check_coding, check_status, is_page, refuse_login};
pub(crate) use digest::{of_amazon, of_owncloud, told_adler32, told_sum};
pub(crate) use pages::{Pages, WHOLE_BYTES_MAX};
pub(crate) use place::{Call, Place};
pub(crate) use range::{check_version, content_length, cut, told_size};
pub(crate) use status::{kind_of_status, refused};
pub use text::{bearer_token, encode};
pub(crate) use text::{decode, quoted, text_of};
pub(crate) use version::{OneVersion, is_strong};

use crate::{
    Error, ErrorKind, Locus, Result,
    dial::Dialler,
    endpoint::{ByteStream, Entry},
    proxy::LOGIN_WANTED,
    reach::{REFUSED, REFUSED_HINT, Reach},
    trickle::Trickle,
};

/// Time for which idle connections are kept: servers on Node.js and Apache close them after five
/// seconds by default, and a request sent just then is lost.
const IDLE_FOR: Duration = Duration::from_secs(4);

/// Longest answer that is read whole, in bytes: a page of 5,000 names of 1 KiB each with their
/// attributes, and a margin.
const ANSWER_BYTES_MAX: usize = 32 << 20;

/// Longest refusal read, in bytes: the start of an error page suffices.
const REFUSAL_BYTES_MAX: usize = 64 << 10;

/// Bytes read from a connection at once: few wake-ups, and still in the cache when hashed.
const READ_BYTES: usize = 128 << 10;

/// Description of a request, for errors.
#[derive(Debug, Clone)]
pub(crate) struct About {
    /// Verb.
    pub operation: &'static str,
    /// Address without secrets.
    pub subject: String,
    /// Locus of a fault.
    pub locus: Locus,
}

impl About {
    pub(crate) fn reading(operation: &'static str, subject: String) -> Self {
        Self {
            operation,
            subject,
            locus: Locus::Source,
        }
    }

    pub(crate) fn writing(operation: &'static str, subject: String) -> Self {
        Self {
            operation,
            subject,
            locus: Locus::Destination,
        }
    }

    pub(crate) fn fail(&self, kind: ErrorKind) -> Error {
        Error::new(kind, self.operation, &*self.subject).at(self.locus)
    }
}

/// HTTP client of one endpoint.
#[derive(Debug, Clone)]
pub(crate) struct Web {
    client: Client<HttpsConnector<Dialler>, Sent>,
    dialler: Dialler,
}

/// Returns the HTTP client that trusts the system's certificates and those of `ca_file`.
///
/// # Errors
/// Fails if no certificates can be had.
pub(crate) fn client<B>(
    dialler: &Dialler,
    ca_file: Option<&Path>,
) -> Result<Client<HttpsConnector<Dialler>, B>>
where
    B: Body + Send,
    B::Data: Send,
{
    let tls = hyper_rustls::HttpsConnectorBuilder::new()
        .with_tls_config(tls::client_config(ca_file)?)
        .https_or_http()
        .enable_http1()
        .wrap_connector(dialler.clone());
    Ok(Client::builder(TokioExecutor::new())
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(IDLE_FOR)
        .http1_read_buf_exact_size(READ_BYTES)
        .build(tls))
}

impl Web {
    /// Returns a client that trusts the system's certificates and those of `ca_file`. It uses the
    /// proxies that the environment names, and connects only where `reach` permits.
    ///
    /// # Errors
    /// Fails if no certificates can be had, or if a proxy is malformed.
    pub(crate) fn reaching(reach: Reach, ca_file: Option<&Path>) -> Result<Self> {
        Self::with(Dialler::new()?.reaching(reach), ca_file)
    }

    /// Returns a client whose connections the `dialler` makes.
    ///
    /// # Errors
    /// Fails if no certificates can be had.
    pub(crate) fn with(dialler: Dialler, ca_file: Option<&Path>) -> Result<Self> {
        Ok(Self {
            client: client(&dialler, ca_file)?,
            dialler,
        })
    }

    /// Returns the round-trip time to the server, once a connection was made.
    pub(crate) fn round_trip(&self) -> Option<Duration> {
        self.dialler.round_trip()
    }

    /// Makes the request and returns the answer, whatever its status. The server may work for
    /// `patience` before it answers.
    ///
    /// # Errors
    /// [`ErrorKind::Unreachable`], [`ErrorKind::TimedOut`]; the source's own error if the body is a
    /// stream that breaks.
    pub(crate) async fn send(
        &self,
        mut request: Request<Sent>,
        about: &About,
        patience: Duration,
    ) -> Result<Response<Incoming>> {
        if matches!(*request.method(), Method::PUT | Method::POST) {
            // Hyper omits the length of an empty body, and servers refuse a request without one.
            let len = HeaderValue::from(request.body().len());
            request.headers_mut().insert(header::CONTENT_LENGTH, len);
        }
        if let Some(authorization) = self.dialler.proxy_authorization(request.uri()) {
            let headers = request.headers_mut();
            headers.insert(header::PROXY_AUTHORIZATION, authorization);
        }
        let host = request.uri().authority().map(ToString::to_string);
        let host = host.unwrap_or_default();
        // A server may close a kept connection just when it is used again: a request that is
        // harmless twice is made once more (RFC 9110, section 9.2.2).
        let again = repeated(&request);
        let mut asked = self.try_to_send(request, about, patience).await?;
        if let (Err(cause), Some(request)) = (&asked, again)
            && !cause.is_connect()
            && request.body().is_there()
        {
            asked = self.try_to_send(request, about, patience).await?;
        }
        asked.map_err(|cause| {
            let reason = deepest(&cause);
            if reason.contains("certificate") {
                return about
                    .fail(ErrorKind::Unauthenticated)
                    .cause(format!("{host} can't be trusted: {reason}"))
                    .hint("name its authority's certificate as ca_file in a profile")
                    .at(Locus::Network);
            }
            if reason.contains(REFUSED) {
                let error = about.fail(ErrorKind::PermissionDenied).cause(reason);
                return error.hint(REFUSED_HINT).at(Locus::Network);
            }
            if reason.contains(LOGIN_WANTED) {
                return about
                    .fail(ErrorKind::Unauthenticated)
                    .cause(reason)
                    .hint(kind_of_status(StatusCode::PROXY_AUTHENTICATION_REQUIRED).1)
                    .at(Locus::Network);
            }
            about
                .fail(ErrorKind::Unreachable)
                .cause(format!("no connection to {host}: {reason}"))
                .hint("check the address and the network")
                .at(Locus::Network)
        })
    }

    /// Tries once to send. The inner error is the connection's, the outer one the source's or a
    /// timeout.
    async fn try_to_send(
        &self,
        request: Request<Sent>,
        about: &About,
        patience: Duration,
    ) -> Result<Result<Response<Incoming>, hyper_util::client::legacy::Error>> {
        let watch = request.body().watch();
        let mut asking = std::pin::pin!(self.client.request(request));
        let mut seen = watch.sent.load(Relaxed);
        loop {
            match timeout(patience, &mut asking).await {
                Ok(Err(cause)) => return watch.take_broken().map_or(Ok(Err(cause)), Err),
                Ok(Ok(answer)) => return Ok(Ok(answer)),
                Err(_) => {
                    let now = watch.sent.load(Relaxed);
                    if now == seen {
                        let error = about.fail(ErrorKind::TimedOut).cause("no answer");
                        return Err(error.at(Locus::Network));
                    }
                    seen = now;
                }
            }
        }
    }
}

/// Copies the request if sending it twice is harmless: it only reads, or stores a body that is
/// still there, whatever was there before. A second `DELETE` would find nothing and say so.
fn repeated(request: &Request<Sent>) -> Option<Request<Sent>> {
    let is_idempotent = match request.method().as_str() {
        "GET" | "HEAD" | "PROPFIND" => true,
        "PUT" => {
            let conditions = [header::IF_MATCH, header::IF_NONE_MATCH];
            let headers = request.headers();
            !conditions.iter().any(|name| headers.contains_key(name))
        }
        _ => false,
    };
    let body = request.body().again().filter(|_| is_idempotent)?;
    let mut again = Request::new(body);
    *again.method_mut() = request.method().clone();
    *again.uri_mut() = request.uri().clone();
    *again.headers_mut() = request.headers().clone();
    Some(again)
}

/// Returns a response body as a stream. The stream ends with an error when nothing arrives for too
/// long, or too little.
pub(crate) fn stream<B>(body: B, subject: String) -> ByteStream
where
    B: Body<Data = Bytes, Error: StdError + 'static> + Send + Unpin + 'static,
{
    let begun = (body, Trickle::of_file());
    let frames = futures_util::stream::try_unfold(begun, move |(mut body, mut trickle)| {
        let subject = subject.clone();
        async move {
            let fail = |kind| Error::new(kind, "read", subject).at(Locus::Source);
            match trickle.wait(body.frame()).await {
                Err(dry) => Err(fail(ErrorKind::TimedOut).cause(dry)),
                Ok(None) => Ok(None),
                Ok(Some(Err(cause))) => Err(fail(ErrorKind::Unreachable).cause(deepest(&cause))),
                Ok(Some(Ok(frame))) => {
                    let bytes = frame.into_data().unwrap_or_default();
                    trickle.came(bytes.len());
                    Ok(Some((bytes, (body, trickle))))
                }
            }
        }
    });
    Box::pin(frames.filter(|frame| {
        let keep = !matches!(frame, Ok(bytes) if bytes.is_empty());
        async move { keep }
    }))
}

/// Rule for bytes that follow the wanted ones of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rest {
    /// Further bytes, which are left unread.
    Unread,
    /// Nothing: the file ends here; more bytes mean another file.
    Nothing,
}

/// Gathers a body in memory. It must be as long as `entry` says, if that names a version, and no
/// longer than a file that is read whole. More bytes are an error, and are not read.
pub(crate) fn gathered(body: ByteStream, entry: &Entry, about: About) -> ByteStream {
    let most = match entry.version {
        Some(_) => entry.size,
        None => entry.size.max(WHOLE_BYTES_MAX),
    };
    let bounded = body.scan(0, move |read, bytes| {
        let bytes = bytes.and_then(|bytes| {
            *read += bytes.len() as u64;
            (*read <= most)
                .then_some(bytes)
                .ok_or_else(|| longer(&about))
        });
        std::future::ready(Some(bytes))
    });
    Box::pin(bounded)
}

/// Returns `len` bytes of `body` behind the first `skipped`. Fewer are an error, and so are more if
/// there is to be no rest.
pub(crate) fn exactly(
    body: ByteStream,
    skipped: u64,
    len: u64,
    rest: Rest,
    about: About,
) -> ByteStream {
    let cut = futures_util::stream::try_unfold(
        (body, skipped, len),
        move |(mut body, mut skipped, left)| {
            let about = about.clone();
            async move {
                if left == 0 && (rest == Rest::Unread || body.next().await.transpose()?.is_none()) {
                    return Ok(None);
                }
                if left == 0 {
                    return Err(longer(&about));
                }
                loop {
                    let Some(bytes) = body.next().await else {
                        let error = about.fail(ErrorKind::Unreachable);
                        return Err(error.cause("it ended early"));
                    };
                    let mut bytes = bytes?;
                    let passed = skipped.min(bytes.len() as u64);
                    skipped -= passed;
                    let _ = bytes.split_to(usize::try_from(passed).unwrap_or(bytes.len()));
                    if rest == Rest::Nothing && bytes.len() as u64 > left {
                        return Err(longer(&about));
                    }
                    bytes.truncate(usize::try_from(left).unwrap_or(usize::MAX));
                    if !bytes.is_empty() {
                        let left = left - bytes.len() as u64;
                        return Ok(Some((bytes, (body, skipped, left))));
                    }
                }
            }
        },
    );
    Box::pin(cut)
}

/// Returns the error for more bytes than the file was reported to hold.
fn longer(about: &About) -> Error {
    about
        .fail(ErrorKind::Changed)
        .cause("it is longer than the server said")
        .hint("copy it again when nothing writes to it")
}

/// Reads a whole answer.
///
/// # Errors
/// [`ErrorKind::Unreachable`], also for an answer above the limit.
pub(crate) async fn read_whole(body: Incoming, about: &About) -> Result<Bytes> {
    let read = read_up_to(body, ANSWER_BYTES_MAX).await;
    read.map_err(|cause| about.fail(ErrorKind::Unreachable).cause(cause))
}

/// Reads the text of a refusal; nothing if even that fails.
pub(crate) async fn read_refusal(body: Incoming) -> Bytes {
    read_up_to(body, REFUSAL_BYTES_MAX)
        .await
        .unwrap_or_default()
}

/// Reads the rest of an unwanted answer, so that its connection can be used again.
pub(crate) async fn drain(body: Incoming) {
    let _ = read_up_to(body, REFUSAL_BYTES_MAX).await;
}

async fn read_up_to(
    body: Incoming,
    bytes_max: usize,
) -> Result<Bytes, Box<dyn StdError + Send + Sync>> {
    let mut body = Limited::new(body, bytes_max);
    let (mut whole, mut trickle) = (BytesMut::new(), Trickle::of_answer());
    while let Some(frame) = trickle.wait(body.frame()).await? {
        if let Ok(data) = frame?.into_data() {
            trickle.came(data.len());
            whole.extend_from_slice(&data);
        }
    }
    Ok(whole.freeze())
}

/// Returns the last cause, which is the one people understand.
#[must_use]
pub fn deepest(error: &dyn StdError) -> String {
    let mut last = error;
    while let Some(next) = last.source() {
        last = next;
    }
    last.to_string()
}

#[cfg(test)]
mod tests {
    use std::{
        convert::Infallible,
        io::{Read, Write},
        net::TcpListener,
        thread,
    };

    use http_body_util::StreamBody;
    use hyper::body::Frame;

    use super::*;

    /// Sends a request to a server that closes the first connection once it has the request, and
    /// answers on the second.
    async fn ask(method: Method, condition: Option<&'static str>) -> (Result<()>, Vec<Vec<u8>>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}/name", listener.local_addr().unwrap());
        let server = thread::spawn(move || {
            let mut questions = Vec::new();
            for stream in listener.incoming().take(2) {
                let mut stream = stream.unwrap();
                let mut question = Vec::new();
                while !question.ends_with(b"the body") && !question.ends_with(b"\r\n\r\n") {
                    let mut byte = [0];
                    if stream.read(&mut byte).unwrap() == 0 {
                        return questions;
                    }
                    question.extend(byte);
                    // The head of a request with a body ends before it.
                    if question.starts_with(b"PUT") && question.ends_with(b"\r\n\r\n") {
                        question.push(b'|');
                    }
                }
                questions.push(question);
                if questions.len() == 2 {
                    let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";
                    stream.write_all(answer).unwrap();
                }
            }
            questions
        });
        let dialler = Dialler::default();
        let plain = hyper_rustls::HttpsConnectorBuilder::new()
            .with_tls_config(
                rustls::ClientConfig::builder_with_provider(
                    rustls::crypto::ring::default_provider().into(),
                )
                .with_safe_default_protocol_versions()
                .unwrap()
                .with_root_certificates(rustls::RootCertStore::empty())
                .with_no_client_auth(),
            )
            .https_or_http()
            .enable_http1()
            .wrap_connector(dialler.clone());
        let web = Web {
            client: Client::builder(TokioExecutor::new()).build(plain),
            dialler,
        };
        let mut request = Request::builder().method(method.clone()).uri(&address);
        if let Some(condition) = condition {
            request = request.header(condition, "*");
        }
        let body = match method {
            Method::PUT => Sent::pieces(vec!["the ".into(), "body".into()]),
            _ => Sent::nothing(),
        };
        let about = About::writing("write", address.clone());
        let asked = web.send(request.body(body).unwrap(), &about, STALLED_AFTER);
        let outcome = asked.await.map(drop);
        // If the request was made once, the server still waits for this.
        drop(std::net::TcpStream::connect(&address[7..address.len() - 5]));
        (outcome, server.join().unwrap())
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_only_drips_ends() {
        let drips = futures_util::stream::unfold((), |()| async {
            tokio::time::sleep(Duration::from_secs(20)).await;
            let drop = Frame::data(Bytes::from_static(b"x"));
            Some((Ok::<_, Infallible>(drop), ()))
        });
        let mut body = stream(StreamBody::new(Box::pin(drips)), "http://h/x".into());
        let error = loop {
            match body.next().await.unwrap() {
                Ok(bytes) => assert_eq!(bytes, "x"),
                Err(error) => break error,
            }
        };
        assert!(error.is_temporary(), "{error}");
        assert!(
            error.to_string().contains("14 bytes came in 5 minutes"),
            "{error}"
        );
    }

    #[tokio::test]
    async fn what_may_be_done_twice_is_asked_again_where_its_connection_breaks() {
        for method in [Method::GET, Method::PUT] {
            let (outcome, questions) = ask(method.clone(), None).await;
            outcome.unwrap();
            assert_eq!(questions.len(), 2, "{method}");
            assert_eq!(questions[0], questions[1]);
        }
        for (method, condition) in [
            (Method::DELETE, None),
            (Method::PUT, Some("if-none-match")),
            (Method::PUT, Some("if-match")),
        ] {
            let (outcome, questions) = ask(method, condition).await;
            assert_eq!(outcome.unwrap_err().kind(), ErrorKind::Unreachable);
            assert_eq!(questions.len(), 1);
        }
    }
}
