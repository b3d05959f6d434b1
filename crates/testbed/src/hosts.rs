use std::process::{Command, Output, Stdio};

use anyhow::{Context, Result, bail};

/// Hosts of one test as network namespaces of this machine, joined by cables; gone when dropped.
/// Requires root.
#[derive(Debug)]
pub struct Hosts {
    /// Name that keeps the hosts of one test apart from those of another.
    test: String,
    names: Vec<&'static str>,
}

impl Hosts {
    /// Hosts of these names, each with its loopback, for a test of this name.
    ///
    /// # Errors
    /// Fails if a namespace can't be made.
    pub fn new(test: &str, names: &[&'static str]) -> Result<Self> {
        let mut hosts = Self {
            test: test.to_owned(),
            names: Vec::new(),
        };
        for name in names {
            ip(&format!("netns add {}", hosts.namespace(name)))?;
            hosts.names.push(name);
            ip(&format!("-n {} link set lo up", hosts.namespace(name)))?;
        }
        Ok(hosts)
    }

    /// Returns the host's name on this machine.
    #[must_use]
    pub fn namespace(&self, host: &str) -> String {
        format!("ph-{}-{host}-{}", self.test, std::process::id())
    }

    /// Joins two hosts by a cable: a device on each, up, with these addresses (`10.77.0.1/24`).
    ///
    /// # Errors
    /// Fails if a device can't be made, or does not take an address.
    pub fn join(&self, ends: [(&str, &str, &[&str]); 2]) -> Result<()> {
        let [(one, device, _), (other, peer, _)] = ends;
        let (one, other) = (self.namespace(one), self.namespace(other));
        ip(&format!(
            "link add {device} netns {one} type veth peer name {peer} netns {other}"
        ))?;
        for (host, device, addresses) in ends {
            let host = self.namespace(host);
            for address in addresses {
                // The kernel looks for duplicates of a version 6 address for seconds; there are
                // none.
                let nodad = if address.contains(':') { " nodad" } else { "" };
                ip(&format!("-n {host} addr add {address} dev {device}{nodad}"))?;
            }
            ip(&format!("-n {host} link set {device} up"))?;
        }
        Ok(())
    }

    /// Returns a command on a host, with no input. It keeps its process number when it becomes the
    /// program.
    #[must_use]
    pub fn command(&self, host: &str, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.namespace(host)]);
        command.arg(program).stdin(Stdio::null());
        command
    }

    /// Returns the output of `tc` for a device: its `class`es or `qdisc`s, and the traffic of each.
    ///
    /// # Errors
    /// Fails if there is no such device.
    pub fn traffic(&self, host: &str, what: &str, device: &str) -> Result<String> {
        let output = run(self
            .command(host, "tc")
            .args(["-s", what, "show", "dev", device]))?;
        Ok(String::from_utf8(output.stdout)?)
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        for name in &self.names {
            // No caller is left to learn that it is gone already.
            let _ = ip(&format!("netns del {}", self.namespace(name)));
        }
    }
}

fn ip(arguments: &str) -> Result<Output> {
    run(Command::new("ip").args(arguments.split(' ')))
}

fn run(command: &mut Command) -> Result<Output> {
    let output = command
        .output()
        .with_context(|| format!("can't run {command:?}"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!("{command:?} fails: {said}");
    }
    Ok(output)
}
