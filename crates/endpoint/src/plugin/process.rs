//! Processes of plug-ins: each started in a process group of its own, and ended with all its
//! children.

use std::{
    collections::VecDeque,
    io,
    os::unix::process::CommandExt,
    process::{Child, Command, Stdio},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use tokio::{
    io::{AsyncRead, AsyncReadExt},
    process::{ChildStderr, ChildStdin, ChildStdout},
};

use super::Launch;

/// Longest kept error output, in bytes.
const COMPLAINT_BYTES_MAX: usize = 4 << 10;

/// Longest time a plug-in may take to end by itself once its input has ended.
const ENDED_WITHIN: Duration = Duration::from_secs(2);

/// Interval between two looks whether the process has ended.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Input and outputs of a plug-in.
pub(super) struct Pipes {
    pub input: ChildStdin,
    pub output: ChildStdout,
    pub complaints: ChildStderr,
}

/// Running plug-in. Dropping it gives it a moment to end by itself, since its input has ended too,
/// and then kills its whole group.
pub(super) struct Process {
    child: Mutex<Option<Child>>,
}

impl Process {
    /// Starts it. Must be called within the runtime.
    pub(super) fn start(launch: &Launch) -> io::Result<(Self, Pipes)> {
        let (program, arguments) = launch
            .command
            .split_first()
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "an empty command"))?;
        // A process group of its own: its children can be ended with it, and Ctrl-C is ours to
        // answer.
        let mut child = Command::new(program)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .spawn()?;
        let (input, output, complaints) =
            (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let process = Self {
            child: Mutex::new(Some(child)),
        };
        let missing = || io::Error::other("it has no pipes");
        let pipes = Pipes {
            input: ChildStdin::from_std(input.ok_or_else(missing)?)?,
            output: ChildStdout::from_std(output.ok_or_else(missing)?)?,
            complaints: ChildStderr::from_std(complaints.ok_or_else(missing)?)?,
        };
        Ok((process, pipes))
    }

    /// Kills it and all its children.
    pub(super) fn kill(&self) {
        let child = self.child.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(child) = child.as_ref() {
            kill_group(child);
        }
    }

    /// Returns how the process ended, if it has.
    pub(super) fn ending(&self) -> Option<String> {
        let child = self.child.lock().unwrap_or_else(PoisonError::into_inner);
        ending_of(child.as_ref()?)
    }
}

/// Returns how a process ended. A process keeps its id until somebody waits for it, so that its
/// group can still be killed and nobody else's is.
fn ending_of(child: &Child) -> Option<String> {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    let status = waitid(WaitId::Pid(Pid::from_child(child)), options).ok()??;
    Some(match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => format!("exit code {code}"),
        (None, Some(signal)) => format!("signal {signal}"),
        (None, None) => "no exit code".to_owned(),
    })
}

fn kill_group(child: &Child) {
    // The whole group may be gone already.
    let _ = kill_process_group(Pid::from_child(child), Signal::KILL);
}

impl Drop for Process {
    fn drop(&mut self) {
        let child = self.child.get_mut().unwrap_or_else(PoisonError::into_inner);
        let Some(child) = child.take() else {
            return;
        };
        // A drop can't wait; the thread's life is bounded by `ENDED_WITHIN`.
        let reaping = thread::Builder::new()
            .name("plug-in end".to_owned())
            .spawn(move || reap(child));
        debug_assert!(reaping.is_ok(), "no thread can be started");
    }
}

fn reap(mut child: Child) {
    let looks = ENDED_WITHIN.as_millis() / LOOK_EVERY.as_millis();
    for _ in 0..looks {
        if ending_of(&child).is_some() {
            break;
        }
        thread::sleep(LOOK_EVERY);
    }
    kill_group(&child);
    // The process was killed: nothing can keep it.
    let _ = child.wait();
}

/// End of a plug-in's standard error.
#[derive(Debug, Clone, Default)]
pub(super) struct Complaints {
    kept: Arc<Mutex<VecDeque<u8>>>,
    is_over: Arc<AtomicBool>,
}

impl Complaints {
    /// Reads to the end, however much comes.
    pub(super) async fn collect(self, mut output: impl AsyncRead + Unpin) {
        let mut block = vec![0; COMPLAINT_BYTES_MAX];
        while let Ok(len) = output.read(&mut block).await {
            if len == 0 {
                break;
            }
            let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
            kept.extend(&block[..len]);
            let surplus = kept.len().saturating_sub(COMPLAINT_BYTES_MAX);
            kept.drain(..surplus);
        }
        self.is_over.store(true, Ordering::Release);
    }

    /// Returns whether everything was read.
    pub(super) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
    }

    /// Returns the last line with text.
    pub(super) fn last_line(&self) -> Option<String> {
        let kept: Vec<u8> = {
            let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
            kept.iter().copied().collect()
        };
        String::from_utf8_lossy(&kept)
            .lines()
            .map(str::trim)
            .rfind(|line| !line.is_empty())
            .map(str::to_owned)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn of_a_flood_of_complaints_the_last_is_kept() {
        let complaints = Complaints::default();
        let flood = [vec![b'x'; 1 << 20], b"\nfirst\nlast words\n\n".to_vec()].concat();
        complaints.clone().collect(&flood[..]).await;
        assert_eq!(complaints.last_line().as_deref(), Some("last words"));
        let kept = complaints.kept.lock().unwrap().len();
        assert!(kept <= COMPLAINT_BYTES_MAX, "{kept} bytes are kept");
    }
}
