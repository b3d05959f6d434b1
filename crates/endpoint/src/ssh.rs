//! Runs `ssh`, and interprets its error messages.
//!
//! `ssh` brings people's whole setup: `ssh_config`, keys, agent, `known_hosts`, `ProxyJump`.

use std::{
    process::Stdio,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncReadExt},
    process::{Child, Command},
    task::{AbortHandle, JoinSet},
    time::timeout,
};

use crate::{Error, ErrorKind, access::resolves, sftp::Host};

/// Longest kept error output of `ssh`, in bytes.
const COMPLAINT_BYTES_MAX: usize = 4 << 10;

/// Longest wait for an error message after the end of the output, in steps of 10 ms.
const LATE_STEPS: u32 = 100;

/// Ciphers that OpenSSH proposes by default: from 6.7 on, and from 9.9 on.
const CIPHERS_USUAL: [&str; 2] = [
    "chacha20-poly1305@openssh.com,aes128-ctr,aes192-ctr,aes256-ctr,aes128-gcm@openssh.com,aes256-gcm@openssh.com",
    "chacha20-poly1305@openssh.com,aes128-gcm@openssh.com,aes256-gcm@openssh.com,aes128-ctr,aes192-ctr,aes256-ctr",
];

/// Longest wait for the configuration of `ssh`, which takes it milliseconds.
const CONFIGURED_WITHIN: Duration = Duration::from_secs(5);

/// Returns the ciphers to propose to `host`: those of `ssh`, the cheapest on this processor first.
/// Returns `None` if they are configured, by whomever, or nothing is known.
pub(crate) async fn ciphers(host: &Host) -> Option<String> {
    if !has_aes() {
        return None;
    }
    let found = timeout(CONFIGURED_WITHIN, configured_ciphers(host)).await;
    aes_first(&found.ok()??)
}

/// Returns whether a host that `ssh` is to reach has an address, as far as can be known: a name
/// that only a host on the way may know passes. Blocking.
pub(crate) fn knows(host: &Host) -> bool {
    let mut command = command(host).into_std();
    command.args(["-G", "--", &host.host]).stdin(Stdio::null());
    let Ok(output) = command.output() else {
        return true;
    };
    let text = String::from_utf8_lossy(&output.stdout);
    let value = |key: &str| {
        let mut values = text.lines().filter_map(|line| line.strip_prefix(key));
        values.next().map(str::trim)
    };
    let leads_on = |value: Option<&str>| value.is_some_and(|value| value != "none");
    leads_on(value("proxycommand "))
        || leads_on(value("proxyjump "))
        || value("hostname ").is_none_or(resolves)
}

/// Which host and port `ssh` would connect to; none where it goes by another host or a program, or nobody knows.
pub(crate) async fn leads_to(host: &Host) -> Option<(String, u16)> {
    let mut command = command(host);
    command.args(["-G", "--", &host.host]).stdin(Stdio::null());
    let output = timeout(CONFIGURED_WITHIN, command.output())
        .await
        .ok()?
        .ok()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let value = |key: &str| {
        let mut values = text.lines().filter_map(|line| line.strip_prefix(key));
        values.next().map(str::trim)
    };
    let leads_on = |value: Option<&str>| value.is_some_and(|value| value != "none");
    if leads_on(value("proxycommand ")) || leads_on(value("proxyjump ")) {
        return None;
    }
    let name = value("hostname ")?.to_owned();
    Some((name, value("port ")?.parse().ok()?))
}

/// Returns the ciphers that `ssh` would propose to `host`.
async fn configured_ciphers(host: &Host) -> Option<String> {
    let mut command = command(host);
    command.args(["-G", "--", &host.host]).stdin(Stdio::null());
    let output = command.output().await.ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    let mut lines = text.lines();
    let ciphers = lines.find_map(|line| line.strip_prefix("ciphers "))?;
    Some(ciphers.trim().to_owned())
}

/// Puts AES in Galois/Counter mode first, if nobody chose another order.
fn aes_first(ciphers: &str) -> Option<String> {
    if !CIPHERS_USUAL.contains(&ciphers) {
        return None;
    }
    let (first, rest): (Vec<_>, Vec<_>) = ciphers
        .split(',')
        .partition(|name| name.ends_with("-gcm@openssh.com"));
    Some([first, rest].concat().join(","))
}

