//! Carries out the mind's commands and reports their results.

mod inventory;
mod metered;
mod send;

pub(crate) use send::tell_of_source;

use std::{collections::HashMap, sync::Arc, time::Duration};

use posthaste_core::contract::{Command, DeliveryReason, Fault, Input, Reason};
use posthaste_endpoint::{Result, relay::Departure};
use posthaste_engine::sealed::Sealed;
use posthaste_journal::ChunkRecord;
use posthaste_plan::horizon::{Effort, Problem};
use posthaste_types::{ByteRate, Bytes, ChunkIndex, DepotId, Digest, FragmentIndex, RequestId};
use tokio::{
    sync::mpsc,
    task::{AbortHandle, JoinSet},
    time::sleep,
};

use crate::{
    circuits::Reservations,
    depots::{Depots, Manner, fault_of},
    driver::{Arrival, Centre},
    follow::Leads,
    inbound::{Inbound, landed},
    movers::Movers,
    omissions,
    opened::Opened,
    outbound::Outbound,
    probe, release,
    store::{Remains, Store},
    traced::{self, Traced},
};
pub(crate) use metered::Metered;

/// Attempts to make a depot forget a dataset. Once is not enough: the depot may not answer then,
/// and a fragment whose last bytes had arrived may be stored afterwards.
const FORGET_TURNS: u32 = 3;
/// Interval between two attempts: longer than a depot keeps an abandoned upload.
const FORGET_AGAIN: Duration = Duration::from_secs(40);

/// Executor of commands; owned by the driver, so that both end together.
pub(crate) struct Hands {
    pub(crate) store: Arc<Store>,
    pub(crate) depots: Arc<Depots>,
    pub(crate) inputs: mpsc::Sender<Arrival>,
    pub(crate) running: JoinSet<()>,
    /// Sends that an `Abandon` or a `Recall` must reach.
    sends: HashMap<(RequestId, DepotId), Vec<UnderWay>>,
    /// Repeated forgets of a request at a depot: they stop if the request is sent there again.
    forgetting: HashMap<(RequestId, DepotId), AbortHandle>,
    /// Progress of sends, for forwards that follow them.
    pub(crate) leads: Leads,
    /// Depots that read what they hold.
    asking: inventory::Asked,
    /// Held while destinations read what they hold, before others evict it.
    proving: Arc<tokio::sync::Mutex<()>>,
    opened: Arc<Opened>,
    pub(crate) traced: Arc<Traced>,
    movers: Arc<Movers>,
    inbound: Inbound,
    pub(crate) outbound: Outbound,
    reservations: Reservations,
}

/// Send under way.
struct UnderWay {
    chunk: ChunkIndex,
    fragment: FragmentIndex,
    handle: AbortHandle,
    /// Set for sends from here or by a mover; none for transfers among relays.
    departure: Option<Arc<Departure>>,
}

/// Fragment on its way.
#[derive(Clone, Copy)]
pub(crate) struct Leg {
    pub(crate) request: RequestId,
    pub(crate) depot: DepotId,
    pub(crate) chunk: ChunkIndex,
    pub(crate) fragment: FragmentIndex,
}

impl Leg {
    pub(crate) const fn new(
        request: RequestId,
        depot: DepotId,
        chunk: ChunkIndex,
        fragment: FragmentIndex,
    ) -> Self {
        Self {
            request,
            depot,
            chunk,
            fragment,
        }
    }

    /// Returns the chunk's record.
    pub(crate) fn record(self, digests: Vec<Digest>) -> ChunkRecord {
        ChunkRecord {
            request: self.request,
            chunk: self.chunk,
            digests,
        }
    }

    /// Returns the input for the mind that the send was recalled.
    pub(crate) fn recalled(self) -> Input {
        let Self {
            request,
            depot,
            chunk,
            fragment,
        } = self;
        Input::Recalled {
            request,
            depot,
            chunk,
            fragment,
        }
    }

