//! Outlet: serves what lies elsewhere, by the relay's protocol and read-only.
//!
//! So a pull needs no second client for it. Its bytes leave over an egress that others need more
//! urgently. So few bodies move at once, whatever clients ask for: the rest wait for their turn.

mod turns;

use std::{future::Future, io, net::SocketAddr, path::Path, sync::Arc};

use bytes::Bytes;
use futures_util::stream;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::{Frame, Incoming};
use posthaste_endpoint::{
    Error, ErrorKind, Lobby, Result,
    relay::{
        DatasetId, Fingerprint, Scope,
        join::{self, HeartbeatBody, RegisterBody},
        wire::{self, Held, Object, StatusBody, Target},
    },
};
use posthaste_types::{ByteRate, ChunkIndex, Digest, FragmentIndex};
use tokio::{
    net::TcpListener,
    sync::{OwnedSemaphorePermit, Semaphore},
    task::JoinSet,
};

use crate::{
    answer::{Body, full, json, refuse},
    identity::Identity,
    order,
    rate::RateLimit,
    reception::Reception,
    rights::{authorize, token},
    server::{Door, Place, bind, http},
    store::Refusal,
};
use turns::{Turn, Turns};

/// Clients served at once; more wait.
const CONNECTIONS_MAX: usize = 64;
/// Maximum of chunks in memory; a client that asks for more has to come back.
const CHUNKS_MAX: usize = 8;
/// Maximum of moving bodies.
const MOVING_MAX: u32 = 2;
/// Bytes of a body handed to a connection at once.
const PIECE_BYTES: usize = 256 << 10;

/// Position in an inventory.
pub type Position = (ChunkIndex, FragmentIndex);

/// Store from which an outlet serves objects.
pub trait Shelf: Send + Sync + 'static {
    /// Returns the inventory of a dataset from a position on, `most` entries at most, and the start
    /// of the next page.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] if nothing of it is served.
    fn inventory(
        &self,
        dataset: DatasetId,
        from: Position,
        most: usize,
    ) -> impl Future<Output = Result<(Vec<Held>, Option<Position>)>> + Send;

    /// Returns one object and its digest.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] if it is not served, with the reason.
    fn fragment(
        &self,
        dataset: DatasetId,
        position: Position,
    ) -> impl Future<Output = Result<(Bytes, Digest)>> + Send;

    /// Returns whether somebody else needs the egress so urgently that one body at a time is
    /// enough.
    fn is_pressed(&self) -> bool;

    /// Registers a relay; `token` is what it shows.
    ///
    /// # Errors
    /// The reason of a refusal: [`ErrorKind::Unsupported`] if no relays can register at all.
    fn register(&self, token: &str, body: RegisterBody) -> impl Future<Output = Result<()>> + Send {
        let _ = (token, body);
        async { Err(Error::new(ErrorKind::Unsupported, "register", "a relay")) }
    }

    /// Accepts the heartbeat of a relay; `token` is what it shows.
    ///
    /// # Errors
    /// Errors of [`Self::register`].
    fn heartbeat(
        &self,
        token: &str,
        body: HeartbeatBody,
    ) -> impl Future<Output = Result<()>> + Send {
        let _ = (token, body);
        async { Err(Error::new(ErrorKind::Unsupported, "hear", "a relay")) }
    }
}

/// Outlet that has its port, and is ready to run.
pub struct Outlet {
    listener: TcpListener,
    local: SocketAddr,
    identity: Identity,
    rate: Arc<RateLimit>,
}

impl Outlet {
    /// Makes or opens its identity in `dir`, and takes the port. `rate` is the maximum rate of all
    /// bodies.
    ///
    /// # Errors
    /// [`ErrorKind::Conflict`] if the port is in use; errors of the directory.
    pub fn open(dir: &Path, listen: SocketAddr, rate: Option<ByteRate>) -> Result<Self> {
        let failed = |cause| Error::listening(listen, cause, "choose another port");
        let listener = bind(listen, None).map_err(failed)?;
        Ok(Self {
            local: listener.local_addr().map_err(failed)?,
            listener,
            identity: Identity::open(dir)?,
            rate: Arc::new(RateLimit::new(rate)),
        })
    }

    /// Returns the address at which it listens.
    #[must_use]
    pub fn local(&self) -> SocketAddr {
        self.local
    }

    /// Its key.
    #[must_use]
    pub fn fingerprint(&self) -> Fingerprint {
        self.identity.fingerprint
    }

