//! Which laboratories there are: a folder for each under `/run/posthaste-lab`, locked by the process
//! it belongs to. A folder that nobody locks is what a killed process left.

use std::{
    fs::{self, File, TryLockError},
    net::{Ipv4Addr, Ipv6Addr},
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

use crate::namespace;

/// Where the folders are.
const FOLDER: &str = "/run/posthaste-lab";

/// How the name of each namespace begins.
pub const NAMESPACE_PREFIX: &str = "posthaste-lab.";

/// Who keeps a laboratory up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Keeper {
    /// `posthaste-lab up`.
    Up,
    /// `posthaste-lab run`.
    Run,
    /// A program that uses the library, such as a test.
    Program,
}

/// A host of a laboratory that is up.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
pub struct HostRecord {
    /// What it is called.
    pub name: String,
    /// Its network namespace, as `ip netns` knows it.
    pub namespace: String,
    /// Where the others reach it.
    pub address: Ipv4Addr,
    /// Where the others reach it, if the kernel has IPv6.
    pub address6: Option<Ipv6Addr>,
}

/// A laboratory that is up, or was.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
pub struct Record {
    /// What it is called.
    pub name: String,
    /// The process that keeps it up.
    pub pid: u32,
    /// What that process is.
    pub keeper: Keeper,
    /// Its hosts, in the order of the topology.
    pub hosts: Vec<HostRecord>,
}

impl Record {
    /// Its folder.
    pub fn folder(&self) -> PathBuf {
        folder_of(&self.name)
    }

    /// The file that stands in for `/etc/hosts`.
    pub fn hosts_file(&self) -> PathBuf {
        self.folder().join("hosts")
    }

    /// Where it takes requests.
    pub fn socket(&self) -> PathBuf {
        self.folder().join("control")
    }
}

/// A laboratory's name, held by this process.
#[derive(Debug)]
pub struct Claim {
    folder: PathBuf,
    _lock: File,
}

impl Claim {
    /// Takes the name of the record and writes it down. What a killed process left is removed first.
    ///
    /// # Errors
    /// When a laboratory of that name is up, or the folder can't be made.
    pub fn take(record: &Record) -> Result<Self> {
        let _alone = alone()?;
        for left in sweep_all()? {
            say(&format!("removed what was left of {left}"));
        }
        let folder = record.folder();
        if let Some(other) = read(&folder) {
            bail!(
                "a laboratory called {} is up already (process {}); give this one another --name",
                other.name,
                other.pid
            );
        }
        fs::create_dir(&folder).with_context(|| format!("can't make {}", folder.display()))?;
        let lock = File::create(folder.join("lock"))?;
        // Whoever looks whether somebody holds it has it for a moment.
        lock.lock().context("can't lock a new laboratory")?;
        let claim = Self {
            folder,
            _lock: lock,
        };
        fs::write(record.hosts_file(), hosts_text(record))?;
        fs::write(
            claim.folder.join("lab.json"),
            serde_json::to_string(record)?,
        )?;
        Ok(claim)
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        // What can't be removed now is swept by the next one.
        let _alone = alone();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// All laboratories that are up, by name.
pub fn running() -> Vec<Record> {
    let all = folders().into_iter().filter(|folder| !is_left(folder));
    let mut records: Vec<Record> = all.filter_map(|folder| read(&folder)).collect();
    records.sort_by(|one, other| one.name.cmp(&other.name));
    records
}

/// Whether this laboratory is still up.
pub fn is_up(record: &Record) -> bool {
    let folder = record.folder();
    folder.exists() && !is_left(&folder)
}

/// Removes what killed processes left. Answers whose it was.
///
/// # Errors
/// When something can't be removed.
pub fn sweep() -> Result<Vec<String>> {
    let _alone = alone()?;
    sweep_all()
}

fn sweep_all() -> Result<Vec<String>> {
    let mut swept = Vec::new();
    for folder in folders() {
        if !is_left(&folder) {
            continue;
        }
        let name = folder
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        // The names of namespaces tell theirs even when the record was never written.
        namespace::remove(&namespace::beginning_with(&format!(
            "{NAMESPACE_PREFIX}{name}."
        )))?;
        fs::remove_dir_all(&folder)
            .with_context(|| format!("can't remove {}", folder.display()))?;
        swept.push(name);
    }
    Ok(swept)
}

/// The lock without which nothing is claimed or swept.
fn alone() -> Result<File> {
    if !rustix::process::geteuid().is_root() {
        bail!("the laboratory makes network namespaces, for which one must be root");
    }
    fs::create_dir_all(FOLDER).with_context(|| format!("can't make {FOLDER}"))?;
    let lock = File::create(Path::new(FOLDER).join(".lock"))?;
    lock.lock().context("can't lock the laboratories")?;
    Ok(lock)
}

fn folders() -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(FOLDER) else {
        return Vec::new();
    };
    let all = entries.filter_map(|entry| Some(entry.ok()?.path()));
    all.filter(|path| path.is_dir()).collect()
}

/// Whether nobody holds this folder.
fn is_left(folder: &Path) -> bool {
    let Ok(lock) = File::open(folder.join("lock")) else {
        return true;
    };
    match lock.try_lock_shared() {
        Ok(()) => true,
        Err(TryLockError::WouldBlock | TryLockError::Error(_)) => false,
    }
}

fn read(folder: &Path) -> Option<Record> {
    let text = fs::read_to_string(folder.join("lab.json")).ok()?;
    serde_json::from_str(&text).ok()
}

fn folder_of(name: &str) -> PathBuf {
    Path::new(FOLDER).join(name)
}

/// What every host reads as `/etc/hosts`. A name means IPv4; with `-6` behind it, IPv6: programs that
/// take the first address they find all take the same.
fn hosts_text(record: &Record) -> String {
    let mut text = "127.0.0.1 localhost\n::1 localhost ip6-localhost ip6-loopback\n".to_owned();
    for host in &record.hosts {
        text.push_str(&format!("{} {}\n", host.address, host.name));
        if let Some(address) = host.address6 {
            text.push_str(&format!("{address} {}-6\n", host.name));
        }
    }
    text
}

fn say(text: &str) {
    eprintln!("posthaste-lab: {text}");
}
