//! Exports: stage-outs to an address, where files arrive as they are for others to read.
//!
//! To the mind an export is a stage-in in the other direction, with its own path. The copy engine
//! chooses the order and concurrency of files, so a chunk is just an amount of bytes here. A
//! command to fetch a chunk allows that much more to move, and the chunk has arrived when that much
//! more is there.

pub(crate) mod ahead;
mod by_mover;
mod carrier;
mod complaints;
mod expected;
mod hosts;
mod left_out;
mod listed;
pub(crate) mod measure;
mod mounts;
pub(crate) mod onward;
mod own;
mod pace;
mod places;
mod release;
pub(crate) mod submit;
mod verdict;
mod verify;
pub(crate) mod way;

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use posthaste_core::contract::{Command, Fault, Input, StageInNews};
use posthaste_endpoint::{Error, ErrorKind, Locus};
use posthaste_engine::copy::is_clash;
use posthaste_journal::RequestRecord;
use posthaste_types::{ByteRate, Bytes, ChunkIndex, RequestId, SourceId};
use tokio::{sync::mpsc, task::JoinSet};
use tracing::Instrument;

use crate::{
    depots::Depots,
    driver::{Arrival, Centre},
    inbound::{Flows, tell_unkept},
    listing::Listings,
    movers::Movers,
    store::Store,
    traced::Traced,
};
use carrier::{Carrier, Granted};
pub(crate) use complaints::Complaints;
pub(crate) use expected::{Expected, Wanted};
pub(crate) use places::{Places, places, places_as_written};

/// Returns whether a request goes to an address: the destination of a stage-in is a path.
pub(crate) fn goes_out(record: &RequestRecord) -> bool {
    record.stage_in.is_some() && !record.destination.starts_with('/')
}

/// State of exports (stage-outs to addresses) beside the mind and the journal.
pub(crate) struct Outgoing {
    pub(crate) places: Places,
    pub(crate) complaints: Complaints,
    /// Cached directory listings, which an export invalidates by writing there.
    listings: Arc<Listings>,
}

impl Outgoing {
    pub(crate) fn new(listings: &Arc<Listings>) -> Self {
        Self {
            places: Places::default(),
            complaints: Complaints::default(),
            listings: Arc::clone(listings),
        }
    }
}

/// Carries out the mind's commands for exports; owned by the hands.
pub(crate) struct Outbound {
    store: Arc<Store>,
    flows: Arc<Flows>,
    traced: Arc<Traced>,
    outgoing: Arc<Outgoing>,
    movers: Arc<Movers>,
    depots: Arc<Depots>,
    inputs: mpsc::Sender<Arrival>,
    /// Carriers of exports under way; none for other requests.
    carriers: HashMap<RequestId, Option<Arc<Carrier>>>,
}

impl Outbound {
    pub(crate) fn new(centre: &Centre) -> Self {
        Self {
            store: Arc::clone(&centre.store),
            flows: Arc::clone(&centre.flows),
            traced: Arc::clone(&centre.traced),
            outgoing: Arc::clone(&centre.outgoing),
            movers: Arc::clone(&centre.movers),
            depots: Arc::clone(&centre.depots),
            inputs: centre.inputs.clone(),
            carriers: HashMap::new(),
        }
    }

    /// Returns the state of exports beside the mind and the journal.
    pub(crate) fn outgoing(&self) -> Arc<Outgoing> {
        Arc::clone(&self.outgoing)
    }

    /// Returns whether a request is an export. Reads the journal for a new request; if that fails,
    /// it returns true, so that nobody else touches the request.
    pub(crate) fn has(&mut self, request: RequestId) -> bool {
        self.find(request).is_none_or(|found| found.is_some())
    }

    /// Returns the carrier of an export, or an inner none for other requests. Returns an outer none
    /// if the journal can't be read now.
    fn find(&mut self, request: RequestId) -> Option<Option<Arc<Carrier>>> {
        if let Some(known) = self.carriers.get(&request) {
            return Some(known.clone());
        }
        let (store, movers, depots) = (&self.store, &self.movers, &self.depots);
        match tokio::task::block_in_place(|| Carrier::open(store, movers, depots, request)) {
            Ok(opened) => {
                let opened = opened.map(Arc::new);
                self.carriers.insert(request, opened.clone());
                Some(opened)
            }
            Err(error) => {
                tracing::warn!(%request, "{error}");
                None
            }
        }
    }

