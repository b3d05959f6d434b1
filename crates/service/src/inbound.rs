//! Stage-ins: lists sources, fetches chunks into a draft, and publishes the files.

mod apart;
mod by_mover;
mod chunk;
mod compare;
mod flow;
pub(crate) mod landed;
mod left_out;
pub(crate) mod list;
pub(crate) mod look;
mod measure;
mod mixed;
mod near;
pub(crate) mod room;
mod stage;
pub(crate) mod submit;
mod sums;
mod told;
mod union;

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex, PoisonError, RwLock},
};

use posthaste_core::contract::{Command, Fault, Input, StageInNews};
use posthaste_endpoint::{Error, ErrorKind, Location, Locus, Result, Unkept};
use posthaste_engine::copy::is_clash;
use posthaste_types::{ChunkIndex, DepotId, RequestId, SourceId};
use tokio::{
    sync::{Semaphore, mpsc},
    task::{AbortHandle, JoinSet},
};
use tracing::{Instrument, Span};

use crate::{
    credentials::apart,
    depots::Depots,
    driver::{Arrival, Centre},
    movers::Movers,
    outbound::{Outgoing, goes_out},
    store::Store,
    traced::Traced,
};
pub(crate) use flow::Flow;
use stage::Stage;

/// Measured flows of the sources, by source number.
#[derive(Default)]
pub(crate) struct Flows {
    by_id: RwLock<BTreeMap<SourceId, Arc<Flow>>>,
}

impl Flows {
    /// Returns the flow of a source, which is empty for a new source.
    pub(crate) fn of(&self, source: SourceId) -> Arc<Flow> {
        let mut flows = self.by_id.write().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(flows.entry(source).or_default())
    }

    pub(crate) fn all(&self) -> Vec<(SourceId, Arc<Flow>)> {
        let flows = self.by_id.read().unwrap_or_else(PoisonError::into_inner);
        flows
            .iter()
            .map(|(source, flow)| (*source, Arc::clone(flow)))
            .collect()
    }
}

type Stages = Arc<Mutex<HashMap<RequestId, Arc<tokio::sync::OnceCell<Arc<Stage>>>>>>;

/// Carries out the mind's commands for stage-ins; owned by the hands.
pub(crate) struct Inbound {
    store: Arc<Store>,
    traced: Arc<Traced>,
    flows: Arc<Flows>,
    depots: Arc<Depots>,
    movers: Arc<Movers>,
    outgoing: Arc<Outgoing>,
    /// Memory, in MiB, for chunks on their way to depots near the centre.
    memory: Arc<Semaphore>,
    inputs: mpsc::Sender<Arrival>,
    /// Fetches that a `Quit` must reach.
    fetches: HashMap<(RequestId, SourceId), Vec<AbortHandle>>,
    stages: Stages,
}

impl Inbound {
    pub(crate) fn new(centre: &Centre) -> Self {
        Self {
            store: Arc::clone(&centre.store),
            traced: Arc::clone(&centre.traced),
            flows: Arc::clone(&centre.flows),
            depots: Arc::clone(&centre.depots),
            movers: Arc::clone(&centre.movers),
            outgoing: Arc::clone(&centre.outgoing),
            memory: Arc::new(Semaphore::new(near::MEMORY_MEBI as usize)),
            inputs: centre.inputs.clone(),
            fetches: HashMap::new(),
            stages: Arc::default(),
        }
    }

