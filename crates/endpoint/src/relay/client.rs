//! Requests that a relay serves.

use std::{
    fmt,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, header};
use hyper::body::Incoming;
use posthaste_types::{Bytes as Amount, ChunkIndex, Digest, FragmentIndex, Timestamp};
use tokio::time::Instant;

use super::{
    Credential, DatasetId, RelayAddress, RelayStatus, Scope,
    cargo::{Ask, Body, Cargo, Load},
    connection::{Lease, Pool},
    departure::Departure,
    exchange::Call,
    pulse::Pulse,
    turnstile::Haste,
    wire::{self, ErrorBody, Held, Object, StatusBody, Target},
};
use crate::{Boxed, Error, ErrorKind, Locus, Result, clock, gateway::Way};

/// Largest body of an answer that is not an object: an inventory page is the largest.
pub(super) const ANSWER_BYTES_MAX: u64 =
    (wire::INVENTORY_PAGE_MAX * wire::INVENTORY_ENTRY_BYTES) as u64 + (64 << 10);
/// Most pages of one inventory: 2^28 entries, more than any dataset has chunks.
const INVENTORY_PAGES_MAX: usize = 4096;
/// Most pages of one proof, of which each has read 64 MiB or more unless it is the last.
const PROOF_PAGES_MAX: usize = 1 << 24;
/// Time before a relay that did not report its features is asked again.
const ASK_AGAIN: Duration = Duration::from_secs(5);

/// Relay reached over a few kept connections. Clones share them.
#[derive(Clone)]
pub struct RelayClient {
    pub(super) address: Arc<RelayAddress>,
    pub(super) credential: Credential,
    pub(super) pool: Arc<Pool>,
    pub(super) haste: Haste,
    pub(super) departure: Option<Arc<Departure>>,
}

impl fmt::Debug for RelayClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RelayClient")
            .field("url", &self.address.url)
            .finish_non_exhaustive()
    }
}

impl RelayClient {
    /// Creates a client of the relay at `address`. It connects at the first request.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] if the URL is not `https://host:port`.
    pub fn new(address: RelayAddress, credential: Credential) -> Result<Self> {
        Self::by_ways(address, credential, vec![Way::straight()])
    }

    /// Returns the relay's address.
    #[must_use]
    pub fn address(&self) -> &RelayAddress {
        &self.address
    }

    /// Returns the bytes sent to this relay so far by all clones. They measure its rate while
    /// fragments are in flight.
    #[must_use]
    pub fn sent(&self) -> Amount {
        Amount::new(self.pool.traffic.sent.load(Ordering::Relaxed))
    }

    /// Returns the relay's rate limit in bytes per second; 0 if it reported none.
    pub(super) fn rate_limit(&self) -> u64 {
        self.pool.rate_limit.load(Ordering::Relaxed)
    }

    /// Records the relay's rate limit as reported by others, so that its pauses are tolerated.
    pub fn expect_rate(&self, bytes_per_s: u64) {
        self.pool.rate_limit.store(bytes_per_s, Ordering::Relaxed);
    }

    /// Returns whether the relay hands out presigned URLs instead of accepting bytes itself. If
    /// that is unknown, one caller at a time asks the relay, and not again at once. A relay that
    /// does not answer is treated as an ordinary one; the request then shows the error.
    pub(super) async fn lets_through(&self) -> bool {
        if !self.pool.is_known.load(Ordering::Relaxed) {
            let mut asked_at = self.pool.asked_at.lock().await;
            let is_known = self.pool.is_known.load(Ordering::Relaxed);
            if !is_known && asked_at.is_none_or(|at| at.elapsed() > ASK_AGAIN) {
                self.status().await.ok();
                *asked_at = Some(Instant::now());
            }
        }
        self.pool.lets_through.load(Ordering::Relaxed)
    }

    /// Records, as reported by others, that the relay hands out presigned URLs, so that no bytes
    /// are sent to it in vain.
    pub fn expect_passes(&self, lets_through: bool) {
        self.pool
            .lets_through
            .store(lets_through, Ordering::Relaxed);
        self.pool.is_known.store(true, Ordering::Relaxed);
    }

