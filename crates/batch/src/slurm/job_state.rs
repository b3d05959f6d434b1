//! States of jobs that were submitted held, from the output of `squeue` with [`STATES_FORMAT`].

use std::collections::BTreeMap;

use super::{Told, has_begun, is_held};
use crate::queue::JOBS_MAX;

/// Argument of `squeue --noheader --states=all --format=` whose output [`job_states`] reads. The
/// reason is last, as it may contain any character.
pub const STATES_FORMAT: &str = "%A|%T|%Q|%N|%r";

/// State of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JobState {
    /// Job that waits, and does not start before its user releases it.
    Held,
    /// Job that waits, and does not start before an administrator releases it.
    HeldByAdministrator,
    /// Job that waits, and may start at any moment.
    Waiting,
    /// Job that runs, is about to end, or begins again.
    Running,
    /// Job that ended without having begun.
    NeverBegan,
    /// Job that has ended.
    Ended {
        /// True unless the job failed, ran out of time or was cancelled.
        well: bool,
    },
}

/// Reads the answer: the state of each job, by its number. Invalid lines are left out.
#[must_use]
pub fn job_states(answer: &str) -> BTreeMap<u64, JobState> {
    answer.lines().take(JOBS_MAX).filter_map(read).collect()
}

fn read(line: &str) -> Option<(u64, JobState)> {
    let mut words = line.trim().splitn(5, '|');
    let job = words.next()?.parse().ok()?;
    let name = words.next()?;
    let (priority, nodes) = (words.next()?.parse().ok(), words.next()?);
    let reason = words.next()?;
    let told = Told {
        state: name,
        reason,
        priority,
        nodes,
    };
    Some((job, standing(told)))
}

/// Returns the state of a job.
pub(super) fn standing(told: Told) -> JobState {
    let Told {
        state,
        reason,
        priority,
        nodes,
    } = told;
    // A state may have a suffix after `+`.
    let name = state.split('+').next().unwrap_or(state);
    match name {
        "COMPLETED" => JobState::Ended { well: true },
        "PENDING" if !is_held(priority) => JobState::Waiting,
        "PENDING" if reason == "JobHeldAdmin" => JobState::HeldByAdministrator,
        "PENDING" => JobState::Held,
        "CONFIGURING" | "RUNNING" | "SUSPENDED" | "COMPLETING" | "STAGE_OUT" | "REQUEUED"
        | "REQUEUE_HOLD" | "REQUEUE_FED" | "RESIZING" | "SIGNALING" | "SPECIAL_EXIT"
        | "STOPPED" | "RESV_DEL_HOLD" => JobState::Running,
        _ if !has_begun(nodes) => JobState::NeverBegan,
        _ => JobState::Ended { well: false },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_tells_how_a_job_stands() {
        for (line, state) in [
            ("7|PENDING|0||JobHeldUser", JobState::Held),
            ("7|PENDING|0||Dependency", JobState::Held),
            ("7|PENDING|0||JobHeldAdmin", JobState::HeldByAdministrator),
            ("7|PENDING|9||Priority", JobState::Waiting),
            ("7|CANCELLED|0||JobHeldUser", JobState::NeverBegan),
            ("7|COMPLETING|9|n1|None", JobState::Running),
            ("7|COMPLETED|9|n1|None", JobState::Ended { well: true }),
            (
                "7|TIMEOUT|9|n[1-2]|TimeLimit",
                JobState::Ended { well: false },
            ),
            ("7|CANCELLED+|9|n1|a|b", JobState::Ended { well: false }),
        ] {
            assert_eq!(job_states(line), BTreeMap::from([(7, state)]), "{line}");
        }
    }

    #[test]
    fn lines_without_sense_are_left_out() {
        let answer = "squeue: error\n\n7|PENDING|0\n8|RUNNING|9|n1|None\n";
        assert_eq!(job_states(answer), BTreeMap::from([(8, JobState::Running)]));
    }
}
