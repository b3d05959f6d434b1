//! Moves data for a service, on any host: takes work by lease, does it, reports the outcome, and
//! keeps nothing (`docs/algorithms/movers.md`).
//!
//! [`run`] is the entry point. `service` is the client of the service. `ledger` holds work in
//! progress and reports that the service has not received yet. `send`, `fetch` and `carry` do the
//! work, and `lease` decides whether it still belongs to this mover.

extern crate alloc;

mod actors;
mod carry;
mod datasets;
mod depots;
mod fetch;
mod lease;
mod ledger;
mod send;
mod service;
mod sources;
mod traced;

use std::{path::PathBuf, sync::Arc, time::Duration};

use posthaste_api as api;
use posthaste_endpoint::{Error, ErrorKind, Result};
use tokio::{sync::mpsc, task::JoinSet, time::sleep};
use tracing::Instrument;

use crate::{
    actors::Actors,
    datasets::Datasets,
    depots::Depots,
    lease::Leases,
    ledger::{Ledger, Progress, Report},
    service::ServiceClient,
    sources::Sources,
};

/// Longest time that an answer may wait for work if none is in progress…
const IDLE_WAIT: Duration = Duration::from_secs(2);
/// …and if some is: the service gets progress this often.
const BUSY_WAIT: Duration = Duration::from_millis(500);
/// Pauses after the service could not be reached: they double from the first to the last.
const PAUSES: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(2));
/// Most reports that wait to be sent.
const REPORTS_MAX: usize = 1024;

/// Options of a mover.
#[derive(Debug, Clone)]
pub struct Options {
    /// Addresses of the service; the mover tries the next if one does not answer.
    pub services: Vec<String>,
    /// Token for the service.
    pub token: String,
    /// Certificates in PEM to trust beside the system's.
    pub ca_file: Option<PathBuf>,
    /// Name of the mover; it replaces an earlier one of the same name.
    pub name: String,
    /// Host on which the mover runs.
    pub host: String,
    /// Most pieces of work at once.
    pub slots: u32,
    /// Memory for chunks in progress, in bytes.
    pub memory: posthaste_types::Bytes,
}

/// Notice of a mover to its caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Notice {
    /// Address of the service, which accepted the mover.
    Joined(String),
    /// Error of a service that can't be reached, or no longer knows the mover, which keeps trying.
    Lost(String),
    /// Pieces of work left while the mover accepts no more.
    Draining(usize),
}

/// Parts that the work uses.
pub(crate) struct Tools {
    pub(crate) service: ServiceClient,
    pub(crate) actors: Actors,
    pub(crate) datasets: Datasets,
    pub(crate) depots: Depots,
    pub(crate) sources: Sources,
    pub(crate) leases: Leases,
    /// Memory for chunks in progress, in MiB, and its total.
    pub(crate) memory: Arc<tokio::sync::Semaphore>,
    pub(crate) memory_mebi: usize,
    pub(crate) reports: mpsc::Sender<Report>,
}

/// Newest turn.
struct Turn {
    number: u64,
    /// Number of reports in the turn.
    begun: usize,
    ended: usize,
    /// True if another turn may be sent before the answer without losing anything.
    waits: bool,
    sent: std::time::Instant,
}

/// Returns the time of the monotonic clock, which measures leases.
pub(crate) fn monotonic() -> std::time::Instant {
    #[expect(
        clippy::disallowed_methods,
        reason = "the one place that reads the monotonic clock"
    )]
    std::time::Instant::now()
}