/// Returns whether the processor has instructions for AES: without them `ChaCha20` costs less.
fn has_aes() -> bool {
    #[cfg(target_arch = "x86_64")]
    {
        std::arch::is_x86_feature_detected!("aes")
            && std::arch::is_x86_feature_detected!("pclmulqdq")
    }
    #[cfg(target_arch = "aarch64")]
    {
        std::arch::is_aarch64_feature_detected!("aes")
            && std::arch::is_aarch64_feature_detected!("pmull")
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    {
        false
    }
}

/// Returns `ssh` with the options for `host`, without the login and the command. It never asks for
/// a password, and ends with its owner.
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

/// A running `ssh`. Dropping it ends the process and waits for it: nothing of it remains, and its
/// output is discarded.
pub(crate) struct Running(pub Child);

/// Longest wait for a killed process, in steps of a millisecond: the system needs a few, a busy one
/// many.
const END_STEPS: u32 = 5_000;

impl Drop for Running {
    fn drop(&mut self) {
        // A process that ended by itself can't be killed.
        let _ = self.0.start_kill();
        for _ in 0..END_STEPS {
            match self.0.try_wait() {
                Ok(None) => std::thread::sleep(Duration::from_millis(1)),
                Ok(Some(_)) | Err(_) => return,
            }
        }
    }
}

/// Standard error of `ssh`, or of what it runs.
pub(crate) struct Complaints {
    text: Arc<Mutex<String>>,
    collecting: AbortHandle,
}

impl Complaints {
    /// Collects the output as it comes.
    pub(crate) fn collect(
        from: impl AsyncRead + Unpin + Send + 'static,
        running: &mut JoinSet<()>,
    ) -> Self {
        let text = Arc::new(Mutex::new(String::new()));
        let collecting = running.spawn(collect(from, Arc::clone(&text)));
        Self { text, collecting }
    }

    /// Returns the whole text, once the output has ended.
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

/// Returns the error that `ssh`'s last words mean.
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

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn aes_comes_first_only_where_nobody_chose_an_order() {
        for usual in CIPHERS_USUAL {
            let proposed = aes_first(usual).unwrap();
            let (gcm, rest) =
                proposed.split_at("aes128-gcm@openssh.com,aes256-gcm@openssh.com".len());
            assert_eq!(gcm, "aes128-gcm@openssh.com,aes256-gcm@openssh.com");
            assert!(
                rest.starts_with(",chacha20-poly1305@openssh.com,"),
                "{rest}"
            );
            let sorted = |list: &str| {
                let mut names: Vec<String> = list.split(',').map(str::to_owned).collect();
                names.sort();
                names
            };
            assert_eq!(
                sorted(&proposed),
                sorted(usual),
                "nothing is added or left out"
            );
        }
        for chosen in [
            "",
            "chacha20-poly1305@openssh.com",
            "chacha20-poly1305@openssh.com,aes128-gcm@openssh.com",
            "aes256-gcm@openssh.com,chacha20-poly1305@openssh.com,aes256-ctr",
        ] {
            assert_eq!(aes_first(chosen), None, "{chosen}");
        }
    }

    #[tokio::test]
    async fn ssh_tells_what_it_is_configured_to_propose() {
        let host = Host {
            user: None,
            host: "127.0.0.1".to_owned(),
            port: None,
            options: vec!["Ciphers=aes256-ctr,aes128-ctr".to_owned()],
        };
        let found = configured_ciphers(&host).await;
        assert_eq!(found.as_deref(), Some("aes256-ctr,aes128-ctr"));
        assert_eq!(ciphers(&host).await, None);
    }

    #[tokio::test]
    async fn nothing_is_left_of_one_that_is_dropped() {
        let mut command = Command::new("sleep");
        let running = Running(command.arg("600").kill_on_drop(true).spawn().unwrap());
        let place = format!("/proc/{}", running.0.id().unwrap());
        assert!(Path::new(&place).exists());
        drop(running);
        assert!(!Path::new(&place).exists(), "it is still there");
    }
}