    /// Starts carrying out `command`; its result arrives as an input.
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "the hands carry out what is not about stage-ins"
    )]
    pub(crate) fn execute(&mut self, running: &mut JoinSet<()>, command: &Command) {
        match *command {
            Command::Fetch {
                request,
                source,
                chunk,
                ..
            } => self.fetch(running, request, source, chunk),
            Command::Prestage {
                request,
                source,
                chunk,
                depot,
                ..
            } => self.prestage(running, (request, source, chunk), depot),
            Command::Quit {
                request, source, ..
            } => self.quit(request, source),
            Command::Survey { request, .. } => self.survey(running, request),
            Command::Settle { request, keep, .. } => self.settle(running, request, keep),
            _ => {}
        }
    }

    fn fetch(
        &mut self,
        running: &mut JoinSet<()>,
        request: RequestId,
        source: SourceId,
        chunk: ChunkIndex,
    ) {
        let (stage, inputs) = (self.stage(request), self.inputs.clone());
        let (flow, depots) = (self.flows.of(source), Arc::clone(&self.depots));
        let (movers, outgoing) = (Arc::clone(&self.movers), Arc::clone(&self.outgoing));
        let span = self.traced.of_fetch(request, source, chunk);
        let handle = running.spawn(async move {
            let fetching = async {
                let stage = stage.await?;
                let range = stage.range(chunk);
                Span::current().record("bytes", range.end - range.start);
                match stage.near(source) {
                    Some(name) => near::fetch(&stage, name, &depots, &flow, chunk).await,
                    None => chunk::fetch(&stage, &movers, source, &flow, chunk).await,
                }
            };
            let fetched = fetching.instrument(span.clone()).await;
            posthaste_trace::ended(&span, &fetched);
            drop(span);
            let arrival = match fetched {
                Ok(record) => Arrival {
                    chunk: Some(record),
                    ..Arrival::bare(Input::ChunkArrived {
                        request,
                        source,
                        chunk,
                    })
                },
                Err(error) => {
                    tell_refused(&inputs, request, &error).await;
                    note(&outgoing, request, &error);
                    missed(request, source, chunk, &error)
                }
            };
            let _ = inputs.send(arrival).await;
        });
        self.keep(request, source, handle);
    }

    fn prestage(
        &mut self,
        running: &mut JoinSet<()>,
        (request, source, chunk): (RequestId, SourceId, ChunkIndex),
        depot: DepotId,
    ) {
        let (stage, inputs) = (self.stage(request), self.inputs.clone());
        let (flow, depots) = (self.flows.of(source), Arc::clone(&self.depots));
        let memory = Arc::clone(&self.memory);
        let what = (request, source, chunk);
        let span = self.traced.of_prestage(what, depots.name(depot));
        let handle = running.spawn(async move {
            let prestaging = async {
                match stage.await {
                    Ok(stage) => {
                        let _taken = near::reserve(&memory, &stage, chunk).await;
                        near::prestage(&stage, source, &flow, chunk, depots.get(depot)).await
                    }
                    Err(error) => Err(near::Failure::Source(error)),
                }
            };
            let ended = prestaging.instrument(span.clone()).await;
            posthaste_trace::ended(&span, &ended);
            drop(span);
            let arrival = match ended {
                Ok(record) => Arrival {
                    chunk: Some(record),
                    ..Arrival::bare(Input::StageInTold {
                        request,
                        news: StageInNews::Stored {
                            source,
                            chunk,
                            depot,
                        },
                    })
                },
                Err(near::Failure::Depot(fault)) => Arrival::bare(Input::StageInTold {
                    request,
                    news: StageInNews::Failed {
                        source,
                        chunk,
                        depot,
                        fault,
                    },
                }),
                Err(near::Failure::Source(error)) => missed(request, source, chunk, &error),
            };
            let _ = inputs.send(arrival).await;
        });
        self.keep(request, source, handle);
    }

    /// Keeps a fetch that a `Quit` must reach.
    fn keep(&mut self, request: RequestId, source: SourceId, handle: AbortHandle) {
        let fetches = self.fetches.entry((request, source)).or_default();
        fetches.retain(|fetch| !fetch.is_finished());
        fetches.push(handle);
    }

    fn quit(&mut self, request: RequestId, source: SourceId) {
        for fetch in self
            .fetches
            .remove(&(request, source))
            .into_iter()
            .flatten()
        {
            fetch.abort();
        }
    }

    fn survey(&self, running: &mut JoinSet<()>, request: RequestId) {
        let (stage, inputs) = (self.stage(request), self.inputs.clone());
        running.spawn(async move {
            let chunks = match stage.await {
                Ok(stage) => stage.survey().await,
                Err(error) => Err(error),
            };
            // Chunks that can't be examined now are requested again: the mind waits for an answer.
            match chunks {
                Ok(chunks) => {
                    let input = Input::ArrivalSurveyed { request, chunks };
                    let _ = inputs.send(Arrival::bare(input)).await;
                }
                Err(error) => tracing::warn!(%request, "{error}"),
            }
        });
    }

    fn settle(&mut self, running: &mut JoinSet<()>, request: RequestId, keep: bool) {
        let (stage, inputs) = (self.stage(request), self.inputs.clone());
        self.fetches.retain(|(of, _), _| *of != request);
        let (stages, outgoing) = (Arc::clone(&self.stages), Arc::clone(&self.outgoing));
        running.spawn(async move {
            let settled = match stage.await {
                Ok(stage) if keep => {
                    let landed = stage.land().await;
                    landed.map(|unkept| (unkept, stage.left_out()))
                }
                Ok(stage) => stage.discard().await.map(|()| Default::default()),
                Err(error) => Err(error),
            };
            match &settled {
                Ok(_) if keep => outgoing.complaints.pass(request),
                Ok(_) => {}
                Err(error) => {
                    tracing::warn!(%request, "{error}");
                    note(&outgoing, request, error);
                }
            }
            if !keep || settled.is_ok() {
                let mut stages = stages.lock().unwrap_or_else(PoisonError::into_inner);
                stages.remove(&request);
            }
            if keep {
                let input = match settled {
                    Ok((unkept, left_out)) => {
                        tell_unkept(&inputs, request, unkept).await;
                        if left_out.files > 0 {
                            let news = StageInNews::LeftOut { left_out };
                            let told = Arrival::bare(Input::StageInTold { request, news });
                            let _ = inputs.send(told).await;
                        }
                        Input::Landed { request }
                    }
                    Err(error) => {
                        tell_refused(&inputs, request, &error).await;
                        let fault = fault_of(&error);
                        Input::LandingFailed { request, fault }
                    }
                };
                let _ = inputs.send(Arrival::bare(input)).await;
            }
        });
    }

    /// Cleans up after a crash: removes drafts of stage-ins that have ended, and their lists.
    pub(crate) async fn sweep(store: &Arc<Store>) -> Result<()> {
        for record in store.journal(|journal| journal.stage_ins())? {
            let is_over = record.ended.is_some() && !goes_out(&record);
            if !is_over || !store.has_list(record.id) {
                continue;
            }
            if record.ended.as_deref() == Some("arrived") {
                if !landed::is_list_of_use(store, &record) {
                    store.forget_list(record.id);
                }
                continue;
            }
            let discarded = match Stage::open(store, record.id).await {
                Ok(stage) => Arc::new(stage).discard().await,
                Err(error) => Err(error),
            };
            if let Err(error) = discarded {
                tracing::warn!(request = %record.id, "{error}");
            }
        }
        Ok(())
    }

    /// Returns the stage-in, opened at its first use.
    fn stage(
        &self,
        request: RequestId,
    ) -> impl Future<Output = Result<Arc<Stage>>> + Send + 'static {
        let cell = {
            let mut stages = self.stages.lock().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(stages.entry(request).or_default())
        };
        let store = Arc::clone(&self.store);
        async move {
            let opened =
                cell.get_or_try_init(|| async { Stage::open(&store, request).await.map(Arc::new) });
            opened.await.cloned()
        }
    }
}

