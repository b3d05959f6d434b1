//! Random scenarios, each played under all checkers, and the smallest scenario that still fails.

mod draw;
mod shrink;

use posthaste_core::Settings;

use crate::{Report, Scenario, simulate_with};

pub use draw::draw;
pub use shrink::shrink;

/// Times a failing scenario is played in search of a smaller one: minutes of the slowest.
const PLAYS_MAX: u32 = 1500;

/// A scenario of the swarm that violated a checker, made small.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failing {
    /// Draws the scenario and plays it.
    pub seed: u64,
    /// Which checker was violated, in the drawn scenario and in this one.
    pub checker: &'static str,
    /// What it found in this one.
    pub what: String,
    /// The scenario as TOML, after everything that could go had gone.
    pub scenario: String,
}

/// Draws the scenario of this seed, plays it with these settings, and shrinks it when a checker is
/// violated. None when all are content.
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

/// The first violation: the checker and what it found.
fn first(report: &Report) -> Option<(&'static str, String)> {
    let violation = report.violations.first()?;
    Some((violation.checker, violation.what.clone()))
}
