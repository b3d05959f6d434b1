//! Register of laboratories: a folder for each under `/run/posthaste-lab`, locked by its process.
//! An unlocked folder is left from a killed process.

use std::{
    fs::{self, File, TryLockError},
    net::{Ipv4Addr, Ipv6Addr},
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

use crate::namespace;

/// Folder of the register.
const FOLDER: &str = "/run/posthaste-lab";

/// Prefix of each namespace's name.
pub const NAMESPACE_PREFIX: &str = "posthaste-lab.";

/// Kind of process that keeps a laboratory up.
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
    /// Name.
    pub name: String,
    /// Its network namespace, as `ip netns` knows it.
    pub namespace: String,
    /// Its IPv4 address for the others.
    pub address: Ipv4Addr,
    /// Its IPv6 address for the others, if the kernel has IPv6.
    pub address6: Option<Ipv6Addr>,
}

/// A laboratory that is up, or was.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
pub struct Record {
    /// Name.
    pub name: String,
    /// The process that keeps it up.
    pub pid: u32,
    /// Kind of that process.
    pub keeper: Keeper,
    /// Its hosts, in the order of the topology.
    pub hosts: Vec<HostRecord>,
}

impl Record {
    /// Returns its folder.
    pub fn folder(&self) -> PathBuf {
        folder_of(&self.name)
    }

    /// Returns the file that replaces `/etc/hosts`.
    pub fn hosts_file(&self) -> PathBuf {
        self.folder().join("hosts")
    }

    /// Returns the socket for requests.
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
    /// Claims the name of the record and writes the record. Remains of a killed process are removed
    /// first.
    ///
    /// # Errors
    /// Fails if a laboratory of that name is up, or the folder can't be made.
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
        // A check for a holder of the lock holds it itself for a moment.
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
        // The next sweep removes whatever can't be removed now.
        let _alone = alone();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Lists all laboratories that are up, by name.
pub fn running() -> Vec<Record> {
    let all = folders().into_iter().filter(|folder| !is_left(folder));
    let mut records: Vec<Record> = all.filter_map(|folder| read(&folder)).collect();
    records.sort_by(|one, other| one.name.cmp(&other.name));
    records
}

/// Returns whether this laboratory is still up.
pub fn is_up(record: &Record) -> bool {
    let folder = record.folder();
    folder.exists() && !is_left(&folder)
}

/// Removes the remains of killed processes and returns their names.
///
/// # Errors
/// Fails if something can't be removed.
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
        // The names of namespaces contain the laboratory's even if the record was never written.
        namespace::remove(&namespace::beginning_with(&format!(
            "{NAMESPACE_PREFIX}{name}."
        )))?;
        fs::remove_dir_all(&folder)
            .with_context(|| format!("can't remove {}", folder.display()))?;
        swept.push(name);
    }
    Ok(swept)
}

/// Takes the lock for every claim and sweep.
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

/// Returns whether nobody holds this folder.
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

/// Returns the text that every host reads as `/etc/hosts`. A name means IPv4; with `-6` behind it,
/// IPv6: so programs that use the first address all use the same one.
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
