//! Plans over time: solved at once, and answered after the time that solving would have taken.

use std::time::Duration;

use posthaste_core::contract::Input;
use posthaste_plan::horizon::{Effort, Problem};
use posthaste_solve::{columns, solve};

use super::Run;

/// Fixed time of a solver call, for a problem of any size.
const OVERHEAD: Duration = Duration::from_millis(20);
/// Time for a program of [`LARGE`] variables (`docs/benchmarks/plan.md`). The time grows with the
/// square of the variables.
const LARGE_TAKES: Duration = Duration::from_millis(500);
const LARGE: u64 = 5000;

impl Run<'_> {
    /// Solves a problem of the mind. The answer is charged as if every program the effort allows
    /// had been solved, each of the largest allowed size.
    pub(super) fn solve(&mut self, number: u64, problem: &Problem, effort: Effort) {
        let schedule = solve(problem, effort).ok();
        let columns = columns(problem).min(effort.columns) as u64;
        let once = LARGE_TAKES.as_micros() * u128::from(columns * columns);
        let all = once / u128::from(LARGE * LARGE) * u128::from(effort.programs);
        let takes = Duration::from_micros(u64::try_from(all).unwrap_or(u64::MAX));
        self.tell_after(OVERHEAD + takes, Input::PlanSolved { number, schedule });
    }
}
