//! Serves chunks that still lie at a source to clients that pull them.
//!
//! While the source of an offload exists, a pull takes chunks from it too, by the protocol of
//! relays; chunks that no depot holds yet come from it alone. Each chunk must have the manifest's
//! digest or is not served. A manifest lists all chunks, so unread chunks are read first, without
//! being sent.

use std::{
    collections::{HashMap, HashSet},
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use posthaste_api as api;
use posthaste_core::contract::RequestState;
use posthaste_endpoint::{
    Error, ErrorKind, Result,
    relay::{
        self, Fingerprint, RelayAddress,
        join::{HeartbeatBody, RegisterBody},
        wire::Held,
    },
};
use posthaste_engine::dataset::DatasetId;
use posthaste_journal::{RequestRecord, Scan};
use posthaste_relay::{Outlet, Position, Shelf};
use posthaste_types::{ByteRate, Digest, FragmentIndex, RequestId, Timestamp};
use tokio::sync::mpsc;

use crate::{driver::Centre, members::Members, monotonic, omissions, outbound::goes_out};

/// Requests whose chunks wait to be read; further clients are told to come back.
pub(crate) const READS_MAX: usize = 64;
/// Chunks whose digests are recorded together.
const KEPT_AT_ONCE: usize = 16;
/// Time for which the uplink's urgency is cached.
const PRESSED_FOR: Duration = Duration::from_secs(1);
/// Name of a source among the holders of a dataset.
const NAME: &str = "source";

/// Options of the source server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LendingOptions {
    /// Listening address; port 0 takes any free one.
    pub listen: SocketAddr,
    /// Address by which pulls reach it, if not that one.
    pub url: Option<String>,
    /// Rate limit of serving sources.
    pub rate: Option<ByteRate>,
}

/// Source server: its address in tickets, and the chunks read for waiting clients.
pub(crate) struct Lending {
    pub(crate) url: String,
    fingerprint: Fingerprint,
    secret: [u8; 32],
    reads: mpsc::Sender<RequestId>,
    books: Mutex<Books>,
}

#[derive(Default)]
struct Books {
    /// Requests whose chunks are being read, or wait for that.
    reading: HashSet<RequestId>,
    /// Errors that ended reading early, until they are reported.
    failed: HashMap<RequestId, Error>,
    by_dataset: HashMap<DatasetId, RequestId>,
    /// Last check whether the uplink is urgently needed, with its time.
    pressed: Option<(Instant, bool)>,
}

impl Lending {
    /// # Errors
    /// [`ErrorKind::Invalid`] if no reachable address is known.
    pub(crate) fn new(
        outlet: &Outlet,
        url: Option<String>,
        reads: mpsc::Sender<RequestId>,
    ) -> Result<Self> {
        let local = outlet.local();
        let url = match url {
            Some(url) => url,
            None if local.ip().is_unspecified() => {
                return Err(Error::new(
                    ErrorKind::Invalid,
                    "hand out sources at",
                    local.to_string(),
                )
                .cause("that is every address of this machine, and none to tell others")
                .hint("say how it is reached: --source-url https://HOST:PORT"));
            }
            None => format!("https://{local}"),
        };
        if !url.starts_with("https://") {
            return Err(Error::new(ErrorKind::Invalid, "hand out sources at", url)
                .cause("it is no https:// address"));
        }
        Ok(Self {
            url,
            fingerprint: outlet.fingerprint(),
            secret: outlet.secret(),
            reads,
            books: Mutex::default(),
        })
    }

    /// Returns its address and key.
    pub(crate) fn address(&self) -> RelayAddress {
        RelayAddress {
            url: self.url.clone(),
            fingerprint: self.fingerprint,
        }
    }