/// Runs a mover until `shutdown` is done; it then accepts no more work, and ends once its work is
/// done.
///
/// # Errors
/// [`ErrorKind::Invalid`] for invalid options; [`ErrorKind::Unauthenticated`],
/// [`ErrorKind::PermissionDenied`] and [`ErrorKind::Conflict`] if the service refuses it. Temporary
/// errors are retried.
pub async fn run(
    options: Options,
    shutdown: impl Future<Output = ()> + Send,
    notice: impl Fn(Notice) + Send,
) -> Result<()> {
    let (reports, mut reported) = mpsc::channel(REPORTS_MAX);
    let mebi = usize::try_from(options.memory.get() >> 20).unwrap_or(usize::MAX);
    let mebi = mebi.clamp(1, tokio::sync::Semaphore::MAX_PERMITS);
    let tools = Arc::new(Tools {
        service: ServiceClient::new(&options)?,
        actors: Actors::default(),
        datasets: Datasets::default(),
        depots: Depots::default(),
        sources: Sources::default(),
        leases: Leases::default(),
        memory: Arc::new(tokio::sync::Semaphore::new(mebi)),
        memory_mebi: mebi,
        reports,
    });
    let mut mover = Mover {
        options,
        tools,
        ledger: Ledger::default(),
        notice,
        leaves: false,
        number: 0,
        turns: JoinSet::new(),
        works: JoinSet::new(),
    };
    tokio::pin!(shutdown);
    loop {
        let joined = tokio::select! {
            joined = mover.join() => joined?,
            () = &mut shutdown => return Ok(()),
        };
        if mover.work(&joined, &mut reported, &mut shutdown).await? {
            mover.tools.service.leave(joined.id).await;
            return Ok(());
        }
    }
}

struct Mover<N> {
    options: Options,
    tools: Arc<Tools>,
    ledger: Ledger,
    notice: N,
    leaves: bool,
    number: u64,
    /// Turns in progress, by number. The answers of all but the newest are ignored, so that their
    /// connections stay open.
    turns: JoinSet<(u64, Result<api::MoverOrders>)>,
    works: JoinSet<()>,
}

