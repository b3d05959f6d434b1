//! Moves data for a service, on any host: takes work by lease, does it, says what came of it, and keeps nothing
//! (`docs/algorithms/movers.md`).
//!
//! [`run`] is all of it. `service` speaks to the service, `ledger` knows what is under way and what the service has not
//! heard yet, `send`, `fetch` and `carry` do the work, and `lease` says whether it is still this mover's to do.

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

/// How long an answer may wait for work while there is none under way…
const IDLE_WAIT: Duration = Duration::from_secs(2);
/// …and while there is: so often the service hears how far it is.
const BUSY_WAIT: Duration = Duration::from_millis(500);
/// Pauses after the service could not be asked: they double from the first to the last.
const PAUSES: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(2));
/// Reports that may wait to be sent.
const REPORTS_MAX: usize = 1024;

/// How to run a mover.
#[derive(Debug, Clone)]
pub struct Options {
    /// Where the service listens; the next is asked where one does not answer.
    pub services: Vec<String>,
    /// What is shown to it.
    pub token: String,
    /// Certificates in PEM that are trusted beside the system's.
    pub ca_file: Option<PathBuf>,
    /// What it is called: one of the same name that was there before is gone.
    pub name: String,
    /// The host it runs on.
    pub host: String,
    /// Pieces of work that it may have at once.
    pub slots: u32,
    /// Memory for chunks under way, in bytes.
    pub memory: posthaste_types::Bytes,
}

/// What a mover tells whoever started it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Notice {
    /// The service knows it.
    Joined(String),
    /// The service can't be asked, or knows it no more: it goes on trying.
    Lost(String),
    /// It takes nothing more, and still has so much to do.
    Draining(usize),
}

/// What does the work.
pub(crate) struct Tools {
    pub(crate) service: ServiceClient,
    pub(crate) actors: Actors,
    pub(crate) datasets: Datasets,
    pub(crate) depots: Depots,
    pub(crate) sources: Sources,
    pub(crate) leases: Leases,
    /// Memory for chunks under way, in MiB, and how much there is of it in all.
    pub(crate) memory: Arc<tokio::sync::Semaphore>,
    pub(crate) memory_mebi: usize,
    pub(crate) reports: mpsc::Sender<Report>,
}

/// The newest turn.
struct Turn {
    number: u64,
    /// How many reports it brings.
    begun: usize,
    ended: usize,
    /// Nothing is lost when another is asked before it is answered.
    waits: bool,
    sent: std::time::Instant,
}

/// The monotonic clock, by which leases go.
pub(crate) fn monotonic() -> std::time::Instant {
    #[expect(
        clippy::disallowed_methods,
        reason = "the one place that reads the monotonic clock"
    )]
    std::time::Instant::now()
}

/// Runs a mover until `shutdown` is done: then it takes nothing more, and ends when what it has is done.
///
/// # Errors
/// [`ErrorKind::Invalid`] for options that make no sense, [`ErrorKind::Unauthenticated`], [`ErrorKind::PermissionDenied`] and
/// [`ErrorKind::Conflict`] where the service does not take it; whatever may pass is waited for.
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
    /// Turns under way, by their numbers: all but the newest are answered to nobody, so that their connections stay.
    turns: JoinSet<(u64, Result<api::MoverOrders>)>,
    works: JoinSet<()>,
}

impl<N: Fn(Notice)> Mover<N> {
    /// Joins, as often as it takes.
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

    /// Works until it is to end and is done, which is told by true, or until the service knows it no more.
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
                    // What was begun is another's by now.
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
                // Nobody listens any more once it ends.
                let _ = tools.reports.send(report).await;
            });
            self.ledger.begin(lease, handle, progress);
        }
    }
}

/// Does a piece of work, and says how that ended.
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
