//! Asks Slurm with the rights of the jobs' user, which is the service's own.

use std::{collections::BTreeMap, time::Duration};

use posthaste_batch::slurm::{self, JobState};
use posthaste_endpoint::{Result, Status};

use crate::program;

/// Longest wait for Slurm's commands, which wait long for an absent controller: it is asked again
/// later.
const ANSWERS_WITHIN: Duration = Duration::from_secs(30);
/// Beginning of our comment on a job. It must not contain `posthaste:`, which requests data.
const MARK: &str = "its data is not here";
/// Longest comment of ours, in letters.
const COMMENT_MAX: usize = 240;
/// Variables that change which Slurm the commands ask, or what `squeue` lists.
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

/// Owner of the jobs that are asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Whose {
    /// Jobs of the user that the service runs as.
    OfService,
    /// All jobs that this user sees.
    Everybody,
}

/// Returns the state of each job that Slurm knows.
///
/// # Errors
/// Fails if Slurm does not answer, or its commands are not installed.
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
/// Slurm's objection, and that Slurm does not answer.
pub(super) async fn release(job: &str) -> Result<()> {
    run("scontrol", &["release", job]).await.map(|_| ())
}

/// Keeps a job from starting.
///
/// # Errors
/// Slurm's objection, and that Slurm does not answer.
pub(super) async fn hold(job: &str) -> Result<()> {
    // For an operator, `hold` would be an administrator's hold.
    run("scontrol", &["uhold", job]).await.map(|_| ())
}

/// Writes into a job's comment why it stays held, unless its user set a comment. Removes that
/// comment if no reason is given.
///
/// # Errors
/// Slurm's objection, and that Slurm does not answer.
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

/// Returns a comment, on one line.
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
    // Slurm may accept later what it rejects now.
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
