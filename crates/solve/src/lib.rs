//! Plans over time by linear programs, which the mind asks for and does not compute itself.
//!
//! [`solve`] takes a [`Problem`] of `posthaste_plan::horizon` and returns a [`Schedule`] that
//! breaks no rule and is never worse than [`greedy`]'s. Inside, flows are real numbers found by the
//! simplex method; outside, all is integers again (`docs/algorithms/time-expanded-plan.md`).

mod program;
mod residual;
mod search;

use std::fmt;

pub use posthaste_plan::horizon::Effort;
use posthaste_plan::horizon::{Flaw, Problem, Schedule, Worth, greedy};

/// Reason why there is no schedule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SolveError {
    /// The problem is unsound: it names something that does not exist. Asking again is useless.
    Unsound(Flaw),
}

impl fmt::Display for SolveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unsound(flaw) => write!(f, "the problem is unsound: {flaw}"),
        }
    }
}

impl std::error::Error for SolveError {}

/// Returns the best schedule that `effort` finds: most weight of kept deadlines, then least
/// missing, then least cost including the churn against the plan in force. It is at least as good
/// as [`greedy`]'s, and `Schedule::check` always passes it.
///
/// # Errors
/// [`SolveError::Unsound`] if the problem names nodes that do not exist, or one twice.
pub fn solve(problem: &Problem, effort: Effort) -> Result<Schedule, SolveError> {
    problem.check().map_err(SolveError::Unsound)?;
    let mut best = Best::new(problem, greedy(problem));
    if problem.demands.is_empty() {
        return Ok(best.schedule);
    }
    if columns(problem) <= effort.columns {
        search::together(problem, &mut best, effort.programs);
    } else {
        search::in_turn(problem, &mut best, effort);
    }
    Ok(best.schedule)
}

/// Returns the most variables of one program for all demands, which [`Effort::columns`] limits.
#[must_use]
pub fn columns(problem: &Problem) -> usize {
    let all: Vec<usize> = (0..problem.demands.len()).collect();
    program::columns(problem, &all)
}

/// Best schedule so far.
struct Best {
    schedule: Schedule,
    worth: Worth,
}

impl Best {
    fn new(problem: &Problem, schedule: Schedule) -> Self {
        Self {
            worth: schedule.worth(problem),
            schedule,
        }
    }

    /// Keeps the better schedule; returns whether that is the new one.
    fn offer(&mut self, problem: &Problem, schedule: Schedule) -> bool {
        let worth = schedule.worth(problem);
        let is_better = worth > self.worth;
        if is_better {
            (self.schedule, self.worth) = (schedule, worth);
        }
        is_better
    }

    fn is_kept(&self, demand: usize) -> bool {
        self.schedule.shortfalls[demand].is_none()
    }
}