    /// Returns the bytes received from this relay so far by all clones.
    #[must_use]
    pub fn received(&self) -> Amount {
        Amount::new(self.pool.traffic.received.load(Ordering::Relaxed))
    }

    /// Requests the relay's status.
    ///
    /// # Errors
    /// Errors of every request here. [`ErrorKind::Unreachable`] and [`ErrorKind::TimedOut`] (no
    /// progress for 10 s) may be temporary. [`ErrorKind::Unauthenticated`] (key not the pinned one,
    /// token not accepted) and [`ErrorKind::PermissionDenied`] (token of another scope) are
    /// permanent.
    pub async fn status(&self) -> Result<RelayStatus> {
        let ask = Ask {
            operation: "ask",
            method: Method::GET,
            target: Target::Status,
            query: "",
            scope: Scope::Read,
            body: None,
        };
        let (lease, response) = self.send(&ask).await?;
        let bytes = self
            .collect(&ask, lease, response, ANSWER_BYTES_MAX, None)
            .await?;
        let body: StatusBody =
            serde_json::from_slice(&bytes).map_err(|cause| self.nonsense(&ask, cause))?;
        let rate = body.rate_limit_bytes_per_s;
        self.pool
            .rate_limit
            .store(rate.unwrap_or(0), Ordering::Relaxed);
        let status = RelayStatus::read(body);
        self.expect_passes(status.lets_through);
        Ok(status)
    }

    /// Stores a fragment until `expires` at least. When this returns, the relay has checked the
    /// digest and holds the fragment on disk. Storing it again changes nothing.
    ///
    /// # Errors
    /// Errors of [`Self::status`]; [`ErrorKind::Full`] if the lent capacity is used up,
    /// [`ErrorKind::Corrupt`] if other bytes arrived, [`ErrorKind::Conflict`] if another fragment
    /// is stored in its place.
    pub async fn put_fragment(
        &self,
        dataset: &DatasetId,
        chunk: ChunkIndex,
        fragment: FragmentIndex,
        bytes: Bytes,
        digest: Digest,
        expires: Timestamp,
    ) -> Result<()> {
        self.put(
            dataset,
            Object::Fragment(chunk, fragment),
            bytes,
            digest,
            expires,
        )
        .await
    }

    /// Stores the manifest; otherwise like [`Self::put_fragment`].
    ///
    /// # Errors
    /// Errors of [`Self::put_fragment`].
    pub async fn put_manifest(
        &self,
        dataset: &DatasetId,
        bytes: Bytes,
        digest: Digest,
        expires: Timestamp,
    ) -> Result<()> {
        self.put(dataset, Object::Manifest, bytes, digest, expires)
            .await
    }

    async fn put(
        &self,
        dataset: &DatasetId,
        object: Object,
        bytes: Bytes,
        digest: Digest,
        expires: Timestamp,
    ) -> Result<()> {
        let load = Load::object(Cargo::Bytes(bytes), digest, expires);
        self.put_load(dataset, object, load).await
    }

    pub(super) async fn put_load(
        &self,
        dataset: &DatasetId,
        object: Object,
        load: Load,
    ) -> Result<()> {
        if self.lets_through().await {
            return self.put_through(dataset, object, load).await;
        }
        let ask = Ask {
            operation: "store on",
            method: Method::PUT,
            target: Target::Object(*dataset, object),
            query: "",
            scope: Scope::Write,
            body: Some(load),
        };
        let (lease, response) = self.send(&ask).await?;
        self.collect(&ask, lease, response, ANSWER_BYTES_MAX, None)
            .await
            .map(drop)
    }

    /// Reads a fragment and checks that its digest is `expected`, the one in the manifest.
    ///
    /// # Errors
    /// Errors of [`Self::status`]; [`ErrorKind::NotFound`], and [`ErrorKind::Corrupt`] if the bytes
    /// do not have that digest.
    pub async fn get_fragment(
        &self,
        dataset: &DatasetId,
        chunk: ChunkIndex,
        fragment: FragmentIndex,
        expected: Digest,
    ) -> Result<Bytes> {
        self.get(dataset, Object::Fragment(chunk, fragment), Some(expected))
            .await
    }

