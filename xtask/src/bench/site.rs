//! A laboratory for a benchmark: built, run and removed through `posthaste-lab`.

use std::{
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use anyhow::{Context, bail, ensure};

use super::stage;
use crate::{root, succeed};

/// A laboratory that is up; it ends with its owner.
#[derive(Debug)]
pub struct Site {
    program: PathBuf,
    name: String,
    keeper: Child,
}

impl Site {
    /// Builds the laboratory of this topology of the project.
    ///
    /// # Errors
    /// Fails if `posthaste-lab` does not compile or the laboratory can't be built.
    pub fn start(topology: &str) -> anyhow::Result<Self> {
        let program = stage::build("posthaste-lab", "posthaste-lab")?;
        let path = root().join(format!("lab/topologies/{topology}.toml"));
        let name = format!("bench-{}", std::process::id());
        let mut keeper = Command::new(&program)
            .arg("up")
            .arg(&path)
            .args(["--name", &name])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("start {}", program.display()))?;
        let mut line = String::new();
        if let Some(out) = keeper.stdout.as_mut() {
            BufReader::new(out).read_line(&mut line)?;
        }
        if line.is_empty() {
            let status = keeper.wait()?;
            bail!(
                "the laboratory of {} did not come up: {status}",
                path.display()
            );
        }
        Ok(Self {
            program,
            name,
            keeper,
        })
    }

    /// Returns the words before a command that make it run on a host.
    pub fn words(&self, host: &str) -> Vec<String> {
        let program = self.program.display().to_string();
        [&program, "exec", "--lab", &self.name, host, "--"]
            .map(str::to_owned)
            .to_vec()
    }

    /// Returns a command that runs on a host.
    pub fn command(&self, host: &str, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let words = self.words(host);
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).arg(program).stdin(Stdio::null());
        command
    }

    /// Changes a link.
    ///
    /// # Errors
    /// Fails if the change is impossible.
    pub fn change(&self, link: &str, words: &[&str]) -> anyhow::Result<()> {
        let mut command = Command::new(&self.program);
        command
            .args(["change", "--lab", &self.name, link])
            .args(words);
        succeed(&mut command)
    }

    /// Returns its state, as JSON.
    ///
    /// # Errors
    /// Fails if it does not answer.
    pub fn status(&self) -> anyhow::Result<String> {
        let mut command = Command::new(&self.program);
        output(command.args(["status", "--json", "--lab", &self.name]))
    }

    /// Returns the process of the emulator.
    pub fn process(&self) -> u32 {
        self.keeper.id()
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        let id = self.keeper.id().to_string();
        let asked = Command::new("kill").args(["-TERM", &id]).status();
        if !asked.is_ok_and(|status| status.success()) {
            // The keeper has ended then, or ends by this; the next one removes its remains.
            let _ = self.keeper.kill();
        }
        let _ = self.keeper.wait();
    }
}

/// Returns the output of a command.
///
/// # Errors
/// Fails if it can't be started or fails.
pub fn output(command: &mut Command) -> anyhow::Result<String> {
    let output = command
        .stderr(Stdio::piped())
        .output()
        .context("start it")?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    ensure!(
        output.status.success(),
        "{}: {}{said}",
        crate::shown(command),
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(said)
}

/// Returns the number behind the last of these keys, each looked for behind the one before it.
/// Enough JSON for reports whose form is known.
///
/// # Errors
/// Fails if it is not there.
pub fn figure(json: &str, keys: &[&str]) -> anyhow::Result<f64> {
    let mut rest = json;
    for key in keys {
        let (_, after) = rest
            .split_once(&format!("\"{key}\":"))
            .with_context(|| format!("there is no {key} in {json}"))?;
        rest = after;
    }
    let rest = rest.trim_start();
    let end = rest.find([',', '}', '\n']).unwrap_or(rest.len());
    rest[..end]
        .trim()
        .parse()
        .with_context(|| format!("{keys:?} is no number"))
}

/// Returns a folder in the machine's memory: `/dev/shm`, where disks do not slow networks down.
pub fn memory() -> &'static Path {
    Path::new("/dev/shm")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_found_behind_their_keys() {
        let json = "{\n \"sent\": {\"bits\": 1.5e3, \"x\": 2},\n \"received\": {\n \"bits\": 7\n}}";
        assert!((figure(json, &["sent", "bits"]).unwrap() - 1500.0).abs() < 1e-9);
        assert!((figure(json, &["received", "bits"]).unwrap() - 7.0).abs() < 1e-9);
        assert!(figure(json, &["lost"]).is_err());
    }
}