    /// Returns the input for the mind that the send ended.
    pub(crate) fn ended(self, ended: Result<(), Fault>) -> Input {
        let Self {
            request,
            depot,
            chunk,
            fragment,
        } = self;
        match ended {
            Ok(()) => Input::FragmentStored {
                request,
                depot,
                chunk,
                fragment,
            },
            Err(fault) => Input::FragmentFailed {
                request,
                depot,
                chunk,
                fragment,
                fault,
            },
        }
    }
}

impl Hands {
    pub(crate) fn new(centre: &Centre) -> Self {
        let inputs = centre.inputs.clone();
        Self {
            reservations: Reservations::new(Arc::clone(&centre.circuits), inputs.clone()),
            outbound: Outbound::new(centre),
            inbound: Inbound::new(centre),
            store: Arc::clone(&centre.store),
            depots: Arc::clone(&centre.depots),
            movers: Arc::clone(&centre.movers),
            inputs,
            running: JoinSet::new(),
            sends: HashMap::new(),
            forgetting: HashMap::new(),
            leads: Leads::default(),
            asking: inventory::Asked::default(),
            proving: Arc::default(),
            opened: Arc::clone(&centre.opened),
            traced: Arc::clone(&centre.traced),
        }
    }

    /// Starts carrying out `command`; its result arrives as an input. Its sends from here use this
    /// manner.
    pub(crate) fn execute(&mut self, command: Command, manner: Manner) {
        while self.running.try_join_next().is_some() {}
        match command {
            Command::Send {
                request,
                depot,
                chunk,
                fragment,
                reason: _,
            } => {
                let leg = Leg::new(request, depot, chunk, fragment);
                self.send(leg, manner);
            }
            Command::Recall {
                request,
                depot,
                chunk,
                fragment,
                reason: _,
            } => self.recall(Leg::new(request, depot, chunk, fragment)),
            Command::Abandon { request, depot, .. } => self.abandon(request, depot),
            command @ Command::Inventory { .. } => self.inventory(&command),
            Command::Release { request, reason: _ } => self.release(request),
            command @ (Command::LeaveOut { .. } | Command::Renew { .. }) => self.omit(&command),
            Command::Forget {
                request,
                depot,
                reason,
            } => self.forget(request, depot, &reason),
            command @ (Command::Forward { .. }
            | Command::Follow { .. }
            | Command::Gather { .. }
            | Command::Mend { .. }
            | Command::Scatter { .. }) => self.relay(command, manner),
            command @ (Command::Fetch { .. }
            | Command::Prestage { .. }
            | Command::Quit { .. }
            | Command::Survey { .. }
            | Command::Settle { .. }) => self.stage(&command, manner.rate_max),
            command @ (Command::Reserve { .. }
            | Command::Rearrange { .. }
            | Command::GiveBack { .. }) => self.reservations.execute(&mut self.running, &command),
            command @ (Command::ReserveSpace { .. } | Command::ReleaseSpace { .. }) => {
                self.space(&command);
            }
            Command::Take {
                depot,
                way,
                reason: _,
            } => {
                if let Some(depot) = self.depots.get(depot) {
                    depot.take_way(usize::from(way), crate::monotonic());
                }
            }
            Command::Probe { depot, budget, .. } => self.probe(depot, budget),
            Command::ProbeCrossing {
                from,
                to,
                budget,
                reason: _,
            } => self.probe_crossing((from, to), budget),
            Command::Solve {
                number,
                problem,
                effort,
                reason: _,
            } => self.solve(number, problem, effort),
        }
    }

    fn omit(&self, command: &Command) {
        omissions::carry_out(&self.store, &self.opened, command);
    }

    fn abandon(&mut self, request: RequestId, depot: DepotId) {
        for send in self.sends.remove(&(request, depot)).into_iter().flatten() {
            send.handle.abort();
        }
    }

    /// Recalls a send; it reports itself that it stays, and nothing if it has left.
    fn recall(&self, leg: Leg) {
        let sends = self.sends.get(&(leg.request, leg.depot));
        let of_leg = |send: &&UnderWay| (send.chunk, send.fragment) == (leg.chunk, leg.fragment);
        for send in sends.into_iter().flatten().filter(of_leg) {
            if let Some(departure) = &send.departure {
                departure.call_back();
            }
        }
    }