    /// Reads the manifest and checks it against `expected`, or against the digest that the relay
    /// stored with it if the caller has none.
    ///
    /// # Errors
    /// Errors of [`Self::get_fragment`].
    pub async fn get_manifest(
        &self,
        dataset: &DatasetId,
        expected: Option<Digest>,
    ) -> Result<Bytes> {
        self.get(dataset, Object::Manifest, expected).await
    }

    async fn get(
        &self,
        dataset: &DatasetId,
        object: Object,
        expected: Option<Digest>,
    ) -> Result<Bytes> {
        let ask = Ask {
            operation: "read from",
            method: Method::GET,
            target: Target::Object(*dataset, object),
            query: "",
            scope: Scope::Read,
            body: None,
        };
        let (lease, response) = self.send(&ask).await?;
        let expected = match expected {
            Some(digest) => digest,
            None => header_text(&response, wire::DIGEST_HEADER)
                .and_then(|text| text.parse().ok())
                .ok_or_else(|| self.nonsense(&ask, "it tells no digest"))?,
        };
        if response.status() == StatusCode::TEMPORARY_REDIRECT {
            let url = header_text(&response, header::LOCATION.as_str()).map(str::to_owned);
            let url = url.ok_or_else(|| self.nonsense(&ask, "it leads nowhere"))?;
            self.collect(&ask, lease, response, ANSWER_BYTES_MAX, None)
                .await?;
            return self.get_through(url, expected).await;
        }
        self.collect(
            &ask,
            lease,
            response,
            wire::OBJECT_BYTES_MAX,
            Some(expected),
        )
        .await
    }

    /// Lists everything the relay holds of the dataset, in order of chunk and fragment; empty if it
    /// does not know the dataset.
    ///
    /// # Errors
    /// Errors of [`Self::status`].
    pub async fn inventory(&self, dataset: &DatasetId) -> Result<Vec<Held>> {
        self.pages_of(dataset, "", INVENTORY_PAGES_MAX).await
    }

    /// Returns the inventory of a dataset after the relay has read and compared all of it; only
    /// what is there of a relay that can't do that. This may take as long as reading it does.
    ///
    /// # Errors
    /// Errors of [`Self::status`].
    pub async fn proven(&self, dataset: &DatasetId) -> Result<Vec<Held>> {
        match self.pages_of(dataset, wire::PROOF, PROOF_PAGES_MAX).await {
            // It is of a former release.
            Err(error) if error.kind() == ErrorKind::Invalid => self.inventory(dataset).await,
            proven => proven,
        }
    }

    async fn pages_of(&self, dataset: &DatasetId, word: &str, most: usize) -> Result<Vec<Held>> {
        let mut held = Vec::new();
        let mut query = match word {
            "" => String::new(),
            word => format!("?{word}"),
        };
        for _ in 0..most {
            let ask = Ask {
                operation: "list what is on",
                method: Method::GET,
                target: Target::Inventory(*dataset),
                query: &query,
                scope: Scope::Read,
                body: None,
            };
            let (lease, response) = self.send(&ask).await?;
            let next = header_text(&response, wire::NEXT_HEADER).map(str::to_owned);
            let page = self
                .collect(&ask, lease, response, ANSWER_BYTES_MAX, None)
                .await?;
            let page = wire::read_held(&page)
                .ok_or_else(|| self.nonsense(&ask, "the inventory is cut off"))?;
            held.extend(page);
            match next.as_deref().map(wire::parse_position) {
                None => return Ok(held),
                Some(Some((chunk, fragment))) => {
                    query = format!("?from={}.{}", chunk.get(), fragment.get());
                    if !word.is_empty() {
                        query = format!("{query}&{word}");
                    }
                }
                Some(None) => return Err(self.nonsense(&ask, "the next page has no name")),
            }
        }
        Err(Error::new(
            ErrorKind::Other,
            "list what is on",
            self.address.url.clone(),
        )
        .at(Locus::Network)
        .cause("the inventory does not end"))
    }

