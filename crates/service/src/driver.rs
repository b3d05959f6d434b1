//! Driver 1: feeds the mind real inputs and carries out its commands.
//!
//! A single loop. Inputs wait in a bounded queue. Each turn takes the waiting inputs, steps the
//! mind, journals the step, and only then starts the commands. So everything started is in the
//! journal, and `kill -9` at any moment leaves a step done or not begun.

mod glance;
mod remains;
mod scanned;

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use posthaste_core::{
    Mind, Settings,
    contract::{Command, Event, Happening, Input, Outbox},
};
use posthaste_endpoint::{Error, ErrorKind, Reach, Result, gateway::Gateways, relay::Haste};
use posthaste_journal::{ChunkRecord, Step};
use posthaste_types::{RequestId, Timestamp};
use tokio::sync::{mpsc, oneshot, watch};

use crate::{
    Options,
    audit::{self, Audit},
    circuits::Circuits,
    clock::{self, Clock},
    counts::Counts,
    depots::{Depots, Manner, Share},
    hands::Hands,
    history::History,
    inbound::Flows,
    lending::Lending,
    listing::Listings,
    movers::Movers,
    omissions,
    opened::Opened,
    outbound::Outgoing,
    purges::Purges,
    quotas::Quotas,
    reload::Current,
    store::Store,
    submit::{Scans, Turns},
    traced::Traced,
};
use glance::Glances;
use remains::remains_of;

/// Most waiting inputs. A full queue makes the hands wait, which slows the sends.
pub(crate) const INPUTS_MAX: usize = 4096;
/// Inputs taken in one step: bounds the transaction.
const STEP_INPUTS_MAX: usize = 512;
/// Inputs between snapshots: bounds the replay after a crash to about a second. A snapshot of many
/// requests takes long itself, so there are at least a fourth as many inputs between two as moving
/// requests.
const SNAPSHOT_EVERY: usize = 8192;
const REQUESTS_PER_INPUT: usize = 4;

/// Input, with the records to be journaled along.
#[derive(Debug)]
pub(crate) struct Arrival {
    pub(crate) input: Input,
    pub(crate) chunk: Option<ChunkRecord>,
    /// Inputs that belong to it, in the same step.
    pub(crate) more: Vec<Input>,
    /// Notified once the input is in the journal.
    pub(crate) written: Option<oneshot::Sender<()>>,
}

impl Arrival {
    pub(crate) fn bare(input: Input) -> Self {
        Self {
            input,
            chunk: None,
            more: Vec::new(),
            written: None,
        }
    }
}

/// The mind, and state shared by the loop and the API.
pub(crate) struct Centre {
    mind: Mutex<Mind>,
    pub(crate) store: Arc<Store>,
    pub(crate) depots: Arc<Depots>,
    pub(crate) flows: Arc<Flows>,
    pub(crate) opened: Arc<Opened>,
    /// Source server; unset if the operator wants none.
    pub(crate) lending: OnceLock<Lending>,
    /// Circuits on which rate can be reserved.
    pub(crate) circuits: Arc<Circuits>,
    /// Stage-outs to addresses: where each writes, and what went wrong.
    pub(crate) outgoing: Arc<Outgoing>,
    /// Ids of submissions under way.
    pub(crate) turns: Turns,
    /// Users' quotas of open requests.
    pub(crate) quotas: Quotas,
    /// Waiting and running scans.
    pub(crate) scans: Arc<Scans>,
    /// Record of requested changes and their results, if configured.
    pub(crate) audit: Current<Option<Audit>>,
    /// History of transferred bytes.
    pub(crate) history: History,
    /// Traces of the requests.
    pub(crate) traced: Arc<Traced>,
    /// States of all requests at the last look.
    pub(crate) glances: Glances,
    /// Movers of data beside this process.
    pub(crate) movers: Arc<Movers>,
    /// Cached directory listings.
    pub(crate) listings: Arc<Listings>,
    /// Gateways that lead to some depots.
    pub(crate) gateways: Gateways,
    pub(crate) clock: Clock,
    pub(crate) inputs: mpsc::Sender<Arrival>,
    /// Rules of the site's purge.
    pub(crate) purges: Purges,
    /// Counters since the service started.
    pub(crate) counts: Counts,
    /// Number of the newest event: wakes event streams.
    newest_event: watch::Sender<u64>,
}