    fn carrier(&mut self, request: RequestId) -> Option<Arc<Carrier>> {
        self.find(request).flatten()
    }

    /// Forgets a request that has ended on record. Unless `is_released`, its source may still have
    /// to be removed.
    pub(crate) fn forget(&mut self, request: RequestId, is_released: bool) {
        if let Some(carrier) = self.carrier(request) {
            if carrier.releases() && !is_released {
                return;
            }
            self.store.forget_outward(request);
            self.outgoing.places.give_back(request);
        }
        self.carriers.remove(&request);
    }

    /// Starts carrying out `command`; its result arrives as an input. Transfers keep to `rate_max`.
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "the hands carry out what is not about stage-outs to addresses"
    )]
    pub(crate) fn execute(
        &mut self,
        running: &mut JoinSet<()>,
        command: &Command,
        rate_max: Option<ByteRate>,
    ) {
        if let Command::Fetch { request, .. } | Command::Settle { request, .. } = *command
            && let Some(carrier) = self.carrier(request)
        {
            carrier.limit(rate_max);
        }
        match *command {
            Command::Fetch {
                request,
                source,
                chunk,
                ..
            } => self.fetch(running, (request, source), chunk),
            Command::Quit { request, .. } => {
                if let Some(carrier) = self.carrier(request) {
                    carrier.stop();
                }
            }
            Command::Survey { request, .. } => self.survey(running, request),
            Command::Settle { request, keep, .. } => self.settle(running, request, keep),
            _ => {}
        }
    }

    fn fetch(
        &mut self,
        running: &mut JoinSet<()>,
        (request, source): (RequestId, SourceId),
        chunk: ChunkIndex,
    ) {
        let Some(carrier) = self.carrier(request) else {
            return;
        };
        let flow = self.flows.of(source);
        let (inputs, outgoing) = (self.inputs.clone(), Arc::clone(&self.outgoing));
        if carrier.grant(chunk, source) {
            let begun = Arc::clone(&carrier);
            let span = self.traced.of_copy(request, &carrier.record().destination);
            let handle = running.spawn(async move {
                let _writing = outgoing.listings.writing(carrier.record());
                let carried = carrier.carry(&flow, &inputs).instrument(span.clone()).await;
                posthaste_trace::ended(&span, &carried);
                drop(span);
                if carried.is_ok() {
                    outgoing.complaints.pass(request);
                }
                if let Err(error) = carried {
                    outgoing.complaints.note(request, &error);
                    let fault = carrier.fault_of(&error);
                    tell_refused(&inputs, request, &error, fault).await;
                    for Granted { chunk, source } in carrier.take_back() {
                        let input = Input::ChunkMissed {
                            request,
                            source,
                            chunk,
                            fault,
                        };
                        let _ = inputs.send(Arrival::bare(input)).await;
                    }
                }
            });
            begun.runs_as(handle);
        }
    }

    fn survey(&mut self, running: &mut JoinSet<()>, request: RequestId) {
        let (store, inputs) = (Arc::clone(&self.store), self.inputs.clone());
        running.spawn(async move {
            let known =
                tokio::task::block_in_place(|| store.journal(|journal| journal.chunks(request)));
            match known {
                Ok(known) => {
                    let chunks = known.into_iter().map(|known| known.chunk).collect();
                    let input = Input::ArrivalSurveyed { request, chunks };
                    let _ = inputs.send(Arrival::bare(input)).await;
                }
                Err(error) => tracing::warn!(%request, "{error}"),
            }
        });
    }

    /// Checks that everything is there, or stops. Files at the destination stay: others may read
    /// them.
    fn settle(&mut self, running: &mut JoinSet<()>, request: RequestId, keep: bool) {
        let carrier = self.carrier(request);
        let (inputs, outgoing) = (self.inputs.clone(), Arc::clone(&self.outgoing));
        let Some(carrier) = carrier else {
            return;
        };
        if !keep {
            carrier.stop();
            self.carriers.remove(&request);
            self.store.forget_outward(request);
            self.outgoing.places.give_back(request);
            return;
        }
        running.spawn(async move {
            let _writing = outgoing.listings.writing(carrier.record());
            let input = match carrier.complete().await {
                Ok((left_out, unkept)) => {
                    tell_unkept(&inputs, request, unkept).await;
                    if left_out.files > 0 {
                        let news = StageInNews::LeftOut { left_out };
                        let told = Arrival::bare(Input::StageInTold { request, news });
                        let _ = inputs.send(told).await;
                    }
                    Input::Landed { request }
                }
                Err(error) => {
                    outgoing.complaints.note(request, &error);
                    let fault = carrier.fault_of(&error);
                    tell_refused(&inputs, request, &error, fault).await;
                    Input::LandingFailed { request, fault }
                }
            };
            let _ = inputs.send(Arrival::bare(input)).await;
        });
    }

    /// Removes a request's source once it was compared with the destination.
    pub(crate) fn release(&mut self, running: &mut JoinSet<()>, request: RequestId) {
        let carrier = self.carrier(request);
        let (store, inputs) = (Arc::clone(&self.store), self.inputs.clone());
        let outgoing = Arc::clone(&self.outgoing);
        running.spawn(async move {
            let compared = match carrier {
                Some(carrier) => carrier.verify().await,
                None => Err(Error::new(ErrorKind::Other, "read", "the journal")),
            };
            let released = match compared {
                Ok(()) => {
                    let released = release::release(&store, request).await;
                    released.map_err(|error| {
                        let fault = crate::release::fault_of(&error, fault_of(&error));
                        (error, fault)
                    })
                }
                Err(error) => {
                    let fault = fault_of(&error);
                    Err((error, fault))
                }
            };
            let input = match released {
                Ok(()) => Input::SourceReleased { request },
                Err((error, fault)) => {
                    outgoing.complaints.note(request, &error);
                    crate::release::tell_kept(&inputs, request, &error).await;
                    Input::SourceKept { request, fault }
                }
            };
            let _ = inputs.send(Arrival::bare(input)).await;
        });
    }
}