/// Keeps the source's error for a file that it can't deliver at all, or delivered with other bytes,
/// by name: the mind decides by the error's kind alone.
fn note(outgoing: &Outgoing, request: RequestId, error: &Error) {
    let is_wrong = error.kind() == ErrorKind::Corrupt || is_nonsense(error);
    let is_of_source = matches!(error.locus(), Locus::Source | Locus::Network);
    if is_of_source && (is_wrong || !error.is_temporary()) {
        outgoing.complaints.keep(request, error);
    }
}

/// Returns the input that reports a chunk its source did not deliver.
fn missed(request: RequestId, source: SourceId, chunk: ChunkIndex, error: &Error) -> Arrival {
    tracing::warn!(%request, "{error}");
    let mut fault = fault_of(error);
    if fault == Fault::Other && error.locus() == Locus::Destination {
        // A failure at the destination is not the source's fault.
        fault = Fault::Unwritable;
    }
    Arrival::bare(Input::ChunkMissed {
        request,
        source,
        chunk,
        fault,
    })
}

/// Reports the system's error at the destination to the mind, before the input that it explains.
async fn tell_refused(inputs: &mpsc::Sender<Arrival>, request: RequestId, error: &Error) {
    if error.locus() == Locus::Destination {
        let said = error.to_string();
        let news = StageInNews::Refused { said };
        let told = Arrival::bare(Input::StageInTold { request, news });
        let _ = inputs.send(told).await;
    }
}