impl Centre {
    /// Restores the mind from the journal.
    ///
    /// # Errors
    /// The journal's, or [`ErrorKind::Corrupt`] if its newest snapshot can't be read; those of the
    /// file with this centre's name.
    pub(crate) fn restore(
        store: Arc<Store>,
        inputs: mpsc::Sender<Arrival>,
        (listings, scans): (&Arc<Listings>, Arc<Scans>),
        options: &Options,
    ) -> Result<Self> {
        let mut replay = store.journal(|journal| journal.replay())?;
        if replay.snapshot.as_deref().is_some_and(Mind::is_outdated) {
            replay = store.journal(|journal| journal.replay_all())?;
        }
        let mut mind = match replay.snapshot {
            None => Mind::new(Settings::default()),
            Some(bytes) => Mind::restore(&bytes).map_err(|cause| {
                Error::new(ErrorKind::Corrupt, "restore", "the journal's snapshot").cause(cause)
            })?,
        };
        for (at, step) in replay.steps {
            // Already commanded and reported before the crash.
            mind.step(at, step, &mut Outbox::default());
        }
        let clock = Clock::default();
        clock::check_journal(mind.now(), clock.now())?;
        Ok(Self {
            turns: Turns::default(),
            quotas: Quotas::new(&options.site.quotas),
            scans,
            movers: Arc::new(Movers::new(clock.now())),
            circuits: Arc::new(Circuits::open(&options.circuits, &options.state, &mind)?),
            mind: Mutex::new(mind),
            store,
            depots: Arc::default(),
            flows: Arc::default(),
            opened: Arc::default(),
            audit: Current::new(options.audit.as_deref().map(Audit::open).transpose()?),
            history: History::new(clock.now()),
            traced: Arc::default(),
            glances: Glances::default(),
            lending: OnceLock::new(),
            outgoing: Arc::new(Outgoing::new(listings)),
            listings: Arc::clone(listings),
            gateways: options.gateways.clone(),
            clock,
            inputs,
            purges: Purges::open(options.purge_policy.as_deref())?,
            counts: Counts::default(),
            newest_event: watch::Sender::new(0),
        })
    }

    /// Locks the mind. Keep it short: the loop waits meanwhile.
    pub(crate) fn mind(&self) -> MutexGuard<'_, Mind> {
        self.mind.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns a copy of the mind, to ask what it would decide without effect.
    ///
    /// # Errors
    /// Fails if its state can't be read back.
    pub(crate) fn copy_of_mind(&self) -> Result<Mind> {
        let known = self.mind().snapshot();
        Mind::restore(&known)
            .map_err(|cause| Error::new(ErrorKind::Other, "copy", "the mind").cause(cause))
    }

    /// Subscribes to the number of the newest event.
    pub(crate) fn newest_event(&self) -> watch::Receiver<u64> {
        self.newest_event.subscribe()
    }