    fn request(&self, ask: &Ask<'_>, pulse: &Arc<Pulse>) -> Result<Request<Body>> {
        let token = self
            .credential
            .token(ask.scope, ask.dataset(), clock::unix_secs());
        let host = self
            .address
            .url
            .trim_start_matches("https://")
            .trim_end_matches('/');
        let mut request = Request::builder()
            .method(ask.method.clone())
            .uri(format!("{}{}", ask.target.path(), ask.query))
            .header(header::HOST, host)
            .header(header::AUTHORIZATION, format!("Bearer {token}"));
        if let Some(parent) = posthaste_trace::traceparent() {
            request = request.header(posthaste_trace::HEADER, parent);
        }
        let mut body = Cargo::Bytes(Bytes::new()).body(None);
        if let Some(load) = &ask.body {
            body = load.cargo.body(Some(pulse));
            request = request.header(header::CONTENT_LENGTH, load.cargo.len());
            if let Some((digest, expires)) = &load.object {
                let expires_s = expires.as_micros().div_ceil(1_000_000);
                request = request
                    .header(wire::DIGEST_HEADER, digest.to_string())
                    .header(wire::EXPIRES_HEADER, expires_s);
            }
        }
        request.body(body).map_err(|_| {
            // Only a token can contain bytes that no header may contain; it must not be shown.
            Error::new(ErrorKind::Invalid, ask.operation, self.address.url.clone())
                .cause("the token has characters no token has")
        })
    }

    pub(super) fn call_of(&self, ask: &Ask<'_>) -> Call {
        Call {
            operation: ask.operation,
            path: ask.target.path(),
            is_urgent: ask.target == Target::Status,
            haste: self.haste,
            // A request that precedes the upload is not the upload itself.
            departure: self.departure.clone().filter(|_| ask.body.is_some()),
        }
    }

    /// Sends the request and waits for the head of an answer that is a success or a redirect.
    pub(super) fn send<'a>(
        &'a self,
        ask: &'a Ask<'_>,
    ) -> Boxed<'a, Result<(Lease, Response<Incoming>)>> {
        Box::pin(async move {
            let call = self.call_of(ask);
            let request = |pulse: &Arc<Pulse>| self.request(ask, pulse);
            let (lease, response) = self.pool.exchange(&call, &request).await?;
            let status = response.status();
            if status.is_success() || status == StatusCode::TEMPORARY_REDIRECT {
                return Ok((lease, response));
            }
            Err(self.refusal(ask, lease, response).await)
        })
    }

    /// Reads the rest of an answer, checks it and keeps the connection.
    pub(super) async fn collect(
        &self,
        ask: &Ask<'_>,
        lease: Lease,
        response: Response<Incoming>,
        bytes_max: u64,
        expected: Option<Digest>,
    ) -> Result<Bytes> {
        let call = self.call_of(ask);
        let pool = &self.pool;
        pool.collect(&call, lease, response, bytes_max, expected)
            .await
    }

    /// Returns the error that the relay answered with.
    async fn refusal(&self, ask: &Ask<'_>, lease: Lease, response: Response<Incoming>) -> Error {
        let kind = wire::kind_of(response.status().as_u16());
        let status = response.status();
        let locus = if ask.method == Method::PUT {
            Locus::Destination
        } else {
            Locus::Source
        };
        let error = Error::new(kind, ask.operation, self.address.url.clone())
            .at(locus)
            .with("path", ask.target.path())
            .with("status", status.as_u16());
        let body = self
            .collect(ask, lease, response, ANSWER_BYTES_MAX, None)
            .await;
        let body = body
            .ok()
            .and_then(|bytes| serde_json::from_slice::<ErrorBody>(&bytes).ok());
        let error = match body.as_ref().and_then(|body| body.most_bytes) {
            Some(most) => error.with(wire::MOST_BYTES, most),
            None => error,
        };
        match body {
            Some(ErrorBody {
                message,
                hint: Some(hint),
                ..
            }) => error.cause(message).hint(hint),
            Some(ErrorBody { message, .. }) => error.cause(message),
            None => error.cause(format!("it answered {status}")),
        }
    }

    pub(super) fn nonsense(
        &self,
        ask: &Ask<'_>,
        cause: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Error {
        self.pool.nonsense(&self.call_of(ask), cause)
    }
}

fn header_text<'a>(response: &'a Response<Incoming>, name: &str) -> Option<&'a str> {
    response.headers().get(name)?.to_str().ok()
}
