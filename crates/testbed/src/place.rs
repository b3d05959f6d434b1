use std::{
    fs,
    net::{IpAddr, Ipv4Addr},
    path::Path,
    process::Command,
    thread,
};

use anyhow::{Result, bail};

use crate::{LOOK_EVERY, LOOKS_MAX, Running, wait_until_listening};

/// The state `LISTEN` in `/proc/PID/net/tcp`.
const LISTENS: &str = "0A";

/// Place of a server: this machine's loopback, or a host of a laboratory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    address: IpAddr,
    /// Words before a command that runs there.
    words: Vec<String>,
}

impl Default for Place {
    fn default() -> Self {
        Self {
            address: Ipv4Addr::LOCALHOST.into(),
            words: Vec::new(),
        }
    }
}

impl Place {
    /// Returns a place with this address, where commands follow these words, such as `posthaste-lab
    /// exec far --`.
    #[must_use]
    pub fn new(address: IpAddr, words: Vec<String>) -> Self {
        Self { address, words }
    }

    /// Address of servers there.
    #[must_use]
    pub fn address(&self) -> IpAddr {
        self.address
    }

    /// Returns a command that runs there.
    #[must_use]
    pub fn command(&self, program: &Path) -> Command {
        let Some((first, rest)) = self.words.split_first() else {
            return Command::new(program);
        };
        let mut command = Command::new(first);
        command.args(rest).arg(program);
        command
    }

    /// Waits for a server that was started there.
    pub(crate) fn wait_until_listening(
        &self,
        running: &mut Running,
        port: u16,
        what: &str,
    ) -> Result<()> {
        if self.words.is_empty() {
            return wait_until_listening(running, port, what);
        }
        for _ in 0..LOOKS_MAX {
            if listens(running.0.id(), port) {
                return Ok(());
            }
            if let Some(status) = running.0.try_wait()? {
                bail!("{what} ended at once: {status}");
            }
            thread::sleep(LOOK_EVERY);
        }
        bail!("{what} does not listen on port {port}")
    }
}

/// Returns whether a socket listens on this port in the network of a process.
fn listens(process: u32, port: u16) -> bool {
    ["tcp", "tcp6"].iter().any(|table| {
        let text = fs::read_to_string(format!("/proc/{process}/net/{table}")).unwrap_or_default();
        text.lines().skip(1).any(|line| {
            let mut fields = line.split_whitespace().skip(1);
            let own = fields.next().and_then(|own| own.rsplit_once(':'));
            let own = own.and_then(|(_, port)| u16::from_str_radix(port, 16).ok());
            own == Some(port) && fields.nth(1) == Some(LISTENS)
        })
    })
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn who_listens_is_seen_in_the_network_of_the_process() {
        let port = crate::free_port().unwrap();
        let listener = TcpListener::bind(("127.0.0.1", port)).unwrap();
        assert!(listens(std::process::id(), port));
        drop(listener);
        assert!(!listens(std::process::id(), port));
    }

    #[test]
    fn commands_follow_the_words_of_their_place() {
        let words = ["env", "--"].map(str::to_owned).to_vec();
        let there = Place::new(Ipv4Addr::LOCALHOST.into(), words);
        let output = there
            .command(Path::new("echo"))
            .arg("here")
            .output()
            .unwrap();
        assert_eq!(output.stdout, b"here\n");
        let here = Place::default()
            .command(Path::new("echo"))
            .output()
            .unwrap();
        assert_eq!(here.stdout, b"\n");
    }
}