impl<N: Fn(Notice)> Mover<N> {
    /// Joins, retrying as often as needed.
    async fn join(&mut self) -> Result<api::JoinedMover> {
        let new = api::NewMover {
            name: self.options.name.clone(),
            host: self.options.host.clone(),
            version: env!("CARGO_PKG_VERSION").into(),
            protocols: vec![api::MOVER_PROTOCOL],
            slots: self.options.slots,
        };
        let (mut pause, last) = PAUSES;
        let mut is_told = false;
        loop {
            match self.tools.service.join(&new).await {
                Ok(joined) => {
                    let lease = Duration::from_millis(joined.lease_ms);
                    self.tools.leases.begin(lease, monotonic());
                    self.tools.actors.serve(joined.is_root);
                    (self.notice)(Notice::Joined(self.tools.service.address()));
                    return Ok(joined);
                }
                Err(error) if error.is_temporary() => {
                    if !is_told {
                        (self.notice)(Notice::Lost(error.to_string()));
                        is_told = true;
                    }
                    sleep(pause).await;
                    pause = (pause * 2).min(last);
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Works until shutdown is complete, which returns true, or until the service no longer knows
    /// the mover.
    async fn work(
        &mut self,
        joined: &api::JoinedMover,
        reported: &mut mpsc::Receiver<Report>,
        mut shutdown: impl Future<Output = ()> + Unpin,
    ) -> Result<bool> {
        let (mut pause, last) = PAUSES;
        let mut turn = self.ask(joined.id);
        loop {
            let answered = tokio::select! {
                biased;
                report = reported.recv() => {
                    self.ledger.extend(report);
                    while let Ok(report) = reported.try_recv() {
                        self.ledger.extend(Some(report));
                    }
                    if turn.waits {
                        turn = self.ask(joined.id);
                    }
                    continue;
                }
                Some(answered) = self.turns.join_next() => answered,
                Some(_) = self.works.join_next() => continue,
                () = &mut shutdown, if !self.leaves => {
                    self.leaves = true;
                    (self.notice)(Notice::Draining(self.ledger.under_way()));
                    turn = self.ask(joined.id);
                    continue;
                }
            };
            let answered = match answered {
                Ok((number, answered)) if number == turn.number => answered,
                Ok(_) => continue,
                Err(cause) => Err(failed(cause.to_string())),
            };
            match answered {
                Ok(orders) => {
                    (pause, _) = PAUSES;
                    self.tools.leases.answered(turn.sent);
                    self.ledger.heard(turn.begun, turn.ended);
                    self.obey(orders);
                    if self.leaves && self.ledger.is_over() {
                        return Ok(true);
                    }
                }
                Err(error) if error.kind() == ErrorKind::NotFound => {
                    // The work in progress belongs to others by now.
                    self.ledger.give_up();
                    (self.notice)(Notice::Lost(error.to_string()));
                    return Ok(false);
                }
                Err(error) if error.is_temporary() => {
                    sleep(pause).await;
                    pause = (pause * 2).min(last);
                }
                Err(error) => {
                    self.ledger.give_up();
                    return Err(error);
                }
            }
            turn = self.ask(joined.id);
        }
    }

    fn ask(&mut self, id: u64) -> Turn {
        self.number += 1;
        let ledger = &self.ledger;
        let waits = !ledger.has_reports();
        let wait = match (waits, ledger.under_way()) {
            (false, _) => Duration::ZERO,
            (true, 0) => IDLE_WAIT,
            (true, _) => BUSY_WAIT,
        };
        let has = u32::try_from(ledger.under_way()).unwrap_or(u32::MAX);
        let carried = self.tools.depots.carried();
        let sent: u64 = carried.iter().map(|carried| carried.sent).sum();
        let turn = api::MoverTurn {
            number: self.number,
            free: self.options.slots.saturating_sub(has),
            wait_ms: u64::try_from(wait.as_millis()).unwrap_or(0),
            leaves: self.leaves,
            holds: ledger.leases(),
            begun: ledger.begun().to_vec(),
            ended: ledger.ended().to_vec(),
            bytes: sent + self.tools.sources.fetched(),
            fetched: ledger.fetched(),
            carried,
        };
        let (tools, number) = (Arc::clone(&self.tools), self.number);
        let asked = Turn {
            number,
            begun: turn.begun.len(),
            ended: turn.ended.len(),
            waits,
            sent: monotonic(),
        };
        self.turns
            .spawn(async move { (number, tools.service.turn(id, &turn, wait).await) });
        asked
    }

    fn obey(&mut self, orders: api::MoverOrders) {
        for lease in orders.stop {
            self.ledger.stop(lease);
        }
        for work in orders.work {
            let (tools, lease) = (Arc::clone(&self.tools), work.lease);
            let span = traced::of(&work.chore, &self.options.name);
            let progress = Progress::default();
            let own = Arc::clone(&progress);
            let handle = self.works.spawn(async move {
                let ended = ended(&tools, &work, &own).instrument(span.clone()).await;
                if let Some(why) = &ended.failure {
                    posthaste_trace::fail(&span, why);
                }
                drop(span);
                let report = Report::Ended(ended);
                // Fails once the mover has ended.
                let _ = tools.reports.send(report).await;
            });
            self.ledger.begin(lease, handle, progress);
        }
    }
}

/// Does a piece of work, and reports how it ended.
async fn ended(tools: &Arc<Tools>, work: &api::Work, progress: &Progress) -> api::EndedWork {
    let nothing = api::EndedWork {
        lease: work.lease,
        digests: Vec::new(),
        stored: None,
        failure: None,
    };
    let failed = |error: Error| api::EndedWork {
        failure: Some(error.to_string()),
        ..nothing.clone()
    };
    let digested = match &work.chore {
        api::Chore::Send(chore) => send::send(tools, work.lease, chore).await,
        api::Chore::Fetch(chore) => fetch::fetch(tools, chore, progress).await,
        api::Chore::Carry(chore) => {
            return match carry::carry(tools, chore, progress).await {
                Ok((sum, receipt)) => api::EndedWork {
                    stored: Some(api::StoredPiece {
                        checksum: sum.to_string(),
                        receipt,
                    }),
                    ..nothing
                },
                Err(error) => failed(error),
            };
        }
    };
    match digested {
        Ok(digests) => api::EndedWork {
            digests: digests.iter().map(ToString::to_string).collect(),
            ..nothing
        },
        Err(error) => failed(error),
    }
}

fn failed(cause: String) -> Error {
    Error::new(ErrorKind::Cancelled, "ask", "the service").cause(cause)
}
