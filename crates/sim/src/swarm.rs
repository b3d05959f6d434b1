//! Random scenarios, each played under all checkers, and the smallest scenario that still fails.

mod draw;
mod shrink;

use posthaste_core::Settings;

use crate::{Report, Scenario, simulate_with};

pub use draw::draw;
pub use shrink::shrink;

/// Most plays in search of a smaller failing scenario: minutes for the slowest scenario.
const PLAYS_MAX: u32 = 1500;

/// Reduced scenario of the swarm that violates a checker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failing {
    /// Seed that draws the scenario and plays it.
    pub seed: u64,
    /// Checker that was violated, in the drawn scenario and in this one.
    pub checker: &'static str,
    /// Violation in this scenario.
    pub what: String,
    /// Reduced scenario as TOML.
    pub scenario: String,
}

/// Draws the scenario of this seed, plays it with these settings, and reduces it if a checker is
/// violated. None without a violation.
#[must_use]
pub fn play(seed: u64, settings: &Settings) -> Option<Failing> {
    let judge = |text: &str| {
        let scenario = Scenario::parse(text).ok()?;
        first(&simulate_with(&scenario, seed, settings.clone()))
    };
    let drawn = draw(seed);
    let (checker, _) = judge(&drawn)?;
    let is_failing = |text: &str| judge(text).is_some_and(|(other, _)| other == checker);
    let scenario = shrink(&drawn, PLAYS_MAX, is_failing);
    let (checker, what) = judge(&scenario)?;
    Some(Failing {
        seed,
        checker,
        what,
        scenario,
    })
}

/// Returns the first violation: the checker and its finding.
fn first(report: &Report) -> Option<(&'static str, String)> {
    let violation = report.violations.first()?;
    Some((violation.checker, violation.what.clone()))
}
