//! Movers: processes that move data for the service, on any hosts (`docs/algorithms/movers.md`).
//! The roster decides which movers exist and what each does. This passes it their reports, and
//! passes results to the callers that wait for work.

mod shown;
mod waiting;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    ops::ControlFlow,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use posthaste_api as api;
use posthaste_core::movers::{Heard, LEASE_LASTS, LeaseId, MOVERS_MAX, MoverId, Roster, Ticket};
use posthaste_endpoint::{Error, ErrorKind, Result};
use posthaste_types::{RequestId, Timestamp};
use tokio::sync::{Notify, mpsc};

use crate::monotonic;
use shown::{Came, ReadEnding, read_digest, read_ending, shown, unknown};
use waiting::Told;
pub(crate) use waiting::{Ending, News, Offered};

/// Interval of checks for silent movers.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Longest wait for work before a mover gets an answer, since it must report meanwhile.
const WAIT_MAX: Duration = Duration::from_secs(3);
/// Longest name of a mover or a host, in bytes.
const NAME_BYTES_MAX: usize = 128;

struct Pending {
    offered: Offered,
    teller: mpsc::Sender<Told>,
}

/// Facts of a mover that the roster does not know.
#[derive(Debug, Default)]
struct About {
    /// Wakes its turn: there may be work to give or to stop, or the turn is no longer the newest.
    woken: Arc<Notify>,
    host: String,
    version: String,
    bytes: u64,
    failure: Option<String>,
    /// Bytes that it sent to each depot, and how many of those arrived.
    carried: BTreeMap<String, (u64, u64)>,
}

struct State {
    roster: Roster,
    pending: HashMap<Ticket, Pending>,
    about: BTreeMap<MoverId, About>,
    next: u64,
}

/// Movers of this service.
pub(crate) struct Movers {
    state: Mutex<State>,
    started: Instant,
}

