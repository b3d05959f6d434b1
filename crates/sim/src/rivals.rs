//! Baselines: policies played in the mind's place, against which it is measured.
//!
//! A [`Policy`] only chooses the next fragment for a depot. [`Player`] keeps the state that all
//! policies need: locations, reachable depots and failed sends. All get the mind's inputs and give
//! the mind's commands, so a benchmark shows differences in decisions only.

mod adaptive;
mod direct;
mod ledger;
mod planned;
mod staged;

use std::time::Duration;

use posthaste_core::{
    Mind,
    contract::{Command, Input, Outbox, Reason, RequestState, RequestView},
};
use posthaste_types::{ChunkIndex, DepotId, FragmentIndex, RequestId, Timestamp};

use ledger::Ledger;

/// Period at which a baseline looks for stalls.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Fragments in flight to a depot. Enough to keep the path busy while an answer is in flight.
const FLIGHTS: usize = 4;

/// Available policies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rival {
    /// Whole chunks to the destination, first come, first served.
    Direct,
    /// A fixed depot for each fragment: the first ones of the request.
    StaticSplit,
    /// Fragments to all reachable depots, in turn.
    RoundRobin,
    /// Whole chunks to the destination, all requests in parallel, like file transfer services.
    /// Concurrency grows while it helps (additive increase, multiplicative decrease).
    Adaptive,
    /// Whole chunks to the destination, the earliest deadline first.
    DirectByDeadline,
    /// The plan over time, recomputed regularly from the depots' recent rates.
    Planned,
    /// No transfers at all.
    Idle,
}

impl Rival {
    /// All baselines that are worth comparing.
    pub const ALL: [Self; 6] = [
        Self::Direct,
        Self::StaticSplit,
        Self::RoundRobin,
        Self::Adaptive,
        Self::DirectByDeadline,
        Self::Planned,
    ];

    /// Returns the name for tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Direct => "direct only",
            Self::StaticSplit => "static split",
            Self::RoundRobin => "round robin",
            Self::Adaptive => "AIMD without deadlines",
            Self::DirectByDeadline => "direct, earliest deadline first",
            Self::Planned => "greedy plan over time",
            Self::Idle => "idle",
        }
    }

    fn policy(self) -> Box<dyn Policy> {
        match self {
            Self::Direct => Box::new(direct::Direct { by_deadline: false }),
            Self::DirectByDeadline => Box::new(direct::Direct { by_deadline: true }),
            Self::StaticSplit => Box::new(staged::StaticSplit::default()),
            Self::RoundRobin => Box::new(staged::RoundRobin::default()),
            Self::Adaptive => Box::new(adaptive::Adaptive::default()),
            Self::Planned => Box::new(planned::Planned::default()),
            Self::Idle => Box::new(Idle),
        }
    }
}

/// Fragment to send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Pick {
    request: RequestId,
    chunk: usize,
    fragment: FragmentIndex,
}

/// Choice of the next fragment for a depot.
trait Policy {
    /// Returns the next fragment for a depot that is reachable and has room in flight; none for
    /// now.
    fn next(&mut self, ledger: &Ledger, depot: DepotId) -> Option<Pick>;

    /// Returns the most fragments in flight to a depot.
    fn flights_max(&self, _depot: DepotId) -> usize {
        FLIGHTS
    }

    /// Runs once a second, before anything is sent.
    fn look(&mut self, _ledger: &Ledger) {}

    /// Handles the result of a send to a depot.
    fn on_answer(&mut self, _depot: DepotId, _is_stored: bool) {}
}

struct Idle;

impl Policy for Idle {
    fn next(&mut self, _ledger: &Ledger, _depot: DepotId) -> Option<Pick> {
        None
    }
}

/// Policy with its state.
pub(crate) struct Player {
    policy: Box<dyn Policy>,
    ledger: Ledger,
    looked: Timestamp,
}

