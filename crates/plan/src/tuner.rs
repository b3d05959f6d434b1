//! How a path is used: files at once, streams a file, files asked for ahead.
//!
//! An [`Optimizer`] says how the next period is to be run ([`Choice`]) and is told what the period
//! carried ([`Probe`]). It knows nothing of protocols: where one has no streams or nothing to ask
//! for ahead, its [`Bounds`] say 1. It reads no clock and draws no lots: the same probes give the
//! same choices, and its whole state is a record. Which one is asked for by name is a [`Method`];
//! `docs/algorithms/tuner.md` tells them apart.

mod auto;
mod class;
mod falcon;
mod fixed;
mod mcc;
mod method;
mod promc;
mod reason;
mod rules;
mod sampling;
mod scc;
mod setting;
#[cfg(test)]
mod trial;
mod utility;

pub use class::{Class, ClassSet, Stock, Stocks};
pub use method::{Method, MethodError};
pub use reason::{Knob, Outcome, Reason};
pub use setting::{Bounds, PathFacts, Setting, SettingError};

use alloc::{vec, vec::Vec};
use auto::Auto;
use core::time::Duration;
use falcon::Falcon;
use fixed::Fixed;
use mcc::Mcc;
use posthaste_types::{ByteRate, Bytes, record};
use promc::Promc;
use sampling::{Model, Sampling};
use scc::Scc;

/// How long a period is measured: two of the one-second means that Falcon averages.
const PROBE: Duration = Duration::from_secs(2);
/// A new setting is left alone for this long at least before it is measured.
const SKIP_MIN: Duration = Duration::from_secs(1);
/// New streams have left slow start after so many round trips.
const SKIP_ROUND_TRIPS: u32 = 10;

record! {
    /// How much the transfer hurries.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
    pub enum Urgency {
        /// It gives way to others.
        0 = Background,
        /// As everybody.
        #[default]
        1 = Normal,
        /// Its deadline is near: slack is under a tenth of the time left.
        2 = Late,
    }
}

record! {
    /// What one period gave.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Probe {
        /// What was in force.
        pub setting: Setting,
        /// How long was measured, without what was skipped.
        pub elapsed: Duration,
        /// What arrived in that time.
        pub bytes: Bytes,
        /// Segments sent again of a thousand sent, where the system tells.
        pub lost_permille: Option<u16>,
    }
}

impl Probe {
    /// What arrived a second.
    #[must_use]
    pub fn rate(&self) -> ByteRate {
        ByteRate::over(self.bytes, self.elapsed)
    }

    /// Whether less than half of what was to be measured was.
    fn is_too_short(&self) -> bool {
        self.elapsed < PROBE / 2
    }
}

record! {
    /// Channels that move some classes in one way.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Share {
        /// What they move. When nothing of it is left, they help the other shares.
        pub classes: ClassSet,
        /// How. Its concurrency is what the rule wants for these classes alone.
        pub setting: Setting,
        /// How many there are: files of these classes at once. Never zero.
        pub channels: u16,
    }
}

record! {
    /// How the next period is to be run, and why.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Choice {
        /// Who moves what; no class is in two of them. Classes in none of them wait.
        pub shares: Vec<Share>,
        /// How long to leave it alone first.
        pub skip: Duration,
        /// How long to measure it then. The driver ends a period early when a share has nothing
        /// left while classes wait, and says so by a short [`Probe::elapsed`].
        pub probe: Duration,
        /// Why, for people.
        pub reason: Reason,
    }
}

impl Choice {
    /// One setting for all classes.
    fn of_all(setting: Setting, facts: &PathFacts, reason: Reason) -> Self {
        let share = Share {
            classes: ClassSet::ALL,
            setting,
            channels: setting.concurrency,
        };
        Self::of(&[share], facts, reason)
    }

    /// Several settings side by side. Without any, everything moves modestly until there is
    /// something to go by.
    fn of(shares: &[Share], facts: &PathFacts, reason: Reason) -> Self {
        let modest = Share {
            classes: ClassSet::ALL,
            setting: Setting::ONE,
            channels: 1,
        };
        Self {
            shares: if shares.is_empty() {
                vec![modest]
            } else {
                shares.to_vec()
            },
            skip: Self::skip(facts),
            probe: PROBE,
            reason,
        }
    }

    fn skip(facts: &PathFacts) -> Duration {
        SKIP_MIN.max(facts.rtt.saturating_mul(SKIP_ROUND_TRIPS))
    }

    /// How long a period is in all: 3 s, or 2 s and ten round trips.
    fn period(facts: &PathFacts) -> Duration {
        Self::skip(facts) + PROBE
    }

