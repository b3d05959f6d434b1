//! Policies that are played in the mind's place: what it is measured against.
//!
//! A [`Policy`] only says what goes to a depot next. [`Player`] keeps the books that all of them need: what
//! is where, who is up, what did not arrive. All get the same inputs as the mind and give the same
//! commands, so what differs in a benchmark is the decision.

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

/// How often a rival looks at what stalls.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Fragments on their way to a depot: enough that the path is never idle while an answer is.
const FLIGHTS: usize = 4;

/// The policies there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rival {
    /// Whole chunks to the destination, first come, first served.
    Direct,
    /// Each fragment has its depot: the first ones of the request, for good.
    StaticSplit,
    /// Fragments to all depots that are up, in turn.
    RoundRobin,
    /// Whole chunks to the destination, all requests side by side, as many at once as still brings more
    /// (additive increase, multiplicative decrease), as file transfer services do.
    Adaptive,
    /// Whole chunks to the destination, the earliest deadline first.
    DirectByDeadline,
    /// The plan over time, made anew all the while from what depots took lately.
    Planned,
    /// Nothing at all.
    Idle,
}

impl Rival {
    /// All that are worth comparing.
    pub const ALL: [Self; 6] = [
        Self::Direct,
        Self::StaticSplit,
        Self::RoundRobin,
        Self::Adaptive,
        Self::DirectByDeadline,
        Self::Planned,
    ];

    /// What tables call it.
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

/// A fragment to send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Pick {
    request: RequestId,
    chunk: usize,
    fragment: FragmentIndex,
}

/// What goes to a depot next.
trait Policy {
    /// The next fragment for a depot that is up and has fewer than its most on their way; none for now.
    fn next(&mut self, ledger: &Ledger, depot: DepotId) -> Option<Pick>;

    /// Most fragments on their way to a depot.
    fn flights_max(&self, _depot: DepotId) -> usize {
        FLIGHTS
    }

    /// Called once a second, before anything is sent.
    fn look(&mut self, _ledger: &Ledger) {}

    /// A fragment arrived at a depot or did not.
    fn on_answer(&mut self, _depot: DepotId, _is_stored: bool) {}
}

struct Idle;

impl Policy for Idle {
    fn next(&mut self, _ledger: &Ledger, _depot: DepotId) -> Option<Pick> {
        None
    }
}

/// A policy with its books.
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

/// Whoever decides in a run.
pub(crate) enum Decider {
    /// The mind that ships.
    Mind(Box<Mind>),
    /// Somebody else.
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

    /// The mind, where it is the mind.
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

    /// Changes the mind, where it is the mind.
    pub(crate) fn through(self, change: impl FnOnce(Mind) -> Mind) -> Self {
        match self {
            Self::Mind(mind) => Self::mind(change(*mind)),
            Self::Rival(player) => Self::Rival(player),
        }
    }

    /// All requests as they stand.
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

    /// Whether depots send on what they hold.
    pub(crate) fn is_pushing(&self) -> bool {
        self.as_mind()
            .is_some_and(|mind| mind.pushing() > 0 || mind.delivering() > 0)
    }

    /// Whether it is a rival with requests that move.
    pub(crate) fn is_rival_moving(&self) -> bool {
        match self {
            Self::Mind(_) => false,
            Self::Rival(player) => player.ledger.moving().next().is_some(),
        }
    }
}