    fn books(&self) -> MutexGuard<'_, Books> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the source as a holder of a request's dataset, and how many chunks must be read
    /// before there is a manifest. None if it is not served.
    ///
    /// # Errors
    /// Errors of reading the source.
    pub(crate) fn offer(
        &self,
        centre: &Centre,
        record: &RequestRecord,
        expires: Timestamp,
    ) -> Result<Option<(api::Holder, u64)>> {
        let Ok(chunks) = may_lend(centre, record) else {
            return Ok(None);
        };
        let request = record.id;
        let unread = chunks
            - centre
                .store
                .journal(|journal| journal.chunks_read(request))?
                .min(chunks);
        let dataset = centre.store.dataset(request)?;
        let mut books = self.books();
        if let Some(error) = books.failed.remove(&request) {
            return Err(error);
        }
        books.by_dataset.insert(dataset, request);
        if unread > 0 && !books.reading.contains(&request) {
            self.reads.try_send(request).map_err(|_| {
                Error::new(ErrorKind::Busy, "pull", format!("request {request}"))
                    .cause(format!(
                        "{READS_MAX} others wait for their sources to be read"
                    ))
                    .hint("try again in a minute, or wait until it is safe")
            })?;
            books.reading.insert(request);
        }
        let token = relay::mint(&self.secret, relay::Scope::Read, Some(&dataset), expires);
        let holder = api::Holder {
            name: NAME.to_owned(),
            url: self.url.clone(),
            fingerprint: self.fingerprint.to_string(),
            token,
            is_source: true,
        };
        Ok(Some((holder, unread)))
    }
}

/// Returns the number of chunks of a request's source, if it may be served: it was scanned, the
/// request was accepted and continues, and the source was not released.
fn may_lend(centre: &Centre, record: &RequestRecord) -> Result<u64> {
    let refused = |why: &str| {
        Error::new(
            ErrorKind::NotFound,
            "hand out",
            format!("the source of {}", record.id),
        )
        .cause(why.to_owned())
    };
    let Some(Scan::Sealed {
        bytes, chunk_size, ..
    }) = record.scan
    else {
        return Err(refused("it was not scanned yet"));
    };
    if record.stage_in.is_some() {
        let what = if goes_out(record) {
            "it goes straight to its address"
        } else {
            "it is a stage-in"
        };
        return Err(refused(what));
    }
    let view = centre.mind().request(record.id);
    let view = view.ok_or_else(|| refused("the request is over"))?;
    match view.state {
        RequestState::Moving | RequestState::Safe => {}
        RequestState::Released => return Err(refused("it was released")),
        RequestState::Refused
        | RequestState::Cancelled
        | RequestState::Failed
        | RequestState::Delivered => return Err(refused("the request is over")),
    }
    // The mind's choice is recorded a moment later.
    if view.spec.code != record.code {
        return Err(refused("its code is being chosen"));
    }
    Ok(bytes.pieces(chunk_size))
}

/// Reads queued requests one after another: there is one disk, and depots come first.
pub(crate) async fn read_all(centre: Arc<Centre>, mut queue: mpsc::Receiver<RequestId>) {
    while let Some(request) = queue.recv().await {
        let read = read(&centre, request).await;
        let Some(lending) = centre.lending.get() else {
            return;
        };
        let mut books = lending.books();
        books.reading.remove(&request);
        if let Err(error) = read {
            tracing::warn!(%request, "{error}");
            books.failed.insert(request, error);
        }
    }
}

async fn read(centre: &Centre, request: RequestId) -> Result<()> {
    let sealed = centre.opened.get(&centre.store, request)?;
    let mut records = Vec::new();
    let keep = |records: &mut Vec<_>| {
        let kept = std::mem::take(records);
        tokio::task::block_in_place(|| centre.store.journal(|journal| journal.keep_chunks(&kept)))
    };
    for chunk in sealed.unread() {
        may_lend(centre, &centre.store.request(request)?)?;
        let mut read = sealed.fragment(chunk, FragmentIndex::WHOLE).await;
        if read.is_err() && omissions::leave_out(centre, &sealed, request, chunk).await? {
            read = sealed.fragment(chunk, FragmentIndex::WHOLE).await;
        }
        let (fragment, _) = read?;
        records.push(posthaste_journal::ChunkRecord {
            request,
            chunk,
            digests: fragment.digests,
        });
        if records.len() >= KEPT_AT_ONCE {
            keep(&mut records)?;
        }
    }
    keep(&mut records)
}

