//! What Slurm is asked, with the rights of the user whose jobs they are: the service's own.

use std::{collections::BTreeMap, time::Duration};

use posthaste_batch::slurm::{self, JobState};
use posthaste_endpoint::{Result, Status};

use crate::program;

/// Slurm's commands wait long for a controller that is away: it is asked again later.
const ANSWERS_WITHIN: Duration = Duration::from_secs(30);
/// What our comment on a job begins with. It must not say `posthaste:`, which asks for data.
const MARK: &str = "its data is not here";
/// Letters of a comment of ours.
const COMMENT_MAX: usize = 240;
/// What changes whom Slurm's commands ask, or what `squeue` lists.
const VARIABLES: [&str; 8] = [
    "SLURM_CLUSTERS",
    "SQUEUE_ACCOUNT",
    "SQUEUE_LICENSES",
    "SQUEUE_NAMES",
    "SQUEUE_PARTITION",
    "SQUEUE_QOS",
    "SQUEUE_STATES",
    "SQUEUE_USERS",
];

/// Whose jobs are asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Whose {
    /// Those of the user as whom the service runs.
    OfService,
    /// All that this user sees.
    Everybody,
}

/// How each job stands that Slurm knows.
///
/// # Errors
/// That Slurm does not answer, or that its commands are not here.
pub(super) async fn states(whose: Whose) -> Result<BTreeMap<u64, JobState>> {
    let format = format!("--format={}", slurm::STATES_FORMAT);
    let mut words = vec!["--noheader", "--states=all", &format];
    if whose == Whose::OfService {
        words.push("--me");
    }
    Ok(slurm::job_states(&run("squeue", &words).await?))
}

/// Lets a held job start.
///
/// # Errors
/// What Slurm says against it, and that it does not answer.
pub(super) async fn release(job: &str) -> Result<()> {
    run("scontrol", &["release", job]).await.map(|_| ())
}

/// Keeps a job from starting.
///
/// # Errors
/// What Slurm says against it, and that it does not answer.
pub(super) async fn hold(job: &str) -> Result<()> {
    // Of an operator, `hold` would be an administrator's.
    run("scontrol", &["uhold", job]).await.map(|_| ())
}

/// Says in a job's comment why it stays held, where it has no comment of its user's; takes that back without a reason.
///
/// # Errors
/// What Slurm says against it, and that it does not answer.
pub(super) async fn note(job: &str, why: &str) -> Result<()> {
    let before = run("squeue", &["--noheader", "--jobs", job, "--format=%k"]).await?;
    let before = before.trim();
    if !matches!(before, "" | "(null)") && !before.starts_with(MARK) {
        return Ok(());
    }
    let (job, comment) = (format!("JobId={job}"), format!("Comment={}", comment(why)));
    run("scontrol", &["update", &job, &comment])
        .await
        .map(|_| ())
}

/// A comment, on one line.
fn comment(why: &str) -> String {
    if why.is_empty() {
        return String::new();
    }
    let text = format!("{MARK}: {}", why.replace("posthaste:", "posthaste"));
    let letters = text.chars().map(|letter| {
        if posthaste_types::is_obeyed(letter) {
            ' '
        } else {
            letter
        }
    });
    letters.take(COMMENT_MAX).collect()
}

async fn run(program: &'static str, words: &[&str]) -> Result<String> {
    let mut command = tokio::process::Command::new(program);
    command.args(words);
    for variable in VARIABLES {
        command.env_remove(variable);
    }
    let asked = format!("{program} {}", words.join(" "));
    let said = program::said(&mut command, &asked, ANSWERS_WITHIN).await;
    // What Slurm does not take now it may take later.
    let said = said.map_err(|error| error.status_is(Status::Temporary))?;
    Ok(String::from_utf8_lossy(&said).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_comment_is_one_short_line_that_asks_for_nothing() {
        let text = comment("posthaste:stage_in\nline 2");
        assert_eq!(text, "its data is not here: posthastestage_in line 2");
        assert_eq!(comment(&"é".repeat(1000)).chars().count(), COMMENT_MAX);
        assert_eq!(comment(""), "");
    }
}