    /// Returns the secret from which its tokens are minted.
    #[must_use]
    pub fn secret(&self) -> [u8; 32] {
        self.identity.secret
    }

    /// Serves until it is dropped, and every connection with it.
    pub async fn run(self, shelf: Arc<impl Shelf>) {
        let door = Door::new(Arc::clone(&self.identity.tls));
        let permits = Arc::new(Semaphore::new(CONNECTIONS_MAX));
        let desk = Arc::new(Desk {
            shelf,
            secret: self.identity.secret,
            rate: self.rate,
            unlimited: Arc::new(RateLimit::new(None)),
            chunks: Arc::new(Semaphore::new(CHUNKS_MAX)),
            moving: Turns::new(MOVING_MAX),
        });
        let (mut lobby, mut connections) = (Lobby::default(), JoinSet::new());
        loop {
            tokio::select! {
                Some(_) = connections.join_next() => {}
                (stream, guest) = lobby.accept(&self.listener) => {
                    let place = Place::new(guest.clone(), &permits);
                    let (door, desk) = (door.clone(), Arc::clone(&desk));
                    let serving = async move {
                        let Some(stream) = door.greet(stream).await else {
                            return;
                        };
                        let answer = hyper::service::service_fn(move |request| {
                            let (place, desk) = (place.clone(), Arc::clone(&desk));
                            async move { place.answer(desk.answer(request)).await }
                        });
                        let _ = http().serve_connection(stream, answer).await;
                    };
                    lobby.add(guest, connections.spawn(serving));
                }
            }
        }
    }
}

/// State needed to answer.
struct Desk<S> {
    shelf: Arc<S>,
    secret: [u8; 32],
    rate: Arc<RateLimit>,
    /// Limit of incoming bodies, which are small: none.
    unlimited: Arc<RateLimit>,
    chunks: Arc<Semaphore>,
    moving: Arc<Turns>,
}

impl<S: Shelf> Desk<S> {
    /// Answers one request. No input makes it fail.
    async fn answer(&self, request: Request<Incoming>) -> Response<Body> {
        let (head, body) = request.into_parts();
        if let Some(told @ (Target::Register | Target::Heartbeat)) = Target::parse(head.uri.path())
            && head.method == Method::POST
        {
            return self.hear(told, &head, body).await;
        }
        // No other request here has a body: one that has is not read.
        let close = !hyper::body::Body::is_end_stream(&body);
        match self.route(&head).await {
            Ok(response) => response,
            Err(refusal) => refuse(refusal, close),
        }
    }

    /// Accepts a relay's report. The connection closes afterwards: reports are seldom, and there
    /// may be many relays.
    async fn hear(
        &self,
        told: Target,
        head: &http::request::Parts,
        body: Incoming,
    ) -> Response<Body> {
        let body = Reception::new(body, Arc::clone(&self.unlimited));
        let answer = async {
            let body = body.read(join::BODY_BYTES_MAX).await?;
            let token = token(&head.headers)
                .ok_or_else(|| Refusal::new(ErrorKind::Unauthenticated, "no token was shown"))?;
            let fault = "the body is not what a relay says";
            let heard = if told == Target::Register {
                self.shelf.register(token, order::read(&body, fault)?).await
            } else {
                let beat = order::read(&body, fault)?;
                self.shelf.heartbeat(token, beat).await
            };
            heard.map_err(|error| refusal_of(&error))
        };
        match answer.await {
            Ok(()) => {
                let mut response = json(StatusCode::OK, &serde_json::json!({}));
                let close = http::HeaderValue::from_static("close");
                response.headers_mut().insert(header::CONNECTION, close);
                response
            }
            Err(refusal) => refuse(refusal, true),
        }
    }

    async fn route(&self, head: &http::request::Parts) -> Result<Response<Body>, Refusal> {
        let target = Target::parse(head.uri.path());
        let target = target.ok_or_else(|| Refusal::new(ErrorKind::NotFound, "no such path"))?;
        let dataset = match (&head.method, &target) {
            (&Method::GET, Target::Status) => None,
            (&Method::GET, Target::Inventory(id) | Target::Object(id, _)) => Some(*id),
            _ => {
                let why = "a source is read, and nothing else";
                return Err(Refusal::new(ErrorKind::Unsupported, why));
            }
        };
        authorize(&self.secret, &head.headers, Scope::Read, dataset.as_ref())?;
        match target {
            Target::Inventory(id) => self.inventory(id, head.uri.query()).await,
            Target::Object(id, Object::Fragment(chunk, fragment)) => {
                self.fragment(id, (chunk, fragment)).await
            }
            Target::Object(_, Object::Manifest) => Err(Refusal::new(
                ErrorKind::NotFound,
                "the manifest is with the service",
            )),
            Target::Status
            | Target::Probe
            | Target::Measure
            | Target::Register
            | Target::Heartbeat
            | Target::Spaces
            | Target::Dataset(_)
            | Target::Space(_)
            | Target::Pass(..)
            | Target::Forward(..)
            | Target::Gather(..)
            | Target::Scatter(..) => Ok(json(StatusCode::OK, &self.status())),
        }
    }

