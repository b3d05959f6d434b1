//! How a job of Slurm stands, by one line of `scontrol -o show job`.

/// How a job stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JobState {
    /// It waits, and does not start before it is released.
    Held,
    /// It waits, and may start at any moment.
    Waiting,
    /// It runs, or is about to end.
    Running,
    /// It ended without having begun.
    NeverBegan,
    /// It ended.
    Ended {
        /// Whether it ended well: neither failed nor ran out of time nor was cancelled.
        well: bool,
    },
}

impl JobState {
    /// Reads the line; none where it has no state.
    #[must_use]
    pub fn read(line: &str) -> Option<Self> {
        let state = value(line, "JobState")?;
        // A state may have more behind a `+`.
        let state = state.split('+').next().unwrap_or(state);
        Some(match state {
            "COMPLETED" => Self::Ended { well: true },
            "PENDING" if is_held(line) => Self::Held,
            "PENDING" => Self::Waiting,
            "CONFIGURING" | "RUNNING" | "SUSPENDED" | "COMPLETING" | "STAGE_OUT" | "REQUEUED"
            | "REQUEUE_HOLD" | "REQUEUE_FED" | "RESIZING" | "SIGNALING" | "SPECIAL_EXIT"
            | "STOPPED" | "RESV_DEL_HOLD" => Self::Running,
            _ if value(line, "NodeList")
                .is_none_or(|nodes| nodes == "(null)" || nodes.is_empty()) =>
            {
                Self::NeverBegan
            }
            _ => Self::Ended { well: false },
        })
    }
}

/// Whether its user holds it: what an administrator holds is theirs to release.
fn is_held(line: &str) -> bool {
    value(line, "Priority") == Some("0") && value(line, "Reason") == Some("JobHeldUser")
}

/// The value of a word `KEY=VALUE` of the line.
fn value<'l>(line: &'l str, key: &str) -> Option<&'l str> {
    let mut words = line.split_ascii_whitespace();
    words.find_map(|word| word.strip_prefix(key)?.strip_prefix('='))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_tells_how_a_job_stands() {
        let held = "JobId=7 JobName=a Priority=0 JobState=PENDING Reason=JobHeldUser Dependency=(null) NodeList=";
        for (line, state) in [
            (held.to_owned(), JobState::Held),
            (
                held.replace("JobHeldUser", "JobHeldAdmin"),
                JobState::Waiting,
            ),
            (held.replace("Priority=0", "Priority=9"), JobState::Waiting),
            (held.replace("PENDING", "CANCELLED"), JobState::NeverBegan),
            (
                "JobState=COMPLETING Reason=None NodeList=n1".into(),
                JobState::Running,
            ),
            (
                "JobState=COMPLETED Reason=None NodeList=n1".into(),
                JobState::Ended { well: true },
            ),
            (
                "JobState=TIMEOUT Reason=TimeLimit NodeList=n1".into(),
                JobState::Ended { well: false },
            ),
            (
                "JobState=CANCELLED+ Reason=None NodeList=n1".into(),
                JobState::Ended { well: false },
            ),
        ] {
            assert_eq!(JobState::read(&line), Some(state), "{line}");
        }
        assert_eq!(JobState::read("slurm_load_jobs error"), None);
    }
}