/// Sources of all requests, and registration of relays.
pub(crate) struct Sources {
    pub(crate) centre: Arc<Centre>,
    pub(crate) members: Members,
}

impl Sources {
    fn lending(&self) -> Result<&Lending> {
        let lending = self.centre.lending.get();
        lending.ok_or_else(|| Error::new(ErrorKind::NotFound, "hand out", "any source"))
    }

    /// Finds the request of a dataset whose source is served.
    fn find(&self, dataset: DatasetId) -> Result<RequestRecord> {
        let lending = self.lending()?;
        let known = lending.books().by_dataset.get(&dataset).copied();
        let store = &self.centre.store;
        let record = match known {
            Some(request) => store.request(request)?,
            None => {
                let name = dataset.to_string();
                let found = store.journal(|journal| journal.request_of_dataset(&name))?;
                let found = found.ok_or_else(|| {
                    Error::new(ErrorKind::NotFound, "find", format!("dataset {name}"))
                })?;
                lending.books().by_dataset.insert(dataset, found.id);
                found
            }
        };
        may_lend(&self.centre, &record)?;
        Ok(record)
    }
}

impl Shelf for Sources {
    async fn inventory(
        &self,
        dataset: DatasetId,
        (chunk, _): Position,
        most: usize,
    ) -> Result<(Vec<Held>, Option<Position>)> {
        let request = self.find(dataset)?.id;
        let sealed = self.centre.opened.get(&self.centre.store, request)?;
        let whole = FragmentIndex::WHOLE;
        let mut known = sealed.digests_from(chunk, most + 1);
        let next = (known.len() > most).then(|| known.pop()).flatten();
        let held = known
            .into_iter()
            .map(|(chunk, digest)| (chunk, whole, digest));
        Ok((held.collect(), next.map(|(chunk, _)| (chunk, whole))))
    }

    async fn fragment(
        &self,
        dataset: DatasetId,
        (chunk, fragment): Position,
    ) -> Result<(bytes::Bytes, Digest)> {
        let request = self.find(dataset)?.id;
        let sealed = self.centre.opened.get(&self.centre.store, request)?;
        let gone = |why: &str| {
            Error::new(ErrorKind::NotFound, "hand out", format!("chunk {chunk}"))
                .cause(why.to_owned())
        };
        if fragment != FragmentIndex::WHOLE {
            return Err(gone("a source has whole chunks, fragment 255"));
        }
        if !sealed.is_read(chunk) {
            return Err(gone("nobody read it yet"));
        }
        match sealed.fragment(chunk, fragment).await {
            Ok((fragment, _)) => Ok((fragment.bytes, fragment.digest)),
            // This concerns only this chunk, not the rest of the source.
            Err(error) if matches!(error.kind(), ErrorKind::Changed | ErrorKind::NotFound) => Err(
                gone(&format!("its source is no longer what was sealed: {error}")),
            ),
            Err(error) => Err(error),
        }
    }

    async fn register(&self, token: &str, body: RegisterBody) -> Result<()> {
        self.members.register(token, body).await
    }

    async fn heartbeat(&self, token: &str, body: HeartbeatBody) -> Result<()> {
        self.members.heartbeat(token, body).await
    }

    fn is_pressed(&self) -> bool {
        let Ok(lending) = self.lending() else {
            return false;
        };
        let now = monotonic();
        if let Some((at, pressed)) = lending.books().pressed
            && now.duration_since(at) < PRESSED_FOR
        {
            return pressed;
        }
        let mind = self.centre.mind();
        let mut views = mind.requests();
        let pressed = views.any(|view| view.at_risk && view.state == RequestState::Moving);
        drop(views);
        drop(mind);
        lending.books().pressed = Some((now, pressed));
        pressed
    }
}
