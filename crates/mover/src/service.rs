//! Client of the service, or of whichever of several leads.

use std::{
    sync::atomic::{AtomicU64, AtomicUsize, Ordering},
    time::Duration,
};

use bytes::Bytes;
use http::{Method, Request, StatusCode, Uri, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper_util::{
    client::legacy::Client,
    rt::{TokioExecutor, TokioTimer},
};
use posthaste_api as api;
use posthaste_endpoint::{
    Error, ErrorKind, Result, WebConnector, deepest, relay::is_loopback, web_connector, web_tls,
};
use serde::{Serialize, de::DeserializeOwned};

use crate::Options;

/// Timeout of an answer, beside its wait for work.
const PATIENCE: Duration = Duration::from_secs(5);
/// Timeout of a list of files, which may be long.
const PATIENCE_FOR_FILES: Duration = Duration::from_secs(120);
/// Largest answer accepted.
const ANSWER_BYTES_MAX: usize = 64 << 20;
/// Largest list of files accepted: 10^7 files are about this.
const FILES_BYTES_MAX: usize = 4 << 30;
/// Time after which idle connections are closed.
const IDLE_FOR: Duration = Duration::from_secs(30);

/// Service, by its addresses.
pub(crate) struct ServiceClient {
    client: Client<WebConnector, Full<Bytes>>,
    addresses: Vec<String>,
    /// Index of the address in use.
    place: AtomicUsize,
    token: String,
    /// Id by which the service knows this mover.
    id: AtomicU64,
}

impl ServiceClient {
    /// Builds a client, which connects at the first request.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] for an invalid address, or one with plain HTTP beyond this host. Also
    /// the errors of reading certificates.
    pub(crate) fn new(options: &Options) -> Result<Self> {
        let addresses: Vec<String> = options
            .services
            .iter()
            .map(|address| check(address.trim_end_matches('/')))
            .collect::<Result<_>>()?;
        if addresses.is_empty() {
            return Err(Error::new(ErrorKind::Invalid, "ask", "no service"));
        }
        let is_secure = addresses.iter().any(|address| address.starts_with("https"));
        let connector = web_connector(web_tls(is_secure, options.ca_file.as_deref())?, PATIENCE);
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE_FOR)
            .build(connector);
        Ok(Self {
            client,
            addresses,
            place: AtomicUsize::new(0),
            token: options.token.clone(),
            id: AtomicU64::new(0),
        })
    }

    /// Returns the address in use.
    pub(crate) fn address(&self) -> String {
        let place = self.place.load(Ordering::Relaxed) % self.addresses.len();
        self.addresses[place].clone()
    }

    /// Joins the service.
    ///
    /// # Errors
    /// [`ErrorKind::Unreachable`], [`ErrorKind::TimedOut`] and [`ErrorKind::Busy`], as in all
    /// requests here, may pass; refusals by the service will not.
    pub(crate) async fn join(&self, new: &api::NewMover) -> Result<api::JoinedMover> {
        let joined: api::JoinedMover = self.post("/v1/movers", new, PATIENCE).await?;
        self.id.store(joined.id, Ordering::Relaxed);
        Ok(joined)
    }

    /// Reports finished work, and receives new work.
    ///
    /// # Errors
    /// Errors of [`Self::join`]; [`ErrorKind::NotFound`] if the service no longer knows the mover.
    pub(crate) async fn turn(
        &self,
        id: u64,
        turn: &api::MoverTurn,
        wait: Duration,
    ) -> Result<api::MoverOrders> {
        let path = format!("/v1/movers/{id}/turns");
        self.post(&path, turn, wait + PATIENCE).await
    }

    /// Reports that the mover ends. If that fails, the service learns it by the silence.
    pub(crate) async fn leave(&self, id: u64) {
        let path = format!("/v1/movers/{id}");
        let _ = self
            .ask(
                (Method::DELETE, &path),
                Bytes::new(),
                PATIENCE,
                ANSWER_BYTES_MAX,
            )
            .await;
    }

    /// Returns the sealed dataset of a request.
    ///
    /// # Errors
    /// Errors of [`Self::join`].
    pub(crate) async fn dataset(&self, request: &str) -> Result<api::SealedDataset> {
        let asked = (Method::GET, &*self.path_of(request));
        parse(
            &self
                .ask(asked, Bytes::new(), PATIENCE, ANSWER_BYTES_MAX)
                .await?,
        )
    }

    /// Returns the list of files of a request's dataset.
    ///
    /// # Errors
    /// Errors of [`Self::join`].
    pub(crate) async fn files(&self, request: &str) -> Result<Bytes> {
        let path = format!("{}/files", self.path_of(request));
        let asked = (Method::GET, &*path);
        self.ask(asked, Bytes::new(), PATIENCE_FOR_FILES, FILES_BYTES_MAX)
            .await
    }

    fn path_of(&self, request: &str) -> String {
        let id = self.id.load(Ordering::Relaxed);
        format!("/v1/movers/{id}/datasets/{request}")
    }

    async fn post<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &(impl Serialize + Sync),
        patience: Duration,
    ) -> Result<T> {
        let body = serde_json::to_vec(body)
            .map_err(|cause| Error::new(ErrorKind::Other, "write", "a question").cause(cause))?;
        let asked = (Method::POST, path);
        parse(
            &self
                .ask(asked, body.into(), patience, ANSWER_BYTES_MAX)
                .await?,
        )
    }

    async fn ask(
        &self,
        (method, path): (Method, &str),
        body: Bytes,
        patience: Duration,
        bytes_max: usize,
    ) -> Result<Bytes> {
        let place = self.place.load(Ordering::Relaxed);
        let address = &self.addresses[place % self.addresses.len()];
        let fail = |kind| Error::new(kind, "ask", format!("the service {address}"));
        let mut request = Request::builder();
        if let Some(parent) = posthaste_trace::traceparent() {
            request = request.header(posthaste_trace::HEADER, parent);
        }
        let request = request
            .method(method)
            .uri(format!("{address}{path}"))
            .header(header::AUTHORIZATION, format!("Bearer {}", self.token))
            .header(header::CONTENT_TYPE, "application/json")
            .body(Full::new(body))
            .map_err(|cause| fail(ErrorKind::Invalid).cause(cause))?;
        let asking = async {
            let unreachable = |cause: String| {
                // Another may lead by now.
                let _ = self.place.compare_exchange(
                    place,
                    place + 1,
                    Ordering::Relaxed,
                    Ordering::Relaxed,
                );
                fail(ErrorKind::Unreachable).cause(cause)
            };
            let answer = self.client.request(request).await;
            let answer = answer.map_err(|cause| unreachable(deepest(&cause)))?;
            let status = answer.status();
            let read = Limited::new(answer.into_body(), bytes_max).collect().await;
            let read = read.map_err(|cause| unreachable(cause.to_string()))?;
            Ok((status, read.to_bytes()))
        };
        let late = |_| fail(ErrorKind::TimedOut).cause("no answer came");
        let (status, bytes) = tokio::time::timeout(patience, asking)
            .await
            .map_err(late)??;
        if status.is_success() {
            return Ok(bytes);
        }
        let said = serde_json::from_slice(&bytes).map(|said: api::Problem| said.detail);
        let said = said.unwrap_or_else(|_| format!("it answered {status}"));
        Err(fail(kind_of(status)).cause(said))
    }
}