impl Player {
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "only answers to sends matter to a policy"
    )]
    fn step(&mut self, now: Timestamp, inputs: &[Input], out: &mut Outbox) {
        self.ledger.now = now;
        for input in inputs {
            self.ledger.take(input, out);
            match input {
                Input::FragmentStored { depot, .. } => self.policy.on_answer(*depot, true),
                Input::FragmentFailed { depot, .. } => self.policy.on_answer(*depot, false),
                _ => {}
            }
        }
        if now >= self.looked + LOOK_EVERY {
            self.looked = now;
            self.ledger.drop_stalled(out);
            self.policy.look(&self.ledger);
        }
        for depot in self.ledger.depots() {
            while self.ledger.flights(depot) < self.policy.flights_max(depot)
                && let Some(pick) = self.policy.next(&self.ledger, depot)
                && self.ledger.start(depot, pick)
            {
                out.commands.push(Command::Send {
                    request: pick.request,
                    depot,
                    chunk: ChunkIndex::new(u32::try_from(pick.chunk).unwrap_or(u32::MAX)),
                    fragment: pick.fragment,
                    reason: Reason::Asked,
                });
            }
        }
    }
}

/// Decision maker of a run.
pub(crate) enum Decider {
    /// The mind that ships.
    Mind(Box<Mind>),
    /// A baseline.
    Rival(Box<Player>),
}

impl Decider {
    pub(crate) fn mind(mind: Mind) -> Self {
        Self::Mind(Box::new(mind))
    }

    pub(crate) fn rival(rival: Rival) -> Self {
        Self::Rival(Box::new(Player {
            policy: rival.policy(),
            ledger: Ledger::default(),
            looked: Timestamp::from_micros(0),
        }))
    }

    pub(crate) fn step(&mut self, now: Timestamp, inputs: Vec<Input>, out: &mut Outbox) {
        match self {
            Self::Mind(mind) => mind.step(now, inputs, out),
            Self::Rival(player) => player.step(now, &inputs, out),
        }
    }

    pub(crate) fn next_wakeup(&self) -> Option<Timestamp> {
        match self {
            Self::Mind(mind) => mind.next_wakeup(),
            Self::Rival(player) => Some(player.looked + LOOK_EVERY),
        }
    }

    /// Returns the mind, if it decides.
    pub(crate) fn as_mind(&self) -> Option<&Mind> {
        match self {
            Self::Mind(mind) => Some(mind),
            Self::Rival(_) => None,
        }
    }

    pub(crate) fn into_mind(self) -> Option<Mind> {
        match self {
            Self::Mind(mind) => Some(*mind),
            Self::Rival(_) => None,
        }
    }

    /// Replaces the mind by its changed version, if it decides.
    pub(crate) fn through(self, change: impl FnOnce(Mind) -> Mind) -> Self {
        match self {
            Self::Mind(mind) => Self::mind(change(*mind)),
            Self::Rival(player) => Self::Rival(player),
        }
    }

    /// Returns all requests with their current state.
    pub(crate) fn views(&self) -> Vec<RequestView> {
        match self {
            Self::Mind(mind) => mind.requests().collect(),
            Self::Rival(player) => player.ledger.views(),
        }
    }

    pub(crate) fn is_moving(&self, request: RequestId) -> bool {
        match self {
            Self::Mind(mind) => {
                let arrival = mind.arrival(request);
                arrival.is_some_and(|view| view.state.is_live() && view.paused.is_none())
                    || mind.request(request).is_some_and(|view| {
                        view.state == RequestState::Moving && view.paused.is_none()
                    })
            }
            Self::Rival(player) => player.ledger.is_moving(request),
        }
    }

    /// Returns whether depots forward fragments they hold.
    pub(crate) fn is_pushing(&self) -> bool {
        self.as_mind()
            .is_some_and(|mind| mind.pushing() > 0 || mind.delivering() > 0)
    }

    /// Returns whether a baseline decides and has moving requests.
    pub(crate) fn is_rival_moving(&self) -> bool {
        match self {
            Self::Mind(_) => false,
            Self::Rival(player) => player.ledger.moving().next().is_some(),
        }
    }
}
