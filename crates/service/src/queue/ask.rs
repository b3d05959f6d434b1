//! Asking a batch system: one program at a time, for a bounded time and answer.

use std::{process::Stdio, time::Duration};

use jiff::tz::TimeZone;
use posthaste_batch::{
    queue::{Call, Queue},
    slurm,
};
use posthaste_endpoint::{Error, ErrorKind, Result};
use tokio::{
    io::{AsyncRead, AsyncReadExt},
    process::Command,
};

use super::Scheduler;

/// Longest that a queue is waited for: a controller that is away is given up by Slurm's own programs before.
const QUEUE_TIMEOUT: Duration = Duration::from_secs(20);
/// Longest that weeks of jobs are waited for, once: the database of a large centre is slow.
const HISTORY_TIMEOUT: Duration = Duration::from_secs(120);
/// Largest answer: some hundred bytes for each of 200,000 jobs.
const ANSWER_BYTES_MAX: u64 = 32 << 20;
/// Most of what a program complains of that is read; its first line is shown.
const COMPLAINT_BYTES_MAX: u64 = 4096;

/// The queue as it is now, and the processors that may be used.
///
/// # Errors
/// [`ErrorKind::TimedOut`] when there is no answer in 20 s, what the programs said when they failed, and the operating system's.
pub(super) async fn queue(scheduler: Scheduler) -> Result<(Queue, u32)> {
    match scheduler {
        Scheduler::Slurm => {
            let queue = said(slurm::QUEUE, QUEUE_TIMEOUT).await?;
            let procs = said(slurm::PROCESSORS, QUEUE_TIMEOUT).await?;
            let procs = slurm::processors(&procs)
                .map_err(|cause| refused(slurm::PROCESSORS, &cause.to_string()))?;
            let read = || slurm::queue_text(&queue, &TimeZone::system());
            Ok((tokio::task::block_in_place(read), procs))
        }
    }
}

/// The jobs of the last weeks.
///
/// # Errors
/// Those of [`queue`], after 120 s; and that no accounts are kept.
pub(super) async fn history(scheduler: Scheduler) -> Result<Queue> {
    match scheduler {
        Scheduler::Slurm => {
            let history = said(slurm::HISTORY, HISTORY_TIMEOUT).await?;
            let read = || slurm::history_text(&history, &TimeZone::system());
            tokio::task::block_in_place(read)
                .map_err(|cause| refused(slurm::HISTORY, &cause.to_string()))
        }
    }
}

/// What a program prints. It is killed when it takes longer than `patience`.
async fn said(call: Call, patience: Duration) -> Result<Vec<u8>> {
    let (name, value) = call.environment;
    let started = Command::new(call.program)
        .args(call.arguments)
        .env(name, value)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn();
    let mut child = started.map_err(|cause| {
        Error::io("start", call.program, cause).hint("is it installed, and in PATH?")
    })?;
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let all = async {
        let (answer, complaint) = tokio::try_join!(
            read(stdout, ANSWER_BYTES_MAX + 1),
            read(stderr, COMPLAINT_BYTES_MAX)
        )?;
        Ok::<_, std::io::Error>((child.wait().await?, answer, complaint))
    };
    let timed = tokio::time::timeout(patience, all).await;
    let late = |_| {
        let cause = format!("no answer in {} s", patience.as_secs());
        Error::new(ErrorKind::TimedOut, "ask", call.program).cause(cause)
    };
    let (status, answer, complaint) = timed
        .map_err(late)?
        .map_err(|cause| Error::io("ask", call.program, cause))?;
    if answer.len() as u64 > ANSWER_BYTES_MAX {
        return Err(refused(call, "its answer is longer than 32 MiB"));
    }
    if status.success() {
        return Ok(answer);
    }
    let complaint = String::from_utf8_lossy(&complaint);
    let line = complaint
        .lines()
        .map(str::trim)
        .find(|line| !line.is_empty());
    let why = line.map_or_else(
        || status.to_string(),
        |line| line.escape_debug().to_string(),
    );
    Err(refused(call, &why))
}

/// Reads so many bytes at most, then lets whoever writes more find nobody there.
async fn read(from: Option<impl AsyncRead + Unpin>, most: u64) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    if let Some(from) = from {
        from.take(most).read_to_end(&mut bytes).await?;
    }
    Ok(bytes)
}

fn refused(call: Call, why: &str) -> Error {
    Error::new(ErrorKind::Other, "ask", call.program)
        .cause(why.to_owned())
        .hint("does it work for the user as whom the service runs?")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(arguments: &'static [&'static str]) -> Call {
        Call {
            program: "sh",
            arguments,
            environment: ("HELLO", "there"),
        }
    }

    #[tokio::test]
    async fn what_a_program_prints_is_taken_and_what_it_complains_of_is_told() {
        let patience = Duration::from_secs(300);
        let answer = said(shell(&["-c", "echo $HELLO"]), patience).await;
        assert_eq!(answer.unwrap(), b"there\n");
        const COMPLAINT: &str = "echo some; echo >&2; echo 'no controller' >&2; exit 1";
        let error = said(shell(&["-c", COMPLAINT]), patience).await.unwrap_err();
        let told =
            "can't ask sh: no controller (does it work for the user as whom the service runs?)";
        assert_eq!(error.to_string(), told);
        let error = said(shell(&["-c", "yes"]), patience).await.unwrap_err();
        assert!(error.to_string().contains("longer than 32 MiB"), "{error}");
        let away = Call {
            program: "no-such-program",
            ..shell(&[])
        };
        let error = said(away, patience).await.unwrap_err();
        assert!(error.to_string().contains("in PATH"), "{error}");
    }

    #[tokio::test]
    async fn a_program_that_hangs_is_given_up() {
        let hangs = Call {
            program: "sleep",
            ..shell(&["600"])
        };
        let hung = said(hangs, Duration::from_millis(50)).await;
        assert_eq!(hung.unwrap_err().kind(), ErrorKind::TimedOut);
    }
}
