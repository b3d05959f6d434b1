//! Scans a tree for what a purge will remove: in parallel, with `statx` alone, without writing to it or reading a file.
//!
//! What was found is remembered in a [`Cache`]. A directory that did not change since holds the same names; of its files only
//! those are looked at again that might go within the time asked about, by what is remembered of them: their times only move
//! forward, which makes deadlines later, and sizes and owners are taken to have become anything. One assumption is left,
//! that nobody sets a time of a file backward without a change of its directory; every [`LISTED_AGAIN_S`] seconds, and by
//! `full`, everything is looked at.

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

/// Directories looked at once, where nothing else is said: a parallel file system answers many at once.
pub const AT_ONCE: usize = 8;

/// Directories that wait to be looked at; more are said to be left out.
const PENDING_MAX: usize = 4_000_000;

/// Failures that are told one by one.
pub const FAILURES_TOLD_MAX: usize = 20;

/// After this long a directory is listed again though it did not change, in seconds.
pub const LISTED_AGAIN_S: i64 = 7 * 86_400;

/// How a tree is scanned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// Directories looked at once.
    pub at_once: usize,
    /// The end of the time asked about, in seconds since 1970.
    pub until_s: i64,
}

/// How far a scan is: counters that anybody may read.
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
    /// Files found.
    pub fn files(&self) -> u64 {
        self.files.load(Relaxed)
    }

    /// Those of them that were looked at rather than remembered.
    pub fn looked_at(&self) -> u64 {
        self.looked_at.load(Relaxed)
    }

    /// Directories found.
    pub fn directories(&self) -> u64 {
        self.directories.load(Relaxed)
    }

    /// Those of them that were listed rather than remembered.
    pub fn listed(&self) -> u64 {
        self.listed.load(Relaxed)
    }

    /// Directories of other file systems, which were left out.
    pub fn elsewhere(&self) -> u64 {
        self.elsewhere.load(Relaxed)
    }

    /// Directories and files that could not be looked at.
    pub fn failures(&self) -> u64 {
        self.failures.load(Relaxed)
    }
}

/// A directory or file that could not be looked at.
#[derive(Debug)]
pub struct Failure {
    /// Its path below the root.
    pub path: Vec<u8>,
    /// Why.
    pub cause: io::Error,
}

/// Says of a file, by its whole path, whether what it holds is safe elsewhere.
pub type IsSafe<'a> = dyn Fn(&[u8], &Facts) -> bool + Sync + 'a;

/// The root of a tree.
#[derive(Debug)]
pub struct Root {
    fd: OwnedFd,
    /// Its path without symbolic links, with no `/` at its end.
    path: Vec<u8>,
}

impl Root {
    /// Opens a directory.
    ///
    /// # Errors
    /// When it can't be, or is none.
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

    /// Its path, without symbolic links.
    #[must_use]
    pub fn path(&self) -> &[u8] {
        if self.path.is_empty() {
            b"/"
        } else {
            &self.path
        }
    }

    /// How full its file system is.
    ///
    /// # Errors
    /// When it does not say.
    pub fn fill(&self, now_s: i64) -> io::Result<Fill> {
        let stat = fstatvfs(&self.fd)?;
        let used = stat.f_blocks.saturating_sub(stat.f_bfree);
        Ok(Fill {
            at_s: now_s,
            used: used.saturating_mul(stat.f_frsize),
            // What only root may fill does not count, as `df` has it.
            capacity: (used + stat.f_bavail).saturating_mul(stat.f_frsize),
            files: stat.f_files.saturating_sub(stat.f_ffree),
        })
    }
}

/// All that a scan reads.
pub struct Scan<'a> {
    /// The tree.
    pub root: &'a Root,
    /// The rules.
    pub policy: &'a Policy,
    /// The world; its `now_s` is when the scan begins.
    pub world: &'a World,
    /// How.
    pub options: Options,
    /// What is remembered; nothing, for all to be looked at.
    pub cache: Option<&'a Cache>,
    /// What is to be remembered.
    pub new_cache: Option<&'a NewCache>,
    /// What is safe elsewhere.
    pub is_safe: &'a IsSafe<'a>,
    /// How far it is.
    pub tally: &'a Tally,
}

impl Scan<'_> {
    /// Scans, and adds what it finds to an empty account. The first failures come back with it.
    ///
    /// # Errors
    /// When the root itself can't be looked at, or no thread be started.
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

/// The directories that wait, by their paths below the root. The latest found is the next: that keeps them few.
struct Agenda {
    state: Mutex<Pending>,
    more: Condvar,
}

struct Pending {
    paths: Vec<Vec<u8>>,
    /// Those that somebody is looking at, and may find more in.
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

    /// The next directory; none when all is done. Whoever takes one says when it is `done`.
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

    /// Ends a directory and adds what was found in it; says how many had no room.
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

/// The fills that a scan knows of: those that were remembered, and the one of now.
#[must_use]
pub fn fills_with(known: &[Fill], new: Fill) -> Vec<Fill> {
    cache::fills_with(known, new)
}

#[cfg(test)]
mod tests;
