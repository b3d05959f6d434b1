//! Runs programs with bounded time and output.

use std::{process::Stdio, time::Duration};

use posthaste_endpoint::{Error, ErrorKind, Result};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWriteExt},
    process::Command,
};

/// Largest answer: some hundred bytes for each of 200,000 jobs.
const ANSWER_BYTES_MAX: u64 = 32 << 20;
/// Longest error output of a program that is read; its first line is shown.
const COMPLAINT_BYTES_MAX: u64 = 4096;

/// Returns the output of a program; `asked` names it in errors. It is killed if it takes longer
/// than `patience`.
///
/// # Errors
/// [`ErrorKind::TimedOut`] without an answer in time, the message of a program that failed, and the
/// operating system's.
pub(crate) async fn said(
    command: &mut Command,
    asked: &str,
    patience: Duration,
) -> Result<Vec<u8>> {
    told(command, asked, Vec::new(), patience).await
}

/// Returns the output of a program that may read `input` from its standard input.
///
/// # Errors
/// Errors of [`said`].
pub(crate) async fn told(
    command: &mut Command,
    asked: &str,
    input: Vec<u8>,
    patience: Duration,
) -> Result<Vec<u8>> {
    let started = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn();
    let mut child = started
        .map_err(|cause| Error::io("start", asked, cause).hint("is it installed, and in PATH?"))?;
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let stdin = child.stdin.take();
    let all = async {
        let write = async move {
            if let Some(mut stdin) = stdin {
                // The program may ignore the rest.
                let _ = stdin.write_all(&input).await;
            }
            Ok(())
        };
        let (answer, complaint, ()) = tokio::try_join!(
            read(stdout, ANSWER_BYTES_MAX + 1),
            read(stderr, COMPLAINT_BYTES_MAX),
            write
        )?;
        Ok::<_, std::io::Error>((child.wait().await?, answer, complaint))
    };
    let timed = tokio::time::timeout(patience, all).await;
    let late = |_| {
        let cause = format!("no answer in {} s", patience.as_secs());
        Error::new(ErrorKind::TimedOut, "ask", asked).cause(cause)
    };
    let (status, answer, complaint) = timed
        .map_err(late)?
        .map_err(|cause| Error::io("ask", asked, cause))?;
    if answer.len() as u64 > ANSWER_BYTES_MAX {
        return Err(refused(asked, "its answer is longer than 32 MiB"));
    }
    if status.success() {
        return Ok(answer);
    }
    let complaint = String::from_utf8_lossy(&complaint);
    let line = complaint
        .lines()
        .map(str::trim)
        .find(|line| !line.is_empty());
    let why = line.map_or_else(|| status.to_string(), ToOwned::to_owned);
    Err(refused(asked, &why))
}

/// Reads this many bytes at most, then closes the pipe.
async fn read(from: Option<impl AsyncRead + Unpin>, most: u64) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    if let Some(from) = from {
        from.take(most).read_to_end(&mut bytes).await?;
    }
    Ok(bytes)
}

/// Returns the error for an unusable answer.
pub(crate) fn refused(asked: &str, why: &str) -> Error {
    Error::new(ErrorKind::Other, "ask", asked)
        .cause(why.to_owned())
        .hint("does it work for the user as whom the service runs?")
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn shell(script: &str) -> Result<Vec<u8>> {
        let mut command = Command::new("sh");
        command.args(["-c", script]).env("HELLO", "there");
        said(&mut command, "sh", Duration::from_secs(300)).await
    }

    #[tokio::test]
    async fn what_a_program_prints_is_taken_and_what_it_complains_of_is_told() {
        assert_eq!(shell("echo $HELLO").await.unwrap(), b"there\n");
        let complaint = "echo some; echo >&2; echo 'no controller' >&2; exit 1";
        let error = shell(complaint).await.unwrap_err();
        let told =
            "can't ask sh: no controller (does it work for the user as whom the service runs?)";
        assert_eq!(error.to_string(), told);
        let error = shell("yes").await.unwrap_err();
        assert!(error.to_string().contains("longer than 32 MiB"), "{error}");
        let mut away = Command::new("no-such-program");
        let error = said(&mut away, "no-such-program", Duration::from_secs(300)).await;
        let error = error.unwrap_err().to_string();
        assert!(error.contains("in PATH"), "{error}");
    }

    #[tokio::test]
    async fn a_program_is_told_something_whether_it_listens_or_not() {
        let mut reads = Command::new("cat");
        let told_it = told(
            &mut reads,
            "cat",
            b"hello".to_vec(),
            Duration::from_secs(300),
        );
        assert_eq!(told_it.await.unwrap(), b"hello");
        let much = vec![0; 1 << 20];
        let mut ignores = Command::new("true");
        told(&mut ignores, "true", much, Duration::from_secs(300))
            .await
            .unwrap();
    }

    #[tokio::test]
    async fn a_program_that_hangs_is_given_up() {
        let mut hangs = Command::new("sleep");
        let hung = said(hangs.arg("600"), "sleep", Duration::from_millis(50)).await;
        assert_eq!(hung.unwrap_err().kind(), ErrorKind::TimedOut);
    }
}
