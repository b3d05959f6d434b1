//! Invariants of every world, checked throughout a run.

mod arrivals;
mod capacity;
mod conservation;
mod deadline;
mod delivery;
mod domains;
mod drains;
mod due;
mod lent;
mod onward;
mod owners;
mod pauses;
mod probes;
mod progress;
mod release;
mod reserved;
mod spaces;
mod ways;
mod wishes;

use posthaste_types::Timestamp;

pub(crate) use arrivals::Arrivals;
pub(crate) use capacity::Capacity;
pub(crate) use conservation::{Conservation, End};
pub(crate) use deadline::Deadlines;
pub(crate) use delivery::{on_delivered, on_forget};
pub(crate) use domains::Domains;
pub(crate) use drains::Drains;
pub(crate) use due::Dues;
pub(crate) use lent::Lent;
pub(crate) use onward::Onward;
pub(crate) use owners::Owners;
pub(crate) use pauses::Pauses;
pub(crate) use probes::Probes;
pub(crate) use progress::Progress;
pub(crate) use release::Releases;
pub(crate) use release::on_released;
pub(crate) use reserved::Reserved;
pub(crate) use spaces::Spaces;
pub(crate) use ways::Ways;
pub(crate) use wishes::Kept;

/// Violated invariant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// Checker that found it.
    pub checker: &'static str,
    /// Time of the violation.
    pub at: Timestamp,
    /// Description of the violation.
    pub what: String,
}

/// Violations kept of one run. The first ones are the most telling.
const VIOLATIONS_MAX: usize = 20;

/// Checkers and the violations they found.
#[derive(Debug)]
pub struct Checkers {
    pub(crate) deadlines: Deadlines,
    pub(crate) dues: Dues,
    pub(crate) capacity: Capacity,
    pub(crate) conservation: Conservation,
    pub(crate) progress: Progress,
    pub(crate) releases: Releases,
    pub(crate) probes: Probes,
    pub(crate) kept: Kept,
    pub(crate) arrivals: Arrivals,
    pub(crate) domains: Domains,
    pub(crate) drains: Drains,
    pub(crate) reserved: Reserved,
    pub(crate) ways: Ways,
    pub(crate) spaces: Spaces,
    pub(crate) pauses: Pauses,
    pub(crate) onward: Onward,
    pub(crate) lent: Lent,
    pub(crate) owners: Owners,
    violations: Vec<Violation>,
    is_mute: bool,
}

impl Checkers {
    /// Names of the checkers, in the order of their verdicts.
    pub const NAMES: [&'static str; 19] = [
        deadline::NAME,
        capacity::NAME,
        conservation::NAME,
        progress::NAME,
        release::NAME,
        probes::NAME,
        wishes::NAME,
        arrivals::NAME,
        delivery::NAME,
        due::NAME,
        drains::NAME,
        reserved::NAME,
        ways::NAME,
        spaces::NAME,
        pauses::NAME,
        onward::NAME,
        lent::NAME,
        owners::NAME,
        domains::NAME,
    ];

    pub(crate) fn new(settings: &posthaste_core::Settings) -> Self {
        Self {
            deadlines: Deadlines::default(),
            dues: Dues::default(),
            capacity: Capacity::new(settings),
            conservation: Conservation::default(),
            progress: Progress::default(),
            releases: Releases::default(),
            probes: Probes::new(settings),
            kept: Kept::default(),
            arrivals: Arrivals::default(),
            domains: Domains::default(),
            drains: Drains::default(),
            reserved: Reserved::default(),
            ways: Ways::default(),
            spaces: Spaces::default(),
            pauses: Pauses::default(),
            onward: Onward::default(),
            lent: Lent::default(),
            owners: Owners::default(),
            violations: Vec::new(),
            is_mute: false,
        }
    }

    /// Stops recording violations.
    pub(crate) fn mute(&mut self) {
        self.is_mute = true;
    }

    /// Records the violation a checker found, if any.
    pub(crate) fn note(&mut self, at: Timestamp, found: Result<(), Found>) {
        if let Err(Found { checker, what }) = found
            && self.violations.len() < VIOLATIONS_MAX
            && !self.is_mute
        {
            self.violations.push(Violation { checker, at, what });
        }
    }

    pub(crate) fn is_violated(&self) -> bool {
        !self.violations.is_empty()
    }

    pub(crate) fn into_violations(self) -> Vec<Violation> {
        self.violations
    }
}

/// Violation a checker found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) checker: &'static str,
    pub(crate) what: String,
}

/// Fails with the description unless `holds`.
pub(crate) fn ensure(
    checker: &'static str,
    holds: bool,
    what: impl FnOnce() -> String,
) -> Result<(), Found> {
    if holds {
        Ok(())
    } else {
        Err(Found {
            checker,
            what: what(),
        })
    }
}
