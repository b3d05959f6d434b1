//! Progress of a copy: counters that lanes raise and anybody may read.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use super::clock;

/// Counters of one copy.
#[derive(Debug)]
pub struct Progress {
    started: Instant,
    bytes: AtomicU64,
    total_bytes: AtomicU64,
    resumed_bytes: AtomicU64,
    files: AtomicU64,
    total_files: AtomicU64,
    unchanged: AtomicU64,
    server_copies: AtomicU64,
    server_copy_bytes: AtomicU64,
    links: AtomicU64,
    directories: AtomicU64,
    listed: AtomicU64,
    errors: AtomicU64,
    tries: AtomicU64,
    walked: AtomicBool,
    numbers: AtomicU64,
    moving: Mutex<BTreeMap<u64, Arc<Current>>>,
}

/// A file being copied.
#[derive(Debug)]
pub struct Current {
    /// Its path for people.
    pub name: String,
    /// Its bytes.
    pub size: u64,
    done: AtomicU64,
}

impl Current {
    /// Bytes copied so far.
    #[must_use]
    pub fn done(&self) -> u64 {
        self.done.load(Relaxed)
    }
}

/// The counters at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Figures {
    /// Bytes sent by this run.
    pub bytes: u64,
    /// Bytes of all files found so far that have to be sent, including those that earlier runs
    /// sent.
    pub total_bytes: u64,
    /// Bytes an earlier run had sent.
    pub resumed_bytes: u64,
    /// Files that arrived.
    pub files: u64,
    /// Files found so far that have to be sent.
    pub total_files: u64,
    /// Files that were there already.
    pub unchanged: u64,
    /// Files that a server copied by itself.
    pub server_copies: u64,
    /// Their bytes, which are counted as sent too.
    pub server_copy_bytes: u64,
    /// Symbolic links made.
    pub links: u64,
    /// Directories made.
    pub directories: u64,
    /// Entries seen.
    pub listed: u64,
    /// Files and directories that failed.
    pub errors: u64,
    /// Retries after temporary failures.
    pub tries: u64,
    /// Everything was seen, so the totals are final.
    pub walked: bool,
    /// Time since the start.
    pub elapsed: Duration,
}

impl Default for Progress {
    fn default() -> Self {
        Self {
            started: clock::now(),
            bytes: AtomicU64::new(0),
            total_bytes: AtomicU64::new(0),
            resumed_bytes: AtomicU64::new(0),
            files: AtomicU64::new(0),
            total_files: AtomicU64::new(0),
            unchanged: AtomicU64::new(0),
            server_copies: AtomicU64::new(0),
            server_copy_bytes: AtomicU64::new(0),
            links: AtomicU64::new(0),
            directories: AtomicU64::new(0),
            listed: AtomicU64::new(0),
            errors: AtomicU64::new(0),
            tries: AtomicU64::new(0),
            walked: AtomicBool::new(false),
            numbers: AtomicU64::new(0),
            moving: Mutex::new(BTreeMap::new()),
        }
    }
}

impl Progress {
    /// Returns the counters now.
    #[must_use]
    pub fn figures(&self) -> Figures {
        Figures {
            bytes: self.bytes.load(Relaxed),
            total_bytes: self.total_bytes.load(Relaxed),
            resumed_bytes: self.resumed_bytes.load(Relaxed),
            files: self.files.load(Relaxed),
            total_files: self.total_files.load(Relaxed),
            unchanged: self.unchanged.load(Relaxed),
            server_copies: self.server_copies.load(Relaxed),
            server_copy_bytes: self.server_copy_bytes.load(Relaxed),
            links: self.links.load(Relaxed),
            directories: self.directories.load(Relaxed),
            listed: self.listed.load(Relaxed),
            errors: self.errors.load(Relaxed),
            tries: self.tries.load(Relaxed),
            walked: self.walked.load(Relaxed),
            elapsed: clock::now().saturating_duration_since(self.started),
        }
    }

    /// Returns the files being copied now, oldest first.
    #[must_use]
    pub fn current(&self) -> Vec<Arc<Current>> {
        let moving = self.moving.lock().unwrap_or_else(PoisonError::into_inner);
        moving.values().cloned().collect()
    }

    pub(super) fn saw(&self, entries: u64) {
        self.listed.fetch_add(entries, Relaxed);
    }

    pub(super) fn found_file(&self, size: u64) {
        self.total_files.fetch_add(1, Relaxed);
        self.total_bytes.fetch_add(size, Relaxed);
    }

