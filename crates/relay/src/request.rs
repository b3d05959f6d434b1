//! Requests: parses one and answers it.

mod inventory;

use std::{io, path::PathBuf, sync::Arc};

use bytes::Bytes;
use futures_util::stream;
use http::{HeaderMap, Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::{Frame, Incoming};
use posthaste_endpoint::{
    ErrorKind,
    peer::wire::PREFIX,
    relay::{
        DatasetId,
        wire::{self, HoursBody, Object, StatusBody, Target},
    },
};
use posthaste_types::Digest;
use tokio::sync::Semaphore;
use tracing::Instrument;

use crate::{
    answer::{Body, empty, json, refuse},
    bucket::{self, Backing},
    clock, drain,
    files::Files,
    forward::Forwards,
    gather::Gathers,
    load,
    measure::Measures,
    order,
    rate::RateLimit,
    reception::{Reception, blocking},
    rights::{authorize, authorize_all, needed},
    scatter::Scatters,
    space,
    store::{Refusal, Store, Stored, Upload, other_digest},
    traced::Call,
};

/// Bytes of a stored object read at once: large enough for the disk, small beside many readers.
const READ_BYTES: usize = 256 << 10;
/// Bytes read from a refused client at most, so that it gets the refusal: a usual fragment.
const STRANGER_BYTES_MAX: u64 = 16 << 20;

/// Clients served at once; more wait. Each may hold 2 MiB of an upload.
pub(crate) const CONNECTIONS_MAX: usize = 256;
/// Features that not every relay has.
const FEATURES: [&str; 8] = [
    wire::FORWARD,
    wire::FOLLOW,
    wire::GATHER,
    wire::MEND,
    wire::SCATTER,
    wire::MEASURE,
    wire::SPACE,
    wire::TAKE,
];

/// State needed to answer.
pub(crate) struct Service {
    /// Directory of everything it keeps.
    pub(crate) dir: PathBuf,
    pub(crate) name: String,
    pub(crate) instance: String,
    /// Hours in which it is lent, by this machine's clock; `None` for always.
    pub(crate) hours: Option<String>,
    /// File with the load of the machine.
    pub(crate) load_from: PathBuf,
    pub(crate) secret: [u8; 32],
    pub(crate) store: Arc<Store>,
    /// Store of the bytes, if not here.
    pub(crate) backing: Option<Backing>,
    pub(crate) rate: Arc<RateLimit>,
    pub(crate) files: Arc<Files>,
    /// Transfers to other relays.
    pub(crate) forwards: Forwards,
    /// Fetches from other relays.
    pub(crate) gathers: Gathers,
    /// Coding for others.
    pub(crate) scatters: Scatters,
    /// Measurements of paths to other relays.
    pub(crate) measures: Measures,
    /// Permits for probes under way.
    pub(crate) probes: Semaphore,
    /// Permits for connections, those that are free now.
    pub(crate) free_connections: Arc<Semaphore>,
}

impl Service {
    /// Answers one request. No input makes it fail.
    pub(crate) async fn answer(self: Arc<Self>, request: Request<Incoming>) -> Response<Body> {
        let call = Call::begin(&self.name, &request);
        let answer = self.understood(request).instrument(call.span()).await;
        call.end(answer.status());
        answer
    }

    async fn understood(self: Arc<Self>, request: Request<Incoming>) -> Response<Body> {
        if request.uri().path().starts_with(PREFIX) {
            if self.backing.is_some() {
                let what = "this relay keeps no files: it has an object store for fragments";
                let refused = Refusal::new(ErrorKind::Unsupported, what);
                return refuse(refused, true);
            }
            let response = Arc::clone(&self.files).answer(request).await;
            return response.map(|body| body.map_err(|never| match never {}).boxed_unsync());
        }
        let (head, body) = request.into_parts();
        let body = Reception::new(body, Arc::clone(&self.rate));
        let is_ended = match self.route(&head, body).await {
            Ok(response) => return response,
            Err((refusal, None)) => return refuse(refusal, false),
            Err((refusal, Some((body, bytes_max)))) => (refusal, body.discard(bytes_max).await),
        };
        refuse(is_ended.0, !is_ended.1)
    }

    /// Parses the request, checks its rights, and executes it. A refusal comes with the unread
    /// body, and how much of it is worth reading.
    async fn route(
        &self,
        head: &http::request::Parts,
        body: Reception,
    ) -> Result<Response<Body>, (Refusal, Option<(Reception, u64)>)> {
        let target = Target::parse(head.uri.path());
        let allowed = needed(&head.method, target.as_ref())
            .and_then(|needed| authorize(&self.secret, &head.headers, needed.0, needed.1.as_ref()));
        if let Err(refusal) = allowed {
            return Err((refusal, Some((body, STRANGER_BYTES_MAX))));
        }
        if let Some(backing) = &self.backing {
            return self.answer_backed(backing, head, target, body).await;
        }
        let answer = match target {
            Some(Target::Pass(..)) => {
                let what = "this relay takes bytes itself";
                Err(Refusal::new(ErrorKind::Unsupported, what))
            }
            Some(Target::Object(id, object)) if head.method == Method::PUT => {
                return self.put(&head.headers, id, object, body).await;
            }
            Some(Target::Object(id, object)) if head.method == Method::DELETE => {
                self.delete_unless(id, object, head.uri.query()).await
            }
            Some(Target::Object(id, object)) => self.get(id, object).await,
            Some(Target::Inventory(id)) => self.inventory(id, head.uri.query()).await,
            Some(Target::Dataset(id)) => self.delete(id).await,
            Some(Target::Space(id)) => space::answer(&self.store, &head.method, id, body).await,
            Some(Target::Spaces) => {
                authorize_all(&head.headers).map(|()| json(StatusCode::OK, &self.store.spaces()))
            }
            Some(Target::Probe) => return self.sink(body).await,
            Some(Target::Measure) => return self.measures.measure(body).await,
            Some(Target::Forward(id, object)) => {
                return self.forwards.forward(&self.store, id, object, body).await;
            }
            Some(Target::Gather(id, object)) => {
                return self.gathers.gather(&self.store, id, object, body).await;
            }
            Some(Target::Scatter(id, object)) => {
                return self.scatters.scatter(&self.store, id, object, body).await;
            }
            Some(Target::Status | Target::Register | Target::Heartbeat) | None => {
                Ok(json(StatusCode::OK, &self.status()))
            }
        };
        answer.map_err(|refusal| (refusal, None))
    }

    /// Waits until something is to be removed from the store of the bytes.
    pub(crate) async fn doomed(&self) {
        match &self.backing {
            Some(backing) => backing.cleaner.wanted().await,
            None => std::future::pending().await,
        }
    }

    /// Gives up uploads that do not arrive, and removes from the store what is gone here.
    pub(crate) async fn tidy_bucket(&self) {
        if let Some(backing) = &self.backing {
            backing.passes.give_up_late();
            backing.passes.end_probes().await;
            backing.cleaner.clean().await;
        }
    }

    /// Returns the status of the relay.
    pub(crate) fn status(&self) -> StatusBody {
        let usage = self.store.usage();
        StatusBody {
            name: self.name.clone(),
            version: env!("CARGO_PKG_VERSION").into(),
            capacity_bytes: usage.capacity,
            used_bytes: usage.used,
            free_bytes: usage.free,
            reserved_bytes: usage.reserved,
            rate_limit_bytes_per_s: self.rate.rate().map(|rate| rate.get()),
            received_bytes: self.rate.taken_bytes(),
            connections: connections(&self.free_connections),
            features: match self.backing {
                None => FEATURES.map(str::to_owned).into(),
                Some(_) => bucket::FEATURES.map(str::to_owned).into(),
            },
            draining: drain::draining(&self.dir).map(|drain| drain.word().to_owned()),
            // The clock is asked each time: summer time comes and goes while the relay runs.
            hours: self.hours.clone().map(|open| HoursBody {
                open,
                ahead_of_utc_min: clock::ahead_of_utc_min(),
            }),
            load_permille: load::permille(&self.load_from),
            store: self.backing.as_ref().map(Backing::name),
            // After a loss as after a restart, services ask what is left.
            instance: Some(match self.store.losses() {
                0 => self.instance.clone(),
                losses => format!("{}.{losses}", self.instance),
            }),
        }
    }

    /// Receives a probe and discards it.
    async fn sink(
        &self,
        body: Reception,
    ) -> Result<Response<Body>, (Refusal, Option<(Reception, u64)>)> {
        let Ok(_permit) = self.probes.try_acquire() else {
            let refusal = Refusal::new(ErrorKind::Busy, "other probes are under way");
            return Err((refusal, Some((body, 0))));
        };
        match body.sink(wire::PROBE_BYTES_MAX).await {
            Ok(seen) => Ok(json(StatusCode::OK, &seen)),
            Err((refusal, body)) => Err((refusal, Some((body, 0)))),
        }
    }

    async fn put(
        &self,
        headers: &HeaderMap,
        dataset: DatasetId,
        object: Object,
        body: Reception,
    ) -> Result<Response<Body>, (Refusal, Option<(Reception, u64)>)> {
        let (stored, expires_s) = match upload_headers(headers) {
            Ok(wanted) => wanted,
            Err(refusal) => return Err((refusal, Some((body, wire::OBJECT_BYTES_MAX)))),
        };
        if let Some(there) = self.store.find(&dataset, object) {
            if there.digest != stored.digest {
                return Err((other_digest(), Some((body, wire::OBJECT_BYTES_MAX))));
            }
            body.discard(wire::OBJECT_BYTES_MAX).await;
            let store = Arc::clone(&self.store);
            let extended = blocking(move || store.extend(&dataset, expires_s)).await;
            return extended
                .map(|()| empty(StatusCode::OK))
                .map_err(|refusal| (refusal, None));
        }
        let store = Arc::clone(&self.store);
        let begin = move || Upload::begin(store, dataset, object, stored, expires_s);
        match blocking(begin).await {
            Err(refusal) => Err((refusal, Some((body, wire::OBJECT_BYTES_MAX)))),
            Ok(upload) => match body.store(upload).await {
                Ok(()) => Ok(empty(StatusCode::CREATED)),
                Err(refusal) => Err((refusal, None)),
            },
        }
    }

    async fn get(&self, dataset: DatasetId, object: Object) -> Result<Response<Body>, Refusal> {
        let store = Arc::clone(&self.store);
        let (file, stored, length) = blocking(move || {
            let (file, stored) = store.read(&dataset, object)?;
            // Uses the file's length now: a damaged file is sent as it is, and its digest shows
            // that.
            let length = file.metadata()?.len();
            Ok((file, stored, length))
        })
        .await?;
        let pieces = stream::try_unfold((file, length), |(file, left)| async move {
            if left == 0 {
                return Ok(None);
            }
            let read =
                tokio::task::spawn_blocking(move || read_piece(&file, left).map(|p| (p, file)));
            let (piece, file) = read.await.map_err(io::Error::other)??;
            let left = left - piece.len() as u64;
            Ok(Some((Frame::data(piece), (file, left))))
        });
        Response::builder()
            .header(header::CONTENT_TYPE, "application/octet-stream")
            .header(header::CONTENT_LENGTH, length)
            .header(wire::DIGEST_HEADER, stored.digest.to_string())
            .body(BodyExt::boxed_unsync(StreamBody::new(
                Box::pin(pieces) as Pieces
            )))
            .map_err(|cause| Refusal::new(ErrorKind::Other, cause.to_string()))
    }

    pub(crate) async fn delete_unless(
        &self,
        dataset: DatasetId,
        object: Object,
        query: Option<&str>,
    ) -> Result<Response<Body>, Refusal> {
        let digest = wire::parse_unless(query);
        let what = "the query is not unless=DIGEST";
        let digest = digest.ok_or_else(|| Refusal::new(ErrorKind::Invalid, what))?;
        let store = Arc::clone(&self.store);
        blocking(move || store.remove_unless(&dataset, object, digest)).await?;
        Ok(empty(StatusCode::NO_CONTENT))
    }

    async fn delete(&self, dataset: DatasetId) -> Result<Response<Body>, Refusal> {
        let store = Arc::clone(&self.store);
        blocking(move || store.remove(&dataset)).await?;
        Ok(empty(StatusCode::NO_CONTENT))
    }
}

fn connections(free: &Semaphore) -> u32 {
    let busy = CONNECTIONS_MAX.saturating_sub(free.available_permits());
    u32::try_from(busy).unwrap_or(u32::MAX)
}

/// Returns digest, size and expiry of an upload.
fn upload_headers(headers: &HeaderMap) -> Result<(Stored, u64), Refusal> {
    let invalid = |message: &str| Refusal::new(ErrorKind::Invalid, message);
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let size: u64 = text("content-length")
        .and_then(|text| text.parse().ok())
        .ok_or_else(|| invalid("an upload says its content-length"))?;
    if size > wire::OBJECT_BYTES_MAX {
        let max = wire::OBJECT_BYTES_MAX;
        return Err(invalid(&format!(
            "{size} bytes are more than the {max} of one object"
        )));
    }
    let digest: Digest = text(wire::DIGEST_HEADER)
        .and_then(|text| text.parse().ok())
        .ok_or_else(|| invalid("an upload says its posthaste-digest: 64 hexadecimal digits"))?;
    let expires_s: u64 = text(wire::EXPIRES_HEADER)
        .and_then(|text| text.parse().ok())
        .ok_or_else(|| invalid("an upload says when it posthaste-expires, in Unix seconds"))?;
    order::check_expiry(expires_s)?;
    Ok((Stored { digest, size }, expires_s))
}

type Pieces =
    std::pin::Pin<Box<dyn futures_util::Stream<Item = io::Result<Frame<Bytes>>> + Send + Sync>>;

fn read_piece(mut file: &std::fs::File, left: u64) -> io::Result<Bytes> {
    use std::io::Read;
    let wanted = usize::try_from(left).unwrap_or(READ_BYTES).min(READ_BYTES);
    let mut piece = vec![0; wanted];
    file.read_exact(&mut piece)?;
    Ok(piece.into())
}
