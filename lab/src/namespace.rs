//! Network namespaces: created with a name that `ip netns` knows, set up, entered, removed.

use std::{
    fs::{self, File},
    io::Write,
    os::{fd::AsFd, unix::fs::MetadataExt},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::Arc,
    thread,
    time::Duration,
};

use anyhow::{Context, Result, anyhow, bail};
use rustix::{
    process::{Pid, Signal, kill_process},
    thread::{LinkNameSpaceType, move_into_link_name_space},
};

/// Folder of the names of `ip netns`.
const FOLDER: &str = "/run/netns";

/// Interval between two checks whether processes have ended.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Checks until a process that was asked to end is killed: 1 s.
const POLITE_LOOKS_MAX: u32 = 100;

/// Checks until a killed process counts as stuck: a minute, as a busy machine ends a process only
/// when it runs.
const LOOKS_MAX: u32 = 6_000;

/// A namespace with a name.
#[derive(Debug, Clone)]
pub struct Namespace {
    name: String,
    file: Arc<File>,
}

impl Namespace {
    /// Creates it.
    ///
    /// # Errors
    /// Fails if it can't be created, in one line.
    pub fn create(name: &str) -> Result<Self> {
        run(Command::new("ip").args(["netns", "add", name]))?;
        Self::open(name)
    }

    /// Finds it.
    ///
    /// # Errors
    /// Fails if there is none of that name.
    pub fn open(name: &str) -> Result<Self> {
        let path = path_of(name);
        let file = File::open(&path).with_context(|| format!("can't open {}", path.display()))?;
        Ok(Self {
            name: name.to_owned(),
            file: Arc::new(file),
        })
    }

    /// Returns the file to enter it through.
    pub fn file(&self) -> &Arc<File> {
        &self.file
    }

    /// Runs a closure inside, on a thread of its own.
    ///
    /// # Errors
    /// Fails if it can't be entered, or the closure fails.
    pub fn within<T: Send>(&self, run: impl FnOnce() -> Result<T> + Send) -> Result<T> {
        let inside = || {
            move_into_link_name_space(self.file.as_fd(), Some(LinkNameSpaceType::Network))
                .with_context(|| format!("can't enter {}", self.name))?;
            run()
        };
        let ended = thread::scope(|scope| scope.spawn(inside).join());
        ended.unwrap_or_else(|_| Err(anyhow!("a thread inside {} panicked", self.name)))
    }

    /// Writes a kernel setting; call it [within](Self::within).
    ///
    /// # Errors
    /// Fails if there is no such setting, or it rejects the value.
    pub fn write_setting(name: &str, value: &str) -> Result<()> {
        let path = Path::new("/proc/sys").join(name.replace('.', "/"));
        fs::write(&path, value).with_context(|| format!("can't set {name} to \"{value}\""))
    }

    /// Runs lines of `ip` inside.
    ///
    /// # Errors
    /// Fails if one of them fails, with the output of `ip`.
    pub fn ip(&self, lines: &str) -> Result<()> {
        let mut child = Command::new("ip")
            .args(["-n", &self.name, "-batch", "-"])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .context("can't run ip")?;
        if let Some(mut stdin) = child.stdin.take() {
            stdin
                .write_all(lines.as_bytes())
                .context("can't tell ip what to do")?;
        }
        succeeded("ip -batch", &child.wait_with_output()?)
    }
}

/// Ends every process in the namespaces of these names and removes them. Missing ones are fine.
///
/// # Errors
/// Fails if a process does not end, or a namespace can't be removed.
pub fn remove(names: &[String]) -> Result<()> {
    let present: Vec<&String> = names.iter().filter(|name| path_of(name).exists()).collect();
    let places: Vec<(u64, u64)> = present
        .iter()
        .filter_map(|name| place_of(&path_of(name)))
        .collect();
    end_processes(&places)?;
    for name in present {
        run(Command::new("ip").args(["netns", "del", name]))?;
    }
    Ok(())
}

/// Returns the names of all namespaces with this prefix.
pub fn beginning_with(prefix: &str) -> Vec<String> {
    let Ok(entries) = fs::read_dir(FOLDER) else {
        return Vec::new();
    };
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    names.filter(|name| name.starts_with(prefix)).collect()
}

/// Asks the processes in these namespaces to end, then kills them.
fn end_processes(places: &[(u64, u64)]) -> Result<()> {
    if places.is_empty() {
        return Ok(());
    }
    for look in 0..LOOKS_MAX {
        let left = processes_in(places);
        if left.is_empty() {
            return Ok(());
        }
        let signal = match look {
            0 => Some(Signal::TERM),
            POLITE_LOOKS_MAX.. => Some(Signal::KILL),
            _ => None,
        };
        for process in left {
            if let (Some(signal), Some(pid)) = (signal, Pid::from_raw(process)) {
                // The process may have ended since.
                let _ = kill_process(pid, signal);
            }
        }
        thread::sleep(LOOK_EVERY);
    }
    bail!(
        "processes {:?} in the laboratory do not end",
        processes_in(places)
    )
}

/// Returns the processes in these namespaces, except this one.
fn processes_in(places: &[(u64, u64)]) -> Vec<i32> {
    let Ok(entries) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    let all = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    let others = all.filter(|pid: &i32| u32::try_from(*pid) != Ok(std::process::id()));
    others
        .filter(|pid| {
            place_of(Path::new(&format!("/proc/{pid}/ns/net")))
                .is_some_and(|place| places.contains(&place))
        })
        .collect()
}

/// Returns the identity of a namespace.
fn place_of(path: &Path) -> Option<(u64, u64)> {
    let metadata = fs::metadata(path).ok()?;
    Some((metadata.dev(), metadata.ino()))
}

fn path_of(name: &str) -> PathBuf {
    Path::new(FOLDER).join(name)
}

fn run(command: &mut Command) -> Result<()> {
    let output = command
        .stdin(Stdio::null())
        .output()
        .context("can't run ip: install the package iproute2")?;
    let words: Vec<_> = command
        .get_args()
        .map(|word| word.to_string_lossy())
        .collect();
    succeeded(&format!("ip {}", words.join(" ")), &output)
}

fn succeeded(what: &str, output: &std::process::Output) -> Result<()> {
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    bail!(
        "{what}: {}",
        said.lines().next().unwrap_or("failed without a word")
    )
}
