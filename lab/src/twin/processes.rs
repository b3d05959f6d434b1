//! Real posthaste processes on the hosts of a laboratory.

use std::{
    fs::{File, OpenOptions},
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::plan::CENTRE;
use crate::Lab;

/// A process that ends with its owner.
#[derive(Debug)]
struct Process {
    child: Child,
    ready: Value,
}

impl Process {
    /// Starts it, and waits for the line that reports that it listens.
    fn start(mut command: Command, log: &Path) -> Result<Self> {
        let log = OpenOptions::new().create(true).append(true).open(log)?;
        let shown = format!("{:?}", command.get_program());
        let child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn();
        let mut child = child.with_context(|| format!("start {shown}"))?;
        let mut line = String::new();
        if let Some(out) = child.stdout.take() {
            BufReader::new(out).read_line(&mut line)?;
        }
        let mut process = Self {
            child,
            ready: Value::Null,
        };
        process.ready = serde_json::from_str(&line)
            .with_context(|| format!("{shown} did not start: {line}"))?;
        Ok(process)
    }

    fn word(&self, name: &str) -> Result<&str> {
        let word = self.ready[name].as_str();
        word.with_context(|| format!("it did not say its {name}"))
    }

    fn kill(&mut self) {
        // A process that has ended can't be killed again.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A relay that can be killed and started again in the same place.
#[derive(Debug)]
pub(super) struct Relay {
    name: String,
    folder: PathBuf,
    capacity: String,
    listen: String,
    process: Process,
}

impl Relay {
    /// Starts it on the host of its name.
    ///
    /// # Errors
    /// Fails if it does not start.
    pub(super) fn start(
        lab: &Lab,
        program: &Path,
        home: &Path,
        name: &str,
        capacity: &str,
    ) -> Result<Self> {
        let folder = home.join(name);
        let listen = format!("{}:0", lab.address(name));
        let process = start_relay(lab, program, &folder, name, capacity, &listen)?;
        let listen = process
            .word("url")?
            .trim_start_matches("https://")
            .to_owned();
        Ok(Self {
            name: name.to_owned(),
            folder,
            capacity: capacity.to_owned(),
            listen,
            process,
        })
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Kills it with SIGKILL.
    pub(super) fn kill(&mut self) {
        self.process.kill();
    }

    /// Starts it again, with its old content.
    ///
    /// # Errors
    /// Fails if it does not start.
    pub(super) fn restart(&mut self, lab: &Lab, program: &Path) -> Result<()> {
        let (name, capacity) = (&self.name, &self.capacity);
        self.process = start_relay(lab, program, &self.folder, name, capacity, &self.listen)?;
        Ok(())
    }

    /// Returns the words that register it with a service.
    ///
    /// # Errors
    /// Fails if it did not report its identity.
    pub(super) fn introduction(&self) -> Result<Vec<String>> {
        let process = &self.process;
        let words = [
            "depot",
            "add",
            &self.name,
            process.word("url")?,
            "--fingerprint",
            process.word("fingerprint")?,
            "--secret-file",
            process.word("secret_file")?,
        ];
        Ok(words.map(str::to_owned).to_vec())
    }

    /// Returns the bytes of fragments on its disk.
    ///
    /// # Errors
    /// Fails if they can't be counted.
    pub(super) fn held(&self) -> Result<u64> {
        bytes_below(&self.folder.join("datasets"))
    }
}

fn start_relay(
    lab: &Lab,
    program: &Path,
    folder: &Path,
    name: &str,
    capacity: &str,
    listen: &str,
) -> Result<Process> {
    let mut command = lab.command(name, program);
    command
        .args(["relay", "--json", "--no-flush", "--until-stdin-closes"])
        .args(["--name", name, "--capacity", capacity, "--listen", listen])
        .arg("--dir")
        .arg(folder);
    Process::start(command, &folder.with_extension("log"))
}

/// Returns the bytes of all fragments below a folder; none when it isn't there.
fn bytes_below(folder: &Path) -> Result<u64> {
    let Ok(entries) = std::fs::read_dir(folder) else {
        return Ok(0);
    };
    let mut bytes = 0;
    for entry in entries {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            bytes += bytes_below(&entry.path())?;
        } else if is_fragment(&entry.file_name()) {
            bytes += entry.metadata()?.len();
        }
    }
    Ok(bytes)
}

/// Returns whether a file of a relay is a fragment: its name begins with a number.
fn is_fragment(name: &std::ffi::OsStr) -> bool {
    name.as_encoded_bytes()
        .first()
        .is_some_and(u8::is_ascii_digit)
}

/// A service that can be killed and started again with the same journal.
#[derive(Debug)]
pub(super) struct Service {
    program: PathBuf,
    state: PathBuf,
    url: String,
    process: Process,
}

impl Service {
    /// Starts it in the centre.
    ///
    /// # Errors
    /// Fails if it does not start.
    pub(super) fn start(lab: &Lab, program: &Path, home: &Path) -> Result<Self> {
        let state = home.join("service");
        let process = start_service(lab, program, &state, "127.0.0.1:0")?;
        Ok(Self {
            program: program.to_owned(),
            url: process.word("url")?.to_owned(),
            state,
            process,
        })
    }

    /// Kills it with SIGKILL.
    pub(super) fn kill(&mut self) {
        self.process.kill();
    }

    /// Starts it again.
    ///
    /// # Errors
    /// Fails if it does not start.
    pub(super) fn restart(&mut self, lab: &Lab) -> Result<()> {
        let listen = self.url.trim_start_matches("http://");
        self.process = start_service(lab, &self.program, &self.state, listen)?;
        Ok(())
    }

    /// Runs a client command that must succeed, and returns its output.
    ///
    /// # Errors
    /// Fails if the command fails, with its output.
    pub(super) fn run(&self, lab: &Lab, words: &[String]) -> Result<String> {
        let mut command = lab.command(CENTRE, &self.program);
        command
            .args(words)
            .args(["--service", &self.url, "--token-file"])
            .arg(self.state.join("token"));
        let output = command.stdin(Stdio::null()).output()?;
        ensure!(
            output.status.success(),
            "posthaste {}: {}",
            words.join(" "),
            String::from_utf8_lossy(&output.stderr)
        );
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Runs a client command that prints JSON.
    ///
    /// # Errors
    /// Fails if it fails or prints something else.
    pub(super) fn json(&self, lab: &Lab, words: &[&str]) -> Result<Value> {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        let said = self.run(lab, &words)?;
        serde_json::from_str(&said).with_context(|| format!("{words:?} printed {said}"))
    }

    /// Returns its log so far.
    pub(super) fn log(&self) -> String {
        std::fs::read_to_string(self.state.with_extension("log")).unwrap_or_default()
    }
}

fn start_service(lab: &Lab, program: &Path, state: &Path, listen: &str) -> Result<Process> {
    let mut command = lab.command(CENTRE, program);
    command
        .args([
            "serve",
            "--json",
            "--until-stdin-closes",
            "--listen",
            listen,
        ])
        .arg("--state")
        .arg(state);
    Process::start(command, &state.with_extension("log"))
}

/// Writes a file of this many mebibytes that nothing compresses: the xorshift64 generator
/// (Marsaglia, "Xorshift RNGs", 2003), from a seed of its own.
///
/// # Errors
/// Fails if the disk refuses.
pub(super) fn write_noise(path: &Path, mebibytes: u64, seed: u64) -> Result<()> {
    use std::io::Write;
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut block = vec![0; 1 << 20];
    let mut file = File::create(path)?;
    for _ in 0..mebibytes {
        for eight in block.chunks_exact_mut(8) {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            eight.copy_from_slice(&state.to_le_bytes());
        }
        file.write_all(&block)?;
    }
    Ok(())
}
