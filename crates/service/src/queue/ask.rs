//! Asks a batch system: one program at a time, or slurmrestd.

use std::time::Duration;

use jiff::tz::TimeZone;
use posthaste_batch::{
    pbs,
    queue::{Call, Queue},
    slurm,
};
use posthaste_endpoint::{Error, Result};
use tokio::process::Command;

use super::{Asked, Scheduler};
use crate::program;

/// Longest wait for a queue: Slurm's own programs give up on an absent controller before.
const QUEUE_TIMEOUT: Duration = Duration::from_secs(20);
/// Longest wait for weeks of jobs, once: the database of a large centre is slow.
const HISTORY_TIMEOUT: Duration = Duration::from_secs(120);

/// Returns the current queue, and the usable processors.
///
/// # Errors
/// Errors of [`program::said`] after 20 s: messages of failed programs, and the operating system's;
/// those of slurmrestd.
pub(super) async fn queue(asked: &Asked) -> Result<(Queue, u32)> {
    match asked {
        Asked::Slurmrestd(slurmrestd) => slurmrestd.queue().await,
        Asked::Programs(Scheduler::Slurm) => {
            let queue = said(slurm::QUEUE, QUEUE_TIMEOUT).await?;
            let procs = said(slurm::PROCESSORS, QUEUE_TIMEOUT).await?;
            let procs = slurm::processors(&procs)
                .map_err(|cause| refused(slurm::PROCESSORS, &cause.to_string()))?;
            let read = || slurm::queue_text(&queue, &TimeZone::system());
            Ok((tokio::task::block_in_place(read), procs))
        }
        Asked::Programs(Scheduler::Pbs) => {
            let procs = said(pbs::PROCESSORS, QUEUE_TIMEOUT).await?;
            let procs = pbs::processors(&procs)
                .map_err(|cause| refused(pbs::PROCESSORS, &cause.to_string()))?;
            let queue = said_of_pbs([pbs::QUEUE, pbs::QUEUE_TEXT], QUEUE_TIMEOUT).await?;
            Ok((queue, procs))
        }
    }
}

/// Returns the jobs of the last weeks.
///
/// # Errors
/// Errors of [`queue`], after 120 s; and that no accounting exists.
pub(super) async fn history(asked: &Asked) -> Result<Queue> {
    match asked {
        Asked::Slurmrestd(slurmrestd) => slurmrestd.history().await,
        Asked::Programs(Scheduler::Slurm) => {
            let history = said(slurm::HISTORY, HISTORY_TIMEOUT).await?;
            let read = || slurm::history_text(&history, &TimeZone::system());
            tokio::task::block_in_place(read)
                .map_err(|cause| refused(slurm::HISTORY, &cause.to_string()))
        }
        Asked::Programs(Scheduler::Pbs) => {
            said_of_pbs([pbs::HISTORY, pbs::HISTORY_TEXT], HISTORY_TIMEOUT).await
        }
    }
}

/// Returns the queue from `qstat` as JSON, or as text if one job's variables make the JSON
/// unreadable.
async fn said_of_pbs([as_json, as_text]: [Call; 2], patience: Duration) -> Result<Queue> {
    let answer = said(as_json, patience).await?;
    let zone = TimeZone::system();
    let unreadable = match tokio::task::block_in_place(|| pbs::queue(&answer, &zone)) {
        Ok(queue) => return Ok(queue),
        Err(unreadable) => unreadable,
    };
    let answer = said(as_text, patience).await?;
    let queue = tokio::task::block_in_place(|| pbs::queue_text(&answer, &zone));
    if queue == Queue::default() {
        return Err(refused(as_json, &unreadable.to_string()));
    }
    Ok(queue)
}

/// Returns the output of a program within a time.
async fn said(call: Call, patience: Duration) -> Result<Vec<u8>> {
    let (name, value) = call.environment;
    let mut command = Command::new(call.program);
    command.args(call.arguments).env(name, value);
    program::said(&mut command, call.program, patience).await
}

fn refused(call: Call, why: &str) -> Error {
    program::refused(call.program, why)
}
