//! Use of a path: files at once, streams per file, files asked for ahead.
//!
//! An [`Optimizer`] chooses the settings of the next period ([`Choice`]) and gets its result
//! ([`Probe`]). It knows nothing of protocols: if one has no streams or no requests ahead, its
//! [`Bounds`] say 1. It uses neither clock nor randomness: the same probes give the same choices,
//! and its whole state is a record. A [`Method`] names the optimizer; `docs/algorithms/tuner.md`
//! compares them.

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

/// Measured part of a period: two of the one-second means that Falcon averages.
const PROBE: Duration = Duration::from_secs(2);
/// Shortest time that a new setting runs before it is measured.
const SKIP_MIN: Duration = Duration::from_secs(1);
/// Round trips after which new streams have left slow start.
const SKIP_ROUND_TRIPS: u32 = 10;

record! {
    /// Urgency of the transfer.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
    pub enum Urgency {
        /// The transfer gives way to others.
        0 = Background,
        /// The usual urgency.
        #[default]
        1 = Normal,
        /// The deadline is near: slack is under a tenth of the time left.
        2 = Late,
    }
}

record! {
    /// Result of one period.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Probe {
        /// Setting in force.
        pub setting: Setting,
        /// Measured time, without the skipped part.
        pub elapsed: Duration,
        /// Bytes that arrived in that time.
        pub bytes: Bytes,
        /// Retransmitted segments per thousand sent, where the system reports them.
        pub lost_permille: Option<u16>,
    }
}

impl Probe {
    /// Returns the bytes that arrived per second.
    #[must_use]
    pub fn rate(&self) -> ByteRate {
        ByteRate::over(self.bytes, self.elapsed)
    }

    /// Returns whether less than half of the intended time was measured.
    fn is_too_short(&self) -> bool {
        self.elapsed < PROBE / 2
    }
}

record! {
    /// Channels that move some classes in one way.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Share {
        /// Classes they move. When nothing of them is left, the channels help the other shares.
        pub classes: ClassSet,
        /// Setting. Its concurrency is the rule's value for these classes alone.
        pub setting: Setting,
        /// Number of channels: files of these classes at once. Never zero.
        pub channels: u16,
    }
}

record! {
    /// Settings of the next period, and the reason.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Choice {
        /// Channels by classes; no class is in two of them. Classes in none of them wait.
        pub shares: Vec<Share>,
        /// Time to skip first.
        pub skip: Duration,
        /// Time to measure then. The driver ends a period early when a share has nothing left while
        /// classes wait, and reports that by a short [`Probe::elapsed`].
        pub probe: Duration,
        /// Reason, for people.
        pub reason: Reason,
    }
}

impl Choice {
    /// Returns a choice of one setting for all classes.
    fn of_all(setting: Setting, facts: &PathFacts, reason: Reason) -> Self {
        let share = Share {
            classes: ClassSet::ALL,
            setting,
            channels: setting.concurrency,
        };
        Self::of(&[share], facts, reason)
    }

    /// Returns a choice of several settings side by side. Without any, everything moves modestly
    /// until there is a measurement.
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

    /// Returns the length of a whole period: 3 s, or 2 s and ten round trips.
    fn period(facts: &PathFacts) -> Duration {
        Self::skip(facts) + PROBE
    }

    /// Returns the choice as one setting: all channels, and the most streams and files ahead of any
    /// share. A driver reports it in [`Probe::setting`] if it applied the whole choice.
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

/// Choice of the settings of a path.
pub trait Optimizer {
    /// Returns the first choice for `stocks`.
    fn first(&mut self, stocks: &Stocks) -> Choice;

    /// Returns the next choice after a period that gave `probe`, with `stocks` left.
    fn on_probe(&mut self, probe: &Probe, stocks: &Stocks) -> Choice;

    /// Sets the urgency from now on.
    fn set_urgency(&mut self, urgency: Urgency);

    /// Returns the best setting so far, where the next transfer on this path begins; none before
    /// the first measurement.
    fn best(&self) -> Option<Setting>;
}

record! {
    /// Any of the optimizers, as a value to store.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub enum Tuner {
        /// See [`Method::Auto`].
        0 = Auto {
            /// State of the optimizer.
            state: Auto,
        },
        /// See [`Method::Fixed`].
        1 = Fixed {
            /// State of the optimizer.
            state: Fixed,
        },
        /// See [`Method::Scc`].
        2 = Scc {
            /// State of the optimizer.
            state: Scc,
        },
        /// See [`Method::Mcc`].
        3 = Mcc {
            /// State of the optimizer.
            state: Mcc,
        },
        /// See [`Method::Promc`].
        4 = Promc {
            /// State of the optimizer.
            state: Promc,
        },
        /// A sampling model: any of the three.
        5 = Sampling {
            /// State of the optimizer.
            state: Sampling,
        },
        /// See [`Method::Falcon`].
        6 = Falcon {
            /// State of the optimizer.
            state: Falcon,
        },
    }
}

/// Returns the optimizer of this name. `history` is the [`Optimizer::best`] of the last transfer on
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