    /// Drops the listings that an input outdates.
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "nothing else makes or removes files"
    )]
    fn note_written(&self, input: &Input) {
        let request = match *input {
            Input::Landed { request }
            | Input::LandingFailed { request, .. }
            | Input::SourceReleased { request }
            | Input::SourceKept { request, .. } => request,
            _ => return,
        };
        if let Ok(record) = self.store.request(request) {
            let owner = &*record.wishes.owner;
            self.listings
                .wrote(owner, &String::from_utf8_lossy(&record.source));
            self.listings.wrote(owner, &record.destination);
        }
    }

    /// Returns the gateways that lead to depots, and the places that users may name.
    pub(crate) fn network(&self) -> (&Gateways, &Reach) {
        (&self.gateways, &self.store.actors.credentials.reach)
    }

    /// Sends an input that needs no further record.
    ///
    /// # Errors
    /// [`ErrorKind::Cancelled`] if the service is ending.
    pub(crate) async fn tell(&self, input: Input) -> Result<()> {
        self.send(Arrival::bare(input)).await
    }

    /// Sends an input and others that belong to it: nobody sees a state between them.
    ///
    /// # Errors
    /// Errors of [`Self::tell`].
    pub(crate) async fn tell_together(&self, input: Input, more: Vec<Input>) -> Result<()> {
        let arrival = Arrival {
            more,
            ..Arrival::bare(input)
        };
        self.send(arrival).await
    }

    /// Submits a person's input: when this returns, the input is in the journal and the mind has
    /// applied it. So no answer is lost or looks undone.
    ///
    /// # Errors
    /// Errors of [`Self::tell`].
    pub(crate) async fn put_down(&self, input: Input) -> Result<()> {
        let (written, done) = oneshot::channel();
        let arrival = Arrival {
            written: Some(written),
            ..Arrival::bare(input)
        };
        self.send(arrival).await?;
        done.await.map_err(|_| ending())
    }

    /// Cancels a request that a component no longer wants: its scan, or its state in the mind. The
    /// journal has that when this returns.
    ///
    /// # Errors
    /// Errors of [`Self::tell`].
    pub(crate) async fn give_up(&self, request: RequestId) -> Result<()> {
        if self.scans.cancel(request).await {
            return Ok(());
        }
        self.put_down(Input::RequestCancelled { request }).await
    }

    async fn send(&self, arrival: Arrival) -> Result<()> {
        self.inputs.send(arrival).await.map_err(|_| ending())
    }
}

fn ending() -> Error {
    Error::new(ErrorKind::Cancelled, "tell", "the service, which is ending")
}

/// Loop that drives the mind.
pub(crate) struct Driver {
    centre: Arc<Centre>,
    queue: mpsc::Receiver<Arrival>,
    hands: Hands,
    since_snapshot: usize,
}

impl Driver {
    pub(crate) fn new(centre: Arc<Centre>, queue: mpsc::Receiver<Arrival>) -> Self {
        let hands = Hands::new(&centre);
        Self {
            centre,
            queue,
            hands,
            since_snapshot: 0,
        }
    }

    /// Runs until all senders of inputs are gone, on its own thread. So that thread allocates all
    /// of the mind's state. Spread over all threads' allocators, a hundred thousand requests would
    /// take half as much memory again.
    ///
    /// # Errors
    /// The journal's: nothing may be started without it, so the service ends.
    pub(crate) async fn run_until(mut self, is_cut: oneshot::Receiver<()>) -> Result<()> {
        tokio::select! {
            ended = self.run() => ended,
            _ = is_cut => Ok(()),
        }
    }

    async fn run(&mut self) -> Result<()> {
        loop {
            let arrivals = self.wait().await;
            self.step(arrivals)?;
        }
    }

    /// Waits for inputs, or until the mind's next wakeup.
    async fn wait(&mut self) -> Vec<Arrival> {
        let wakeup = self.centre.mind().next_wakeup();
        let now = self.centre.clock.now();
        let sleep = async {
            match wakeup {
                Some(at) => tokio::time::sleep(at.since(now)).await,
                None => std::future::pending().await,
            }
        };
        let mut arrivals = Vec::new();
        tokio::select! {
            biased;
            _ = self.queue.recv_many(&mut arrivals, STEP_INPUTS_MAX) => {}
            () = sleep => {}
        }
        arrivals
    }

