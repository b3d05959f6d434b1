//! What Slurm is asked, with the rights of the user whose jobs they are: the service's own.

use std::{collections::BTreeMap, time::Duration};

use posthaste_batch::slurm::{self, JobState};
use posthaste_endpoint::{Error, ErrorKind, Result, Status};

/// Slurm's commands wait long for a controller that is away: it is asked again later.
const ANSWERS_WITHIN: Duration = Duration::from_secs(30);
/// What changes what `squeue` lists.
const SQUEUE_VARIABLES: [&str; 7] = [
    "SQUEUE_ACCOUNT",
    "SQUEUE_LICENSES",
    "SQUEUE_NAMES",
    "SQUEUE_PARTITION",
    "SQUEUE_QOS",
    "SQUEUE_STATES",
    "SQUEUE_USERS",
];

/// How each job of the user stands that Slurm knows.
///
/// # Errors
/// That Slurm does not answer, or that its commands are not here.
pub(super) async fn states() -> Result<BTreeMap<u64, JobState>> {
    let format = format!("--format={}", slurm::STATES_FORMAT);
    let words = ["--noheader", "--me", "--states=all", &format];
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

async fn run(program: &'static str, words: &[&str]) -> Result<String> {
    let mut command = tokio::process::Command::new(program);
    command.args(words).kill_on_drop(true);
    for variable in SQUEUE_VARIABLES {
        command.env_remove(variable);
    }
    let failed = |why: String| {
        let asked = format!("{program} {}", words.join(" "));
        Error::new(ErrorKind::Other, "run", asked).cause(why)
    };
    let Ok(output) = tokio::time::timeout(ANSWERS_WITHIN, command.output()).await else {
        return Err(failed(format!("no answer in {ANSWERS_WITHIN:?}")).status_is(Status::Temporary));
    };
    let output = output.map_err(|cause| {
        Error::io("run", program, cause).hint("the service needs Slurm's commands in its PATH")
    })?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(failed(said.trim().replace('\n', "; ")).status_is(Status::Temporary))
}
