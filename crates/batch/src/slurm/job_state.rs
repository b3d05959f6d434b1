//! How jobs that were submitted held stand, by what `squeue` prints with [`STATES_FORMAT`].

use std::collections::BTreeMap;

use super::{Told, has_begun, is_held};
use crate::queue::JOBS_MAX;

/// What `squeue --noheader --states=all --format=` is given, so that [`job_states`] reads what it prints. The reason is last: it
/// may hold anything.
pub const STATES_FORMAT: &str = "%A|%T|%Q|%N|%r";

/// How a job stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JobState {
    /// It waits, and does not start before its user releases it.
    Held,
    /// It waits, and does not start before an administrator releases it.
    HeldByAdministrator,
    /// It waits, and may start at any moment.
    Waiting,
    /// It runs, is about to end, or begins anew.
    Running,
    /// It ended without having begun.
    NeverBegan,
    /// It ended.
    Ended {
        /// Whether it ended well: neither failed nor ran out of time nor was cancelled.
        well: bool,
    },
}

/// Reads the answer: how each job stands, by its number. Lines that make no sense are left out.
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

/// How it stands.
pub(super) fn standing(told: Told) -> JobState {
    let Told {
        state,
        reason,
        priority,
        nodes,
    } = told;
    // A state may have more behind a `+`.
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
