//! How `ssh` is run, and what its complaints mean.
//!
//! `ssh` brings everything people have set up: `ssh_config`, keys, agent, `known_hosts`,
//! `ProxyJump`.

use std::{
    process::Stdio,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncReadExt},
    process::Command,
    task::{AbortHandle, JoinSet},
};

use crate::{Error, ErrorKind, sftp::Host};

/// How much of what `ssh` complains about is kept, in bytes.
const COMPLAINT_BYTES_MAX: usize = 4 << 10;

/// How long a complaint may come after the end of the output, in steps of 10 ms.
const LATE_STEPS: u32 = 100;

/// `ssh` with the options for `host`, all but where to log in and what to do there. It never asks
/// for a password, and ends with its owner.
pub(crate) fn command(host: &Host) -> Command {
    let mut command = Command::new("ssh");
    command.args([
        "-x",
        "-a",
        "-T",
        "-o",
        "BatchMode=yes",
        "-o",
        "ConnectTimeout=20",
    ]);
    for option in &host.options {
        command.args(["-o", option]);
    }
    if let Some(port) = host.port {
        command.args(["-p", &port.to_string()]);
    }
    if let Some(user) = &host.user {
        command.args(["-l", user]);
    }
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    command
}

/// What `ssh`, or what it runs, writes to standard error.
pub(crate) struct Complaints {
    text: Arc<Mutex<String>>,
    collecting: AbortHandle,
}

impl Complaints {
    /// Collects them as they come.
    pub(crate) fn collect(
        from: impl AsyncRead + Unpin + Send + 'static,
        running: &mut JoinSet<()>,
    ) -> Self {
        let text = Arc::new(Mutex::new(String::new()));
        let collecting = running.spawn(collect(from, Arc::clone(&text)));
        Self { text, collecting }
    }

    /// All of them, where the output has ended.
    pub(crate) async fn all(&self) -> String {
        for _ in 0..LATE_STEPS {
            if self.collecting.is_finished() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let text = self.text.lock().unwrap_or_else(PoisonError::into_inner);
        text.clone()
    }
}

async fn collect(mut complaints: impl AsyncRead + Unpin, text: Arc<Mutex<String>>) {
    let mut block = [0; 512];
    while let Ok(len) = complaints.read(&mut block).await {
        if len == 0 {
            return;
        }
        let mut text = text.lock().unwrap_or_else(PoisonError::into_inner);
        if text.len() < COMPLAINT_BYTES_MAX {
            text.push_str(&String::from_utf8_lossy(&block[..len]));
        }
    }
}

/// The error that `ssh`'s last words mean.
pub(crate) fn refused(fail: &impl Fn(ErrorKind) -> Error, complaint: &str) -> Error {
    let mut lines = complaint
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty());
    let last = lines
        .next_back()
        .unwrap_or("ssh ended without a word")
        .to_owned();
    let says = |text: &str| complaint.contains(text);
    let (kind, hint) = if says("Host key verification failed") {
        (
            ErrorKind::Unauthenticated,
            "compare the host's key and add it to known_hosts with ssh once",
        )
    } else if says("Permission denied") || says("Too many authentication failures") {
        (
            ErrorKind::Unauthenticated,
            "check user and key; ssh must log in without a password",
        )
    } else if says("Bad configuration option") || says("no argument after keyword") {
        (ErrorKind::Invalid, "see man ssh_config")
    } else {
        (ErrorKind::Unreachable, "check host, port and network")
    };
    fail(kind).cause(last).hint(hint)
}
