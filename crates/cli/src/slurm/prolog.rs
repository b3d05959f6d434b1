//! Commands of `plugins/slurm/prolog.sh` and `epilog.sh`, for jobs of `posthaste submit`: the
//! service's last check before a job begins, and the report of its end.

use std::{path::Path, process::Command, process::ExitCode, time::Duration};

use hyper::Method;
use posthaste_api as api;
use posthaste_batch::script::{self, Wanted};

use super::config::SlurmConfig;
use crate::{
    client::ServiceClient,
    failure::{Exit, Failure, Outcome},
};

/// Timeout of a call during which nodes wait. A restarting service answers sooner.
const ANSWERS_WITHIN: Duration = Duration::from_secs(30);
/// Interval between two calls to a service that does not answer.
const ASK_EVERY: Duration = Duration::from_secs(1);

/// Decision whether a job may begin.
enum Start {
    May,
    /// Refused: the job's data is not here.
    MayNot(Failure),
}

/// Refuses to start a job whose data has gone: Slurm requeues it, and the service brings the
/// missing data. If the service can't be asked, only a job that asks for data is refused.
///
/// # Errors
/// Gives the reason for the refusal.
pub async fn prolog(config: &Path, id: &str) -> Outcome {
    match within(may_start(config, id)).await {
        Ok(Start::May) => Ok(ExitCode::SUCCESS),
        Ok(Start::MayNot(why)) => Err(why),
        Err(_) if !asks_for_data(id) => Ok(ExitCode::SUCCESS),
        Err(why) => Err(why.and(&format!(
            " (job {id} asks for data, and nobody can say whether that is here)"
        ))),
    }
}

/// Lets the service check how a job ended. Jobs that the service does not know are ignored.
///
/// # Errors
/// Fails if the service can't be told; it notices the end by itself a moment later.
pub async fn epilog(config: &Path, id: &str) -> Outcome {
    let told = within(async {
        let service = open(config)?;
        until_answered(|| look(&service, id)).await
    });
    match told.await {
        Err(failure) if !failure.is_not_found() => Err(failure),
        Err(_) | Ok(()) => Ok(ExitCode::SUCCESS),
    }
}

async fn within<T>(asked: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let answered = tokio::time::timeout(ANSWERS_WITHIN, asked).await;
    answered.unwrap_or_else(|_| {
        let what = format!("the service gave no answer in {ANSWERS_WITHIN:?}");
        Err(Failure::new(Exit::Temporary, what))
    })
}

fn open(config: &Path) -> Result<ServiceClient, Failure> {
    ServiceClient::open(&SlurmConfig::read(config)?.service())
}

/// Repeats a call while the service does not answer; the caller sets the limit.
async fn until_answered<T, F: Future<Output = Result<T, Failure>>>(
    ask: impl Fn() -> F,
) -> Result<T, Failure> {
    loop {
        match ask().await {
            Err(failure) if failure.may_pass() => tokio::time::sleep(ASK_EVERY).await,
            answered => return answered,
        }
    }
}

async fn look(service: &ServiceClient, id: &str) -> Result<(), Failure> {
    let path = format!("/v1/jobs/slurm/{id}/look");
    service.tell(Method::POST, &path).await
}

async fn may_start(config: &Path, id: &str) -> Result<Start, Failure> {
    let service = open(config)?;
    let path = format!("/v1/jobs/slurm/{id}");
    let job: api::Job = match until_answered(|| service.get(&path)).await {
        Err(failure) if failure.is_not_found() => return Ok(Start::May),
        answered => answered?,
    };
    // Any other hold is somebody else's, or a user released the job without its data.
    let is_released = matches!(job.hold.as_str(), "released" | "kept");
    if !is_released || matches!(job.phase.as_str(), "ended" | "gone") {
        return Ok(Start::May);
    }
    let asked = format!("{path}/stage-in");
    let why = match until_answered(|| service.post::<api::Job>(&asked, &())).await {
        Ok(job) if job.ready => return Ok(Start::May),
        Ok(job) => {
            let why = job.trouble;
            let why = why.unwrap_or_else(|| format!("not all data of job {id} is here"));
            Failure::new(Exit::Temporary, why)
        }
        Err(failure) => failure,
    };
    // The service would notice by itself, a minute later.
    let _ = look(&service, id).await;
    Ok(Start::MayNot(why))
}

/// Returns whether a job's script has directives; a job without a script has none.
fn asks_for_data(id: &str) -> bool {
    let shown = Command::new("scontrol")
        .args(["write", "batch_script", id, "-"])
        .output();
    let shown = shown.ok().filter(|shown| shown.status.success());
    shown.is_some_and(|shown| {
        let wanted = script::read(&String::from_utf8_lossy(&shown.stdout));
        wanted.is_ok_and(|wanted| wanted != Wanted::default())
    })
}