fn kind_of(status: StatusCode) -> ErrorKind {
    match status {
        StatusCode::NOT_FOUND => ErrorKind::NotFound,
        StatusCode::FORBIDDEN => ErrorKind::PermissionDenied,
        StatusCode::UNAUTHORIZED => ErrorKind::Unauthenticated,
        StatusCode::CONFLICT => ErrorKind::Conflict,
        status if status.is_server_error() => ErrorKind::Busy,
        _ => ErrorKind::Invalid,
    }
}

fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T> {
    serde_json::from_slice(bytes).map_err(|cause| {
        Error::new(ErrorKind::Invalid, "read", "the service's answer")
            .cause(cause)
            .hint("its release may be another than this mover's")
    })
}

/// Checks that the token can't be read on its way to this address.
fn check(address: &str) -> Result<String> {
    let wrong = |why: &str| {
        Error::new(ErrorKind::Invalid, "ask", format!("the service {address}"))
            .cause(why.to_owned())
            .hint("name it like https://posthaste.example.org, or http://127.0.0.1:7420 on its own host")
    };
    let uri: Uri = address.parse().map_err(|_| wrong("that is no address"))?;
    let host = uri.host().unwrap_or_default();
    match uri.scheme_str() {
        Some("https") if !host.is_empty() => Ok(address.to_owned()),
        Some("http") if is_loopback(host) => Ok(address.to_owned()),
        Some("http") => Err(wrong(
            "plain HTTP beyond this host shows its token to others",
        )),
        _ => Err(wrong("that is no address")),
    }
}