    /// Keeps a send that an `Abandon` must reach.
    pub(crate) fn keep_send(&mut self, leg: Leg, handle: AbortHandle) {
        self.keep(leg, handle, None);
    }

    /// Keeps a send that a `Recall` may reach too.
    fn keep(&mut self, leg: Leg, handle: AbortHandle, departure: Option<Arc<Departure>>) {
        if let Some(telling) = self.forgetting.remove(&(leg.request, leg.depot)) {
            telling.abort();
        }
        let sends = self.sends.entry((leg.request, leg.depot)).or_default();
        sends.retain(|send| !send.handle.is_finished());
        sends.push(UnderWay {
            chunk: leg.chunk,
            fragment: leg.fragment,
            handle,
            departure,
        });
    }

    /// Carries out commands about stage-ins and exports.
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "nothing else is about what goes out"
    )]
    fn stage(&mut self, command: &Command, rate_max: Option<ByteRate>) {
        let goes_out = match command {
            Command::Fetch { request, .. }
            | Command::Quit { request, .. }
            | Command::Survey { request, .. }
            | Command::Settle { request, .. } => self.outbound.has(*request),
            _ => false,
        };
        if goes_out {
            self.outbound.execute(&mut self.running, command, rate_max);
        } else {
            self.inbound.execute(&mut self.running, command);
        }
    }

    fn release(&mut self, request: RequestId) {
        if self.outbound.has(request) {
            return self.outbound.release(&mut self.running, request);
        }
        let sealed = self.sealed(request);
        let (depots, store) = (Arc::clone(&self.depots), Arc::clone(&self.store));
        let (inputs, outgoing) = (self.inputs.clone(), self.outbound.outgoing());
        self.running.spawn(async move {
            let released = match sealed.await {
                Ok(sealed) => release::release(request, &sealed, &store, &depots).await,
                Err(error) => Err(error),
            };
            let input = match released {
                Ok(()) => Input::SourceReleased { request },
                Err(error) => {
                    outgoing.complaints.note(request, &error);
                    let fault = release::fault_of(&error, fault_of(&error));
                    release::tell_kept(&inputs, request, &error).await;
                    Input::SourceKept { request, fault }
                }
            };
            let _ = inputs.send(Arrival::bare(input)).await;
        });
    }

    fn forget(&mut self, request: RequestId, depot: DepotId, reason: &Reason) {
        // A chunk that waited near the centre for a stage-in is a copy of its sources' bytes.
        let is_elsewhere = matches!(reason, Reason::Delivery { .. } | Reason::Near { .. });
        let backup = tokio::task::block_in_place(|| self.store.backup_of(request));
        if !is_elsewhere && backup.is_some() {
            let depot = self.depots.name(depot);
            tracing::warn!(%request, depot, "keeps what it holds until that expires: since the backup its source may have gone");
            return;
        }
        let (depots, store) = (Arc::clone(&self.depots), Arc::clone(&self.store));
        let (inputs, alone) = (self.inputs.clone(), Arc::clone(&self.proving));
        let is_last = matches!(
            reason,
            Reason::Delivery {
                why: DeliveryReason::WholeThere { .. }
            }
        );
        let telling = self.running.spawn(async move {
            let mut is_told = false;
            let found = depots.get(depot).zip(store.dataset(request).ok());
            for turn in 0..FORGET_TURNS {
                let Some((at, dataset)) = &found else {
                    break;
                };
                if turn > 0 {
                    sleep(FORGET_AGAIN).await;
                }
                let of = (&*store, request);
                if is_last
                    && !is_told
                    && !inventory::are_ends_proven(&depots, of, &inputs, &alone).await
                {
                    break;
                }
                match at.client.delete_dataset(dataset).await {
                    Ok(()) if !is_told => {
                        is_told = true;
                        // The depot has space again: it is asked how much.
                        at.beaten.notify_one();
                        let _ = inputs.send(forgotten(request, depot, true)).await;
                    }
                    Ok(()) => {}
                    Err(error) => tracing::warn!(%request, "{error}"),
                }
            }
            if !is_told {
                let _ = inputs.send(forgotten(request, depot, false)).await;
            }
        });
        self.forgetting.retain(|_, telling| !telling.is_finished());
        self.forgetting.insert((request, depot), telling);
    }

    /// Measures the path to a depot. The result is always reported: the mind starts no other probe
    /// before.
    fn probe(&mut self, depot: DepotId, budget: Bytes) {
        let (depots, inputs) = (Arc::clone(&self.depots), self.inputs.clone());
        self.running.spawn(async move {
            let input = match probe::probe(&depots, depot, budget).await {
                Ok(input) => input,
                Err(error) => {
                    tracing::warn!("{error}");
                    probe::nothing(depot, budget, &error)
                }
            };
            let _ = inputs.send(Arrival::bare(input)).await;
        });
    }

    fn probe_crossing(&mut self, ends: (DepotId, DepotId), budget: Bytes) {
        let (depots, inputs) = (Arc::clone(&self.depots), self.inputs.clone());
        self.running.spawn(async move {
            let probed = probe::probe_crossing(&depots, ends, budget).await;
            let input = probed.unwrap_or_else(|error| {
                tracing::warn!("{error}");
                probe::nothing_crossed(ends, budget, &error)
            });
            let _ = inputs.send(Arrival::bare(input)).await;
        });
    }

    /// Solves a plan over time: seconds at most, by its effort.
    fn solve(&mut self, number: u64, problem: Problem, effort: Effort) {
        let inputs = self.inputs.clone();
        self.running.spawn_blocking(move || {
            let input = solved(number, &problem, effort);
            // The driver is gone only when the service ends, and then nobody waits for this.
            let _ = inputs.blocking_send(Arrival::bare(input));
        });
    }

    /// Removes the list of a stage-in that arrived on record, unless jobs need it.
    pub(crate) fn forget_stage_in(&mut self, request: RequestId) {
        let store = Arc::clone(&self.store);
        self.running.spawn_blocking(move || {
            let record = store.request(request);
            if record.is_ok_and(|record| !landed::is_list_of_use(&store, &record)) {
                store.forget_list(request);
            }
        });
    }

    /// Removes the files for carrying out a request that has ended.
    pub(crate) fn retire(&mut self, request: RequestId, remains: Remains) {
        self.opened.forget(request);
        self.traced.forget(request);
        let is_released = remains != Remains::Nothing;
        self.outbound.forget(request, is_released);
        let store = Arc::clone(&self.store);
        self.running.spawn_blocking(move || {
            let retired = store.retire_key(request, remains);
            let _ = retired.inspect_err(|error| tracing::warn!(%request, "{error}"));
        });
    }

    /// Returns the dataset, opened at its first use; the returned future can be awaited anywhere.
    pub(crate) fn sealed(
        &self,
        request: RequestId,
    ) -> impl Future<Output = Result<Arc<Sealed>>> + Send + 'static {
        let (store, opened) = (Arc::clone(&self.store), Arc::clone(&self.opened));
        async move { opened.get(&store, request) }
    }
}

/// Solves a requested plan.
pub(crate) fn solved(number: u64, problem: &Problem, effort: Effort) -> Input {
    let span = traced::of_plan(number);
    let schedule = span.in_scope(|| posthaste_solve::solve(problem, effort));
    let schedule = schedule.inspect_err(|error| tracing::error!(plan = number, "{error}"));
    posthaste_trace::ended(&span, &schedule);
    Input::PlanSolved {
        number,
        schedule: schedule.ok(),
    }
}

/// Returns the input that a depot did or did not remove a request's data.
fn forgotten(request: RequestId, depot: DepotId, done: bool) -> Arrival {
    Arrival::bare(Input::Forgotten {
        request,
        depot,
        done,
    })
}