/// Reports to the mind the attributes that files lost at their destination.
pub(crate) async fn tell_unkept(
    inputs: &mpsc::Sender<Arrival>,
    request: RequestId,
    unkept: Unkept,
) {
    let Unkept { modes, times } = unkept;
    if unkept != Unkept::default() {
        tracing::warn!(%request, modes, times, "the destination does not keep modes or times of files");
        let news = StageInNews::Unkept { modes, times };
        let told = Arrival::bare(Input::StageInTold { request, news });
        let _ = inputs.send(told).await;
    }
}

/// Returns the fault for the mind to decide by. Everything that is not the source's fault is ours.
#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "ErrorKind may grow; the rest is alike"
)]
fn fault_of(error: &Error) -> Fault {
    if error.locus() == Locus::Destination {
        return match error.kind() {
            ErrorKind::Full => Fault::Full,
            ErrorKind::Conflict if is_clash(error) => Fault::NamesMeet,
            ErrorKind::Conflict => Fault::Other,
            _ => Fault::Unwritable,
        };
    }
    match error.kind() {
        ErrorKind::Changed => Fault::SourceChanged,
        ErrorKind::Conflict => Fault::SourcesDiffer,
        ErrorKind::NotFound => Fault::SourceVanished,
        ErrorKind::PermissionDenied | ErrorKind::Unsupported | ErrorKind::Invalid => {
            Fault::SourceUnreadable
        }
        ErrorKind::Unauthenticated => Fault::Unauthenticated,
        ErrorKind::Corrupt => Fault::Corrupt,
        ErrorKind::Busy => Fault::Busy,
        ErrorKind::Unreachable | ErrorKind::TimedOut => Fault::Unreachable,
        _ if is_nonsense(error) => Fault::Corrupt,
        _ => Fault::Other,
    }
}

/// Returns whether a source answered with something else than was asked for, and not the system
/// with an error that may pass.
fn is_nonsense(error: &Error) -> bool {
    let cause = std::error::Error::source(error);
    let is_of_system = cause.is_some_and(|cause| cause.is::<std::io::Error>());
    error.kind() == ErrorKind::Other
        && matches!(error.locus(), Locus::Source | Locus::Network)
        && !error.is_temporary()
        && !is_of_system
}

/// Returns the name of the path that sources share: the server or bucket of an address, or the path
/// of a file system.
pub(crate) fn way_of(address: &str) -> String {
    let is_local = Location::parse(std::ffi::OsStr::new(address))
        .is_ok_and(|location| matches!(location, Location::Local(_)));
    if is_local {
        return address.to_owned();
    }
    match address.split_once("://") {
        Some((scheme, rest)) => {
            let host = rest.split('/').next().unwrap_or(rest);
            format!("{scheme}://{host}")
        }
        None => address.split(':').next().unwrap_or(address).to_owned(),
    }
}

/// Returns the names of the paths from all sources of an owner's stage-in, one each.
pub(crate) fn ways(owner: &str, addresses: &[String]) -> Vec<String> {
    let mut seen = std::collections::BTreeSet::new();
    addresses
        .iter()
        .map(|address| {
            let way = apart(owner, &way_of(address));
            // A second source on the same server has its own numbers.
            if seen.insert(way.clone()) {
                way
            } else {
                apart(owner, address)
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_way_is_that_of_a_server_a_bucket_or_a_folder() {
        let addresses = [
            "s3://climate/run7",
            "https://data.example.org:8443/a/b",
            "sftp://alice@host/data",
            "/archive/run7",
            "s3://climate/copy",
            "~archive:run7",
        ];
        let ways = ways("alice", &addresses.map(str::to_owned));
        assert_eq!(
            ways,
            [
                "s3://climate",
                "https://data.example.org:8443",
                "sftp://alice@host",
                "/archive/run7",
                "s3://climate/copy",
                "alice~archive"
            ]
        );
    }
}