/// Reports the system's error at the destination to the mind, before the input that it explains.
async fn tell_refused(
    inputs: &mpsc::Sender<Arrival>,
    request: RequestId,
    error: &Error,
    fault: Fault,
) {
    if matches!(fault, Fault::Full | Fault::Unwritable) {
        let said = error.to_string();
        let news = StageInNews::Refused { said };
        let told = Arrival::bare(Input::StageInTold { request, news });
        let _ = inputs.send(told).await;
    }
}

/// Returns the fault for the mind to decide by. The source is on scratch, so other failures are
/// faults of the path or the destination.
#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "ErrorKind may grow; the rest is alike"
)]
fn fault_of(error: &Error) -> Fault {
    if is_clash(error) {
        return Fault::NamesMeet;
    }
    if error.locus() == Locus::Source {
        return match error.kind() {
            ErrorKind::Changed => Fault::SourceChanged,
            ErrorKind::NotFound => Fault::SourceVanished,
            ErrorKind::PermissionDenied | ErrorKind::Unsupported | ErrorKind::Invalid => {
                Fault::SourceUnreadable
            }
            _ => Fault::Other,
        };
    }
    match error.kind() {
        ErrorKind::Full => Fault::Full,
        ErrorKind::PermissionDenied
        | ErrorKind::NotFound
        | ErrorKind::Unsupported
        | ErrorKind::Invalid
        | ErrorKind::Conflict => Fault::Unwritable,
        ErrorKind::Unauthenticated => Fault::Unauthenticated,
        ErrorKind::Corrupt => Fault::Corrupt,
        ErrorKind::Busy => Fault::Busy,
        ErrorKind::Unreachable | ErrorKind::TimedOut => Fault::Unreachable,
        // A failure at the destination is not the fault of the path, which others use too.
        _ if error.locus() == Locus::Destination => Fault::Unwritable,
        _ => Fault::Other,
    }
}

fn locked<T>(shared: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the number of whole chunks in these bytes.
fn whole_chunks(bytes: u64, chunk_size: Bytes) -> u32 {
    let whole = bytes.checked_div(chunk_size.get()).unwrap_or(0);
    u32::try_from(whole).unwrap_or(u32::MAX)
}