    /// The whole as one setting: all channels, and the most streams and files ahead of any share.
    /// What a driver puts into [`Probe::setting`] when it could do what it was told.
    #[must_use]
    pub fn setting(&self) -> Setting {
        let channels = self.shares.iter().map(|share| share.channels);
        let settings = || self.shares.iter().map(|share| share.setting);
        Setting::new(
            channels.fold(0, u16::saturating_add),
            settings()
                .map(|setting| setting.parallelism)
                .max()
                .unwrap_or(1),
            settings()
                .map(|setting| setting.pipelining)
                .max()
                .unwrap_or(1),
        )
    }
}

/// Chooses how a path is used.
pub trait Optimizer {
    /// How to begin, with this to move.
    fn first(&mut self, stocks: &Stocks) -> Choice;

    /// How to go on after a period that gave `probe`, with this left to move.
    fn on_probe(&mut self, probe: &Probe, stocks: &Stocks) -> Choice;

    /// From now on the transfer hurries more or less.
    fn set_urgency(&mut self, urgency: Urgency);

    /// The best setting found so far: where the next transfer on this path begins. None before
    /// anything was measured.
    fn best(&self) -> Option<Setting>;
}

record! {
    /// Any of the optimizers, as a value that can be kept.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub enum Tuner {
        /// See [`Method::Auto`].
        0 = Auto {
            /// Its state.
            state: Auto,
        },
        /// See [`Method::Fixed`].
        1 = Fixed {
            /// Its state.
            state: Fixed,
        },
        /// See [`Method::Scc`].
        2 = Scc {
            /// Its state.
            state: Scc,
        },
        /// See [`Method::Mcc`].
        3 = Mcc {
            /// Its state.
            state: Mcc,
        },
        /// See [`Method::Promc`].
        4 = Promc {
            /// Its state.
            state: Promc,
        },
        /// The three models.
        5 = Sampling {
            /// Its state.
            state: Sampling,
        },
        /// See [`Method::Falcon`].
        6 = Falcon {
            /// Its state.
            state: Falcon,
        },
    }
}

/// Makes the optimizer of this name. `history` is the [`Optimizer::best`] of the last transfer on
/// the path.
#[must_use]
pub fn optimizer(
    method: Method,
    facts: PathFacts,
    bounds: Bounds,
    history: Option<Setting>,
    urgency: Urgency,
) -> Tuner {
    let sampling = |model| Tuner::Sampling {
        state: Sampling::new(model, facts, bounds),
    };
    match method {
        Method::Auto => Tuner::Auto {
            state: Auto::new(facts, bounds, history, urgency),
        },
        Method::Fixed { setting } => Tuner::Fixed {
            state: Fixed::new(setting, facts, bounds),
        },
        Method::Scc => Tuner::Scc {
            state: Scc::new(facts, bounds),
        },
        Method::Mcc => Tuner::Mcc {
            state: Mcc::new(facts, bounds),
        },
        Method::Promc => Tuner::Promc {
            state: Promc::new(facts, bounds),
        },
        Method::PartialSecondOrder => sampling(Model::Partial),
        Method::FullSecondOrder => sampling(Model::Full),
        Method::COrder => sampling(Model::Free),
        Method::Falcon => Tuner::Falcon {
            state: Falcon::new(facts, bounds),
        },
    }
}

impl Tuner {
    fn state(&self) -> &dyn Optimizer {
        match self {
            Self::Auto { state } => state,
            Self::Fixed { state } => state,
            Self::Scc { state } => state,
            Self::Mcc { state } => state,
            Self::Promc { state } => state,
            Self::Sampling { state } => state,
            Self::Falcon { state } => state,
        }
    }

    fn state_mut(&mut self) -> &mut dyn Optimizer {
        match self {
            Self::Auto { state } => state,
            Self::Fixed { state } => state,
            Self::Scc { state } => state,
            Self::Mcc { state } => state,
            Self::Promc { state } => state,
            Self::Sampling { state } => state,
            Self::Falcon { state } => state,
        }
    }
}

impl Optimizer for Tuner {
    fn first(&mut self, stocks: &Stocks) -> Choice {
        self.state_mut().first(stocks)
    }

    fn on_probe(&mut self, probe: &Probe, stocks: &Stocks) -> Choice {
        self.state_mut().on_probe(probe, stocks)
    }

    fn set_urgency(&mut self, urgency: Urgency) {
        self.state_mut().set_urgency(urgency);
    }

    fn best(&self) -> Option<Setting> {
        self.state().best()
    }
}