    /// Returns how the sends of a command relate to other traffic.
    fn manner(&self, command: &Command) -> Manner {
        match *command {
            Command::Send {
                request,
                depot,
                chunk,
                ..
            }
            | Command::Scatter {
                request,
                depot,
                chunk,
                ..
            } => {
                let mind = self.centre.mind();
                let sent = (request, depot, chunk);
                let share = match self.centre.circuits.name_for(&mind, sent) {
                    Some(name) => Share::Reserved(name),
                    None if mind.gives_way(request) => Share::GivesWay,
                    None => Share::Ordinary,
                };
                let haste = mind.due(request).map_or(Haste::Whenever, Haste::By);
                Manner {
                    share,
                    haste,
                    rate_max: None,
                }
            }
            Command::Fetch { request, .. } | Command::Settle { request, .. } => Manner {
                share: Share::Ordinary,
                haste: Haste::Now,
                rate_max: self.centre.mind().rate_max_straight(request),
            },
            Command::Abandon { .. }
            | Command::Recall { .. }
            | Command::Inventory { .. }
            | Command::Release { .. }
            | Command::LeaveOut { .. }
            | Command::Renew { .. }
            | Command::Forget { .. }
            | Command::Forward { .. }
            | Command::Follow { .. }
            | Command::Gather { .. }
            | Command::Mend { .. }
            | Command::Prestage { .. }
            | Command::Quit { .. }
            | Command::Survey { .. }
            | Command::Probe { .. }
            | Command::ProbeCrossing { .. }
            | Command::Reserve { .. }
            | Command::Rearrange { .. }
            | Command::GiveBack { .. }
            | Command::ReserveSpace { .. }
            | Command::ReleaseSpace { .. }
            | Command::Take { .. }
            | Command::Solve { .. } => Manner {
                share: Share::Ordinary,
                haste: Haste::Now,
                rate_max: None,
            },
        }
    }

    fn step(&mut self, arrivals: Vec<Arrival>) -> Result<()> {
        let now = self.centre.clock.now();
        let (mut chunks, mut waiting) = (Vec::new(), Vec::new());
        let mut inputs = Vec::with_capacity(arrivals.len());
        for arrival in arrivals {
            let arrival = omissions::unless_outdated(&self.centre.opened, arrival);
            inputs.push(arrival.input);
            inputs.extend(arrival.more);
            chunks.extend(arrival.chunk);
            waiting.extend(arrival.written);
        }
        let mut out = Outbox::default();
        self.since_snapshot += inputs.len() + 1;
        let snapshot = {
            let mut mind = self.centre.mind();
            mind.step(now, inputs.clone(), &mut out);
            let every = SNAPSHOT_EVERY.max(mind.moving() / REQUESTS_PER_INPUT);
            (self.since_snapshot >= every).then(|| mind.snapshot())
        };
        if snapshot.is_some() {
            self.since_snapshot = 0;
        }
        self.journal(now, &inputs, &chunks, &out, snapshot)?;
        for written in waiting {
            // The caller may have left.
            let _ = written.send(());
        }
        for input in &inputs {
            self.centre.note_written(input);
        }
        self.note(now, (&inputs, &out.events));
        for command in out.commands {
            let manner = self.manner(&command);
            self.hands.execute(command, manner);
        }
        for event in out.events {
            if let (Some(request), Happening::Arrived { .. }) = (event.request, &event.happening) {
                self.hands.forget_stage_in(request);
            }
            if let (Some(request), Some(remains)) = (event.request, remains_of(&event.happening)) {
                self.hands.retire(request, remains);
            }
        }
        Ok(())
    }

    fn journal(
        &self,
        at: Timestamp,
        inputs: &[Input],
        chunks: &[ChunkRecord],
        out: &Outbox,
        snapshot: Option<Vec<u8>>,
    ) -> Result<()> {
        let step = Step {
            at,
            inputs,
            commands: &out.commands,
            events: &out.events,
            chunks,
            snapshot,
        };
        let first = tokio::task::block_in_place(|| {
            self.centre.store.journal(|journal| journal.append(&step))
        })?;
        if !out.events.is_empty() {
            let newest = first + out.events.len() as u64 - 1;
            self.centre.told(&out.events, newest);
        }
        Ok(())
    }

    /// Records decisions and removals, if configured.
    fn note(&self, at: Timestamp, step: (&[Input], &[Event])) {
        let audit = self.centre.audit.get();
        let Some(audit) = (*audit).as_ref() else {
            return;
        };
        let noted = tokio::task::block_in_place(|| {
            let lines = audit::noted(&self.centre, at, step);
            if lines.is_empty() {
                return Ok(());
            }
            audit.note(&lines)
        });
        if let Err(error) = noted {
            tracing::warn!("{error}");
        }
    }
}