    fn status(&self) -> StatusBody {
        StatusBody {
            name: "source".into(),
            version: env!("CARGO_PKG_VERSION").into(),
            capacity_bytes: 0,
            used_bytes: 0,
            free_bytes: 0,
            reserved_bytes: 0,
            rate_limit_bytes_per_s: self.rate.rate().map(ByteRate::get),
            received_bytes: 0,
            connections: 0,
            features: Vec::new(),
            draining: None,
            hours: None,
            load_permille: None,
            store: None,
            instance: None,
        }
    }

    async fn inventory(
        &self,
        dataset: DatasetId,
        query: Option<&str>,
    ) -> Result<Response<Body>, Refusal> {
        // Each chunk is compared when it is read.
        let (from, _) = wire::parse_from(query).ok_or_else(|| {
            Refusal::new(ErrorKind::Invalid, "the query is not from=CHUNK.FRAGMENT")
        })?;
        let most = wire::INVENTORY_PAGE_MAX;
        let (held, next) = self
            .shelf
            .inventory(dataset, from, most)
            .await
            .map_err(|error| refusal_of(&error))?;
        let mut page = Vec::with_capacity(held.len() * wire::INVENTORY_ENTRY_BYTES);
        held.iter()
            .for_each(|entry| wire::write_held(&mut page, entry));
        let mut builder = Response::builder();
        if let Some((chunk, fragment)) = next {
            let next = format!("{}.{}", chunk.get(), fragment.get());
            builder = builder.header(wire::NEXT_HEADER, next);
        }
        builder
            .body(full(page))
            .map_err(|cause| Refusal::new(ErrorKind::Other, cause.to_string()))
    }

    async fn fragment(
        &self,
        dataset: DatasetId,
        position: Position,
    ) -> Result<Response<Body>, Refusal> {
        let Ok(permit) = Arc::clone(&self.chunks).try_acquire_owned() else {
            let why = "as many chunks as fit into memory are being read";
            return Err(Refusal::new(ErrorKind::Busy, why));
        };
        let read = self.shelf.fragment(dataset, position).await;
        let (bytes, digest) = read.map_err(|error| refusal_of(&error))?;
        let length = bytes.len();
        let body = Moving {
            left: bytes,
            turn: None,
            slots: if self.shelf.is_pressed() {
                MOVING_MAX
            } else {
                1
            },
            rate: Arc::clone(&self.rate),
            moving: Arc::clone(&self.moving),
            _permit: permit,
        };
        let pieces = stream::try_unfold(body, |mut body| async move {
            let piece = body.next().await;
            Ok::<_, io::Error>(piece.map(|piece| (Frame::data(piece), body)))
        });
        Response::builder()
            .header(header::CONTENT_TYPE, "application/octet-stream")
            .header(header::CONTENT_LENGTH, length)
            .header(wire::DIGEST_HEADER, digest.to_string())
            .body(BodyExt::boxed_unsync(StreamBody::new(Box::pin(pieces))))
            .map_err(|cause| Refusal::new(ErrorKind::Other, cause.to_string()))
    }
}

/// Body on its way out.
struct Moving {
    left: Bytes,
    turn: Option<Turn>,
    /// Number of moving bodies for which this one counts.
    slots: u32,
    rate: Arc<RateLimit>,
    moving: Arc<Turns>,
    _permit: OwnedSemaphorePermit,
}

impl Moving {
    async fn next(&mut self) -> Option<Bytes> {
        if self.left.is_empty() {
            self.turn = None;
            return None;
        }
        let piece = self.left.split_to(self.left.len().min(PIECE_BYTES));
        self.rate.take(piece.len()).await;
        if self.turn.as_ref().is_none_or(Turn::is_over) {
            // Given back first, so that the client that waits longest comes first.
            self.turn = None;
            self.turn = Some(self.moving.begin(self.slots).await);
        }
        Some(piece)
    }
}

fn refusal_of(error: &Error) -> Refusal {
    Refusal::new(error.kind(), error.to_string())
}
