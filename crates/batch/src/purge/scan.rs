//! Scans a tree for files that a purge will remove: in parallel, with `statx` alone, without
//! writing to it or reading a file.
//!
//! A [`Cache`] remembers the results. A directory that has not changed since holds the same names.
//! The scan looks again only at those of its files that might be removed within the period, by
//! their remembered facts. Times only move forward, which makes deadlines later; sizes and owners
//! may have changed to anything. One assumption is left: nobody sets a file's time backward without
//! changing its directory. Every [`LISTED_AGAIN_S`] seconds, and with `full`, the scan looks at
//! everything.

mod cache;
mod record;
mod visit;

use std::{
    io,
    os::{fd::OwnedFd, unix::ffi::OsStrExt},
    path::Path,
    sync::{
        Condvar, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    thread,
};

use rustix::fs::{Mode, OFlags, fstatvfs, open};

pub use cache::{Cache, NewCache, NoCache};
pub use visit::facts;

use super::{Account, Facts, Fill, Policy, World};
use visit::Visitor;

/// Default number of directories read at once: a parallel file system answers many requests at
/// once.
pub const AT_ONCE: usize = 8;

/// Most directories that wait to be read; the scan reports further ones as left out.
const PENDING_MAX: usize = 4_000_000;

/// Most failures reported one by one.
pub const FAILURES_TOLD_MAX: usize = 20;

/// Age in seconds after which an unchanged directory is listed again.
pub const LISTED_AGAIN_S: i64 = 7 * 86_400;

/// Options of a scan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// Directories read at once.
    pub at_once: usize,
    /// End of the period, in seconds since 1970.
    pub until_s: i64,
}

/// Progress of a scan: counters that any thread may read.
#[derive(Debug, Default)]
pub struct Tally {
    files: AtomicU64,
    looked_at: AtomicU64,
    directories: AtomicU64,
    listed: AtomicU64,
    elsewhere: AtomicU64,
    failures: AtomicU64,
}

impl Tally {
    /// Returns the files found.
    pub fn files(&self) -> u64 {
        self.files.load(Relaxed)
    }

    /// Returns the files that were looked at rather than remembered.
    pub fn looked_at(&self) -> u64 {
        self.looked_at.load(Relaxed)
    }

    /// Returns the directories found.
    pub fn directories(&self) -> u64 {
        self.directories.load(Relaxed)
    }

    /// Returns the directories that were listed rather than remembered.
    pub fn listed(&self) -> u64 {
        self.listed.load(Relaxed)
    }

    /// Returns the directories on other file systems, which were left out.
    pub fn elsewhere(&self) -> u64 {
        self.elsewhere.load(Relaxed)
    }

    /// Returns the directories and files that could not be looked at.
    pub fn failures(&self) -> u64 {
        self.failures.load(Relaxed)
    }
}

/// Directory or file that could not be looked at.
#[derive(Debug)]
pub struct Failure {
    /// Path below the root.
    pub path: Vec<u8>,
    /// Cause of the failure.
    pub cause: io::Error,
}

/// Predicate on a file's whole path: true if its content is safe elsewhere.
pub type IsSafe<'a> = dyn Fn(&[u8], &Facts) -> bool + Sync + 'a;

/// Root of a tree.
#[derive(Debug)]
pub struct Root {
    fd: OwnedFd,
    /// Path without symbolic links and without a final `/`.
    path: Vec<u8>,
}

impl Root {
    /// Opens a directory.
    ///
    /// # Errors
    /// If it can't be opened or is no directory.
    pub fn open(path: &Path) -> io::Result<Self> {
        let path = path.canonicalize()?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let fd = open(&path, flags | OFlags::NOATIME, Mode::empty())
            .or_else(|_| open(&path, flags, Mode::empty()))?;
        let mut path = path.as_os_str().as_bytes().to_vec();
        while path.last() == Some(&b'/') {
            path.pop();
        }
        Ok(Self { fd, path })
    }