    /// Adds bytes to a stream found before that turns out to be longer.
    pub(super) fn grew(&self, bytes: u64) {
        self.total_bytes.fetch_add(bytes, Relaxed);
    }

    pub(super) fn walk_ended(&self) {
        self.walked.store(true, Relaxed);
    }

    /// Counts a file found before as unchanged.
    pub(super) fn was_unchanged(&self, size: u64) {
        self.total_files.fetch_sub(1, Relaxed);
        self.total_bytes.fetch_sub(size, Relaxed);
        self.unchanged.fetch_add(1, Relaxed);
    }

    /// Counts a file of `size` bytes that a server copied by itself.
    pub(super) fn was_copied_there(&self, size: u64) {
        self.server_copies.fetch_add(1, Relaxed);
        self.server_copy_bytes.fetch_add(size, Relaxed);
    }

    pub(super) fn made_link(&self) {
        self.links.fetch_add(1, Relaxed);
    }

    pub(super) fn made_directory(&self) {
        self.directories.fetch_add(1, Relaxed);
    }

    pub(super) fn tried_again(&self) {
        self.tries.fetch_add(1, Relaxed);
    }

    pub(super) fn failed(&self) {
        self.errors.fetch_add(1, Relaxed);
    }

    pub(super) fn start(self: &Arc<Self>, name: String, size: u64) -> Moving {
        let number = self.numbers.fetch_add(1, Relaxed);
        let current = Arc::new(Current {
            name,
            size,
            done: AtomicU64::new(0),
        });
        let mut moving = self.moving.lock().unwrap_or_else(PoisonError::into_inner);
        moving.insert(number, Arc::clone(&current));
        Moving {
            progress: Arc::clone(self),
            current,
            resumed: AtomicU64::new(0),
            turn: AtomicU64::new(0),
            lends: AtomicBool::new(false),
            number,
        }
    }
}

/// File on its way; dropping it removes it from the list.
#[derive(Debug)]
pub(super) struct Moving {
    progress: Arc<Progress>,
    current: Arc<Current>,
    /// Bytes of it that an earlier run sent.
    resumed: AtomicU64,
    /// Number of times it was begun anew.
    turn: AtomicU64,
    /// Mark that it has rights that it would lend.
    lends: AtomicBool,
    number: u64,
}

impl Moving {
    /// Returns the file's path for people.
    pub(super) fn name(&self) -> &str {
        &self.current.name
    }

    /// Counts bytes sent.
    pub(super) fn sent(&self, bytes: u64) {
        self.current.done.fetch_add(bytes, Relaxed);
        self.progress.bytes.fetch_add(bytes, Relaxed);
    }

    /// Returns how often it was begun anew, for [`Moving::lost`].
    pub(super) fn turn(&self) -> u64 {
        self.turn.load(Relaxed)
    }

    /// Takes back bytes counted as sent, which have to be sent again. Those of an earlier turn were
    /// taken back with it.
    pub(super) fn lost(&self, bytes: u64, turn: u64) {
        if self.turn() != turn {
            return;
        }
        let less = |done: u64| Some(done.saturating_sub(bytes));
        let done = self.current.done.fetch_update(Relaxed, Relaxed, less);
        let lost = done.unwrap_or_default().min(bytes);
        self.progress.bytes.fetch_sub(lost, Relaxed);
    }

    /// Notes that the file has rights that it would lend. Returns whether that is new.
    pub(super) fn note_lends(&self) -> bool {
        !self.lends.swap(true, Relaxed)
    }

    /// Takes back all bytes counted: the file is sent anew.
    pub(super) fn start_over(&self) {
        self.turn.fetch_add(1, Relaxed);
        let done = self.current.done.swap(0, Relaxed);
        let resumed = self.resumed.swap(0, Relaxed);
        let progress = &self.progress;
        progress.resumed_bytes.fetch_sub(resumed, Relaxed);
        let sent = done.saturating_sub(resumed);
        progress.bytes.fetch_sub(sent, Relaxed);
    }

    /// Counts bytes that an earlier run sent.
    pub(super) fn resumed(&self, bytes: u64) {
        self.resumed.fetch_add(bytes, Relaxed);
        self.current.done.fetch_add(bytes, Relaxed);
        self.progress.resumed_bytes.fetch_add(bytes, Relaxed);
    }

    /// Counts the file as arrived.
    pub(super) fn arrived(&self) {
        self.progress.files.fetch_add(1, Relaxed);
    }
}

impl Drop for Moving {
    fn drop(&mut self) {
        let mut moving = self
            .progress
            .moving
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        moving.remove(&self.number);
    }
}