impl Movers {
    /// Creates an empty set of movers. Numbers begin at `now`, so that they differ from those of an
    /// earlier service.
    pub(crate) fn new(now: Timestamp) -> Self {
        Self {
            state: Mutex::new(State {
                roster: Roster::starting_at(now.as_micros()),
                pending: HashMap::new(),
                about: BTreeMap::new(),
                next: 0,
            }),
            started: monotonic(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the time of the leases, which no calendar changes.
    fn now(&self) -> Timestamp {
        Timestamp::from_secs(1) + self.started.elapsed()
    }

    /// Registers a mover.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] for invalid facts, [`ErrorKind::Conflict`] without a common protocol,
    /// [`ErrorKind::Busy`] if there are too many.
    pub(crate) fn join(&self, new: &api::NewMover) -> Result<api::JoinedMover> {
        let wrong =
            |why: &str| Error::new(ErrorKind::Invalid, "join", "the mover").cause(why.to_owned());
        let is_name = |name: &str| {
            let is_plain = name.chars().all(|c| c.is_ascii_graphic() && c != '/');
            !name.is_empty() && name.len() <= NAME_BYTES_MAX && is_plain
        };
        if !is_name(&new.name) || !is_name(&new.host) || new.version.len() > NAME_BYTES_MAX {
            return Err(wrong(
                "its name or its host's is none: letters, digits and signs, at most 128",
            )
            .hint("name it with --name"));
        }
        if !new.protocols.contains(&api::MOVER_PROTOCOL) {
            let spoken: Vec<String> = new.protocols.iter().map(u32::to_string).collect();
            let why = format!(
                "it speaks protocol {}, and the service {}",
                spoken.join(", "),
                api::MOVER_PROTOCOL
            );
            return Err(
                Error::new(ErrorKind::Conflict, "join", format!("mover {}", new.name))
                    .cause(why)
                    .hint(format!(
                        "install release {} there",
                        env!("CARGO_PKG_VERSION")
                    )),
            );
        }
        let mut state = self.state();
        let joined = state.roster.join(self.now(), &new.name, new.slots);
        let id = joined.ok_or_else(|| {
            Error::new(ErrorKind::Busy, "join", format!("mover {}", new.name))
                .cause(format!("there are {MOVERS_MAX}"))
        })?;
        let about = About {
            host: new.host.clone(),
            version: new.version.clone(),
            ..About::default()
        };
        state.about.insert(id, about);
        state.forget_gone();
        self.settle(&mut state);
        tracing::info!(
            mover = new.name,
            "mover {} of {} joined",
            new.name,
            new.host
        );
        Ok(api::JoinedMover {
            id: id.get(),
            protocol: api::MOVER_PROTOCOL,
            lease_ms: u64::try_from(LEASE_LASTS.as_millis()).unwrap_or(u64::MAX),
            is_root: rustix::process::geteuid().is_root(),
        })
    }

    /// Removes a mover that ends by itself.
    pub(crate) fn leave(&self, id: MoverId) {
        let mut state = self.state();
        let name = state.roster.name(id).map(str::to_owned);
        state.roster.leave(self.now(), id);
        state.forget_gone();
        self.settle(&mut state);
        drop(state);
        if let Some(name) = name {
            tracing::info!(mover = name, "mover {name} left");
        }
    }

    /// Receives a mover's report and returns its work, waiting for some if it may. Bytes that it
    /// reports as sent to depots are passed to `carried`.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] if it is not known (any more): it joins anew. [`ErrorKind::Invalid`]
    /// for an invalid report.
    pub(crate) async fn turn(
        &self,
        id: MoverId,
        turn: &api::MoverTurn,
        carried: impl Fn(&str, u64, u64) + Send,
    ) -> Result<api::MoverOrders> {
        let until = monotonic() + Duration::from_millis(turn.wait_ms).min(WAIT_MAX);
        if !self.hear(id, turn, carried)? {
            return Ok(api::MoverOrders::default());
        }
        loop {
            let woken = self.woken(id)?;
            let woken = woken.notified();
            tokio::pin!(woken);
            woken.as_mut().enable();
            let Some(orders) = self.ask(id, turn)? else {
                return Ok(api::MoverOrders::default());
            };
            let is_over = monotonic() >= until;
            if is_over || !orders.work.is_empty() || !orders.stop.is_empty() || turn.leaves {
                return Ok(orders);
            }
            let left = until.saturating_duration_since(monotonic());
            let _ = tokio::time::timeout(left, woken).await;
        }
    }

    fn woken(&self, id: MoverId) -> Result<Arc<Notify>> {
        let state = self.state();
        let about = state.about.get(&id).ok_or_else(|| unknown(id))?;
        Ok(Arc::clone(&about.woken))
    }

    /// Returns whether the report is new.
    fn hear(
        &self,
        id: MoverId,
        turn: &api::MoverTurn,
        carried: impl Fn(&str, u64, u64),
    ) -> Result<bool> {
        let ended = turn.ended.iter().map(read_ending);
        let ended = ended.collect::<Result<Vec<_>>>()?;
        let begun = turn.begun.iter().map(|begun| {
            let digest = read_digest(&begun.digest)?;
            Ok((LeaseId::new(begun.lease), News::Begun(digest)))
        });
        let begun = begun.collect::<Result<Vec<_>>>()?;
        let mut state = self.state();
        match state.roster.hear(self.now(), id, turn.number) {
            Heard::Unknown => return Err(unknown(id)),
            Heard::Old => return Ok(false),
            Heard::New => {}
        }
        // A mover that waits with an older turn gets no work there.
        if let Some(about) = state.about.get(&id) {
            about.woken.notify_waiters();
        }
        for (lease, news) in begun {
            state.tell(id, lease, news);
        }
        for fetched in &turn.fetched {
            let news = News::Fetched(fetched.bytes);
            state.tell(id, LeaseId::new(fetched.lease), news);
        }
        for ending in ended {
            self.end(&mut state, id, ending);
        }
        let held: BTreeSet<LeaseId> = turn.holds.iter().copied().map(LeaseId::new).collect();
        state.roster.holds(id, &held);
        if let Some(about) = state.about.get_mut(&id) {
            about.bytes = about.bytes.max(turn.bytes);
            for now in &turn.carried {
                let before = about.carried.entry(now.depot.clone()).or_default();
                let sent = now.sent.saturating_sub(before.0);
                let arrived = now.arrived.saturating_sub(before.1);
                *before = (now.sent.max(before.0), now.arrived.max(before.1));
                carried(&now.depot, sent, arrived);
            }
        }
        self.settle(&mut state);
        Ok(true)
    }

    fn end(&self, state: &mut State, id: MoverId, (lease, ended): ReadEnding) {
        let Some(ticket) = state.roster.ended(self.now(), id, lease, ended.is_ok()) else {
            return;
        };
        let Some(pending) = state.pending.remove(&ticket) else {
            return;
        };
        if let Err(why) = &ended {
            let name = state.roster.name(id).unwrap_or_default();
            let request = pending.offered.request;
            tracing::warn!(%request, mover = name, "{why}");
            if let Some(about) = state.about.get_mut(&id) {
                about.failure = Some(why.clone());
            }
        }
        let ending = match ended {
            Ok(Came::Digests(digests)) => Ending::Done(digests),
            Ok(Came::Stored(sum, receipt)) => Ending::Stored(sum, receipt),
            Err(_) => Ending::Failed(id),
        };
        // The waiting caller may have left.
        let _ = pending.teller.try_send(ControlFlow::Break(ending));
    }

    /// Returns its work; none if its turn is no longer the newest.
    fn ask(&self, id: MoverId, turn: &api::MoverTurn) -> Result<Option<api::MoverOrders>> {
        let mut state = self.state();
        let leaves = turn.leaves;
        let asked = state
            .roster
            .ask(self.now(), id, turn.number, turn.free, leaves);
        self.settle(&mut state);
        let Some(asked) = asked else {
            let is_there = state.about.contains_key(&id);
            return if is_there { Ok(None) } else { Err(unknown(id)) };
        };
        let mut work = Vec::with_capacity(asked.given.len());
        for (lease, ticket) in asked.given {
            let Some(pending) = state.pending.get(&ticket) else {
                continue;
            };
            if !pending.offered.departure.leave() {
                // The caller that recalled it takes it from the mover.
                continue;
            }
            state.tell(id, lease, News::Given);
            work.push(api::Work {
                lease: lease.get(),
                chore: (pending.offered.chore)(),
            });
        }
        Ok(Some(api::MoverOrders {
            work,
            stop: asked.stop.into_iter().map(LeaseId::get).collect(),
        }))
    }

    /// Checks that a mover has work of a request, so that it may see the request.
    ///
    /// # Errors
    /// [`ErrorKind::PermissionDenied`] if it has none.
    pub(crate) fn check_works_for(&self, id: MoverId, request: RequestId) -> Result<()> {
        let state = self.state();
        let mut pending = state.pending.iter();
        let is_given = pending.any(|(ticket, pending)| {
            pending.offered.request == request && state.roster.worker(*ticket) == Some(id)
        });
        if is_given {
            return Ok(());
        }
        let subject = format!("the dataset of {request}");
        Err(Error::new(ErrorKind::PermissionDenied, "show", subject)
            .cause("this mover has no work of it"))
    }

    /// Stops or resumes giving work to movers of this name.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] if there is none.
    pub(crate) fn drain(&self, name: &str, drains: bool) -> Result<()> {
        let mut state = self.state();
        let is_there = state.roster.drain(self.now(), name, drains);
        self.settle(&mut state);
        if is_there {
            return Ok(());
        }
        Err(
            Error::new(ErrorKind::NotFound, "drain", format!("mover {name}"))
                .hint("`posthaste movers` shows those that are there"),
        )
    }

    /// Returns all movers, in the order in which they joined.
    pub(crate) fn all(&self) -> Vec<api::Mover> {
        let (now, state) = (self.now(), self.state());
        let views = state.roster.views().into_iter();
        views
            .map(|view| shown(&view, state.about.get(&view.id), now))
            .collect()
    }

    /// Watches for silent movers until the service ends.
    ///
    /// # Errors
    /// None.
    pub(crate) async fn look_after(self: Arc<Self>) -> Result<()> {
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            let mut state = self.state();
            let gone = state.roster.tick(self.now());
            state.forget_gone();
            self.settle(&mut state);
            drop(state);
            for name in gone {
                tracing::warn!(
                    mover = name,
                    "mover {name} is silent: its work is given to others"
                );
            }
        }
    }

    /// Passes on the results of any change: wakes movers that wait for work, and returns work to
    /// callers if no mover is to do it.
    fn settle(&self, state: &mut State) {
        for ticket in state.roster.take_left() {
            // The waiting caller sees the channel close.
            state.pending.remove(&ticket);
        }
        for id in state.roster.wanted(self.now()) {
            if let Some(about) = state.about.get(&id) {
                about.woken.notify_waiters();
            }
        }
    }
}

impl State {
    /// Forgets movers that are gone.
    fn forget_gone(&mut self) {
        let roster = &self.roster;
        self.about.retain(|id, _| roster.name(*id).is_some());
    }

    /// Sends news to the caller that waits for a lease's work, if the lease is this mover's. News
    /// without room is superseded by later news.
    fn tell(&self, id: MoverId, lease: LeaseId, news: News) {
        let Some((holder, ticket)) = self.roster.holder(lease) else {
            return;
        };
        let pending = self.pending.get(&ticket).filter(|_| holder == id);
        if let Some(pending) = pending
            && pending.teller.capacity() > 1
        {
            let _ = pending.teller.try_send(ControlFlow::Continue(news));
        }
    }
}