    /// Returns the path without symbolic links.
    #[must_use]
    pub fn path(&self) -> &[u8] {
        if self.path.is_empty() {
            b"/"
        } else {
            &self.path
        }
    }

    /// Returns how full the file system is.
    ///
    /// # Errors
    /// If the file system doesn't report it.
    pub fn fill(&self, now_s: i64) -> io::Result<Fill> {
        let stat = fstatvfs(&self.fd)?;
        let used = stat.f_blocks.saturating_sub(stat.f_bfree);
        Ok(Fill {
            at_s: now_s,
            used: used.saturating_mul(stat.f_frsize),
            // Space that only root may fill does not count, as in `df`.
            capacity: (used + stat.f_bavail).saturating_mul(stat.f_frsize),
            files: stat.f_files.saturating_sub(stat.f_ffree),
        })
    }
}

/// Inputs of a scan.
pub struct Scan<'a> {
    /// Tree to scan.
    pub root: &'a Root,
    /// Rules of the purge.
    pub policy: &'a Policy,
    /// State of the world; its `now_s` is the start of the scan.
    pub world: &'a World,
    /// Options of the scan.
    pub options: Options,
    /// Results of an earlier scan; `None` to look at everything.
    pub cache: Option<&'a Cache>,
    /// Results of this scan for later ones.
    pub new_cache: Option<&'a NewCache>,
    /// Predicate for files that are safe elsewhere.
    pub is_safe: &'a IsSafe<'a>,
    /// Progress of the scan.
    pub tally: &'a Tally,
}

impl Scan<'_> {
    /// Scans, adds the results to an empty account, and returns it with the first failures.
    ///
    /// # Errors
    /// If the root itself can't be read, or a thread can't be started.
    pub fn run(&self, empty: &Account) -> io::Result<(Account, Vec<Failure>)> {
        let device = visit::device_of(&self.root.fd)?;
        let agenda = Agenda::new();
        let failures = Mutex::new(Vec::new());
        let mut account = empty.clone();
        thread::scope(|scope| {
            let workers = (0..self.options.at_once.max(1)).map(|_| {
                let visitor = Visitor::new(self, empty.clone(), device, &agenda, &failures);
                scope.spawn(|| visitor.work())
            });
            let workers: Vec<_> = workers.collect();
            for worker in workers {
                if let Ok(found) = worker.join() {
                    account.merge(found);
                }
            }
        });
        let failures = failures
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner);
        Ok((account, failures))
    }
}

/// Directories that wait, by their paths below the root. The latest found is next, which keeps the
/// list short.
struct Agenda {
    state: Mutex<Pending>,
    more: Condvar,
}

struct Pending {
    paths: Vec<Vec<u8>>,
    /// Directories that threads are reading, in which they may find more.
    working: usize,
}

impl Agenda {
    fn new() -> Self {
        Self {
            state: Mutex::new(Pending {
                paths: vec![Vec::new()],
                working: 0,
            }),
            more: Condvar::new(),
        }
    }

    /// Returns the next directory; `None` once all are done. The caller reports each as `done`.
    fn next(&self) -> Option<Vec<u8>> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(path) = state.paths.pop() {
                state.working += 1;
                return Some(path);
            }
            if state.working == 0 {
                return None;
            }
            state = self
                .more
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Finishes a directory and adds the directories found in it; returns how many had no space.
    fn done(&self, found: &mut Vec<Vec<u8>>) -> usize {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.working -= 1;
        let room = PENDING_MAX.saturating_sub(state.paths.len());
        let left = found.len().saturating_sub(room);
        state.paths.extend(found.drain(..).take(room));
        drop(state);
        self.more.notify_all();
        left
    }
}

/// Returns the fills known to a scan: the remembered ones and the current one.
#[must_use]
pub fn fills_with(known: &[Fill], new: Fill) -> Vec<Fill> {
    cache::fills_with(known, new)
}

#[cfg(test)]
mod tests;
