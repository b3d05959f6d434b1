//! Cache of a peer's answers, which saves round trips.

use std::{
    collections::{HashMap, HashSet},
    sync::{Mutex, MutexGuard, PoisonError},
};

use super::wire::Looked;
use crate::{
    endpoint::{Entry, Kind, join},
    unfinished::is_unfinished,
};

/// Most directories and files remembered, each: a megabyte or two. Forgotten ones are asked for.
const REMEMBERED_MAX: usize = 16_384;

#[derive(Default)]
struct Known {
    /// Root from the greeting, with a final link followed and not. Each answers one question.
    root: [Option<Looked>; 2],
    /// True if nothing was there at the greeting.
    root_is_absent: bool,
    /// Directories made for this process: they hold only what it stored.
    new: HashSet<Vec<u8>>,
    /// Directories without unfinished files.
    clean: HashSet<Vec<u8>>,
    /// Files that this process has started and not finished.
    started: HashSet<Vec<u8>>,
    /// Large files seen in listings.
    files: HashMap<Vec<u8>, Entry>,
}

/// Facts about a peer's files; bounded.
#[derive(Default)]
pub(super) struct Knowledge {
    known: Mutex<Known>,
}

fn parent_of(path: &[u8]) -> &[u8] {
    let cut = path.iter().rposition(|&byte| byte == b'/');
    cut.map_or(b"", |cut| &path[..cut])
}

fn remember(set: &mut HashSet<Vec<u8>>, path: &[u8]) -> bool {
    set.len() < REMEMBERED_MAX && set.insert(path.to_vec())
}

impl Knowledge {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records the root from the greeting.
    pub(super) fn see_root(&self, followed: Looked, root: Looked) {
        let mut known = self.known();
        known.root_is_absent = followed.entry.is_none() && root.entry.is_none();
        if let Some(entry) = &root.entry {
            known.files.insert(Vec::new(), entry.clone());
        }
        if root.is_clean {
            // A single file is written beside other files of its directory.
            known.clean.insert(b"..".to_vec());
        }
        known.root = [Some(followed), Some(root)];
    }

    /// Returns the root from the greeting, once.
    pub(super) fn take_root(&self, follow: bool) -> Option<Looked> {
        self.known().root[usize::from(!follow)].take()
    }

    /// Discards the recorded root, since a change may have made it stale.
    pub(super) fn forget_root(&self) {
        self.known().root = [None, None];
    }

    /// Returns whether a directory can only be new; notes that it is being made.
    pub(super) fn is_surely_new(&self, path: &[u8]) -> bool {
        let mut known = self.known();
        if known.new.contains(path) {
            return false;
        }
        let is_below_new = if path.is_empty() {
            known.root_is_absent
        } else {
            known.new.contains(parent_of(path))
        };
        if !is_below_new {
            return false;
        }
        known.root_is_absent = false;
        remember(&mut known.new, path)
    }

    /// Returns whether this process had the directory made.
    pub(super) fn is_made(&self, path: &[u8]) -> bool {
        self.known().new.contains(path)
    }

    /// Records that the peer made this directory just now.
    pub(super) fn made(&self, path: &[u8]) {
        let mut known = self.known();
        known.root_is_absent = false;
        remember(&mut known.new, path);
    }

    /// Records that a directory was listed completely and held nothing unfinished.
    pub(super) fn is_clean(&self, path: &[u8]) {
        remember(&mut self.known().clean, path);
    }

    /// Records an entry from a listing.
    pub(super) fn see(&self, directory: &[u8], entry: &Entry, large: u64) {
        if entry.kind == Kind::File && entry.size > large {
            let mut known = self.known();
            if known.files.len() < REMEMBERED_MAX {
                let mut seen = entry.clone();
                let path = join(directory, &std::mem::take(&mut seen.name));
                known.files.insert(path, seen);
            }
        }
    }

    /// Returns whether a listing reported exactly this file, so that opening it would add nothing.
    pub(super) fn takes_for(&self, path: &[u8], entry: &Entry) -> bool {
        let known = self.known();
        known.files.get(path).is_some_and(|seen| {
            seen.kind == Kind::File && (seen.size, seen.mtime) == (entry.size, entry.mtime)
        })
    }

    /// Returns whether a large file can only start from nothing.
    pub(super) fn starts_from_nothing(&self, path: &[u8]) -> bool {
        let known = self.known();
        let directory: &[u8] = if path.is_empty() {
            b".."
        } else {
            parent_of(path)
        };
        let is_clean = known.clean.contains(directory) || known.new.contains(directory);
        is_clean && !known.started.contains(path)
    }

    /// Records that the first segment of a large file is in flight.
    pub(super) fn started(&self, path: &[u8]) {
        let mut known = self.known();
        if !known.started.contains(path) && !remember(&mut known.started, path) {
            // Too many to remember: no directory counts as clean then.
            known.clean.clear();
            known.new.clear();
        }
    }

    /// Records that a large file was published or discarded.
    pub(super) fn ended(&self, path: &[u8]) {
        self.known().started.remove(path);
    }
}

/// Returns whether a page of a listing shows something unfinished.
pub(super) fn has_unfinished(page: &[Entry]) -> bool {
    page.iter().any(|entry| is_unfinished(&entry.name))
}
