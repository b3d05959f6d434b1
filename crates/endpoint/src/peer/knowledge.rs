//! What answers have told, so that nobody asks again: each question costs the way there and back.

use std::{
    collections::{HashMap, HashSet},
    sync::{Mutex, MutexGuard, PoisonError},
};

use super::wire::Looked;
use crate::{
    endpoint::{Entry, Kind, join},
    unfinished::is_unfinished,
};

/// Directories and files remembered, each: a megabyte or two. What is forgotten is asked for.
const REMEMBERED_MAX: usize = 16_384;

#[derive(Default)]
struct Known {
    /// The root as the greeting told it: followed, and itself. Each is good for one question.
    root: [Option<Looked>; 2],
    /// Nothing was there when the greeting looked.
    root_is_absent: bool,
    /// Directories that this process had made: nothing is in them but what it stored.
    new: HashSet<Vec<u8>>,
    /// Directories without unfinished files.
    clean: HashSet<Vec<u8>>,
    /// Files this process has started and not finished.
    started: HashSet<Vec<u8>>,
    /// Large files seen in listings.
    files: HashMap<Vec<u8>, Entry>,
}

/// What is known of a peer's files; bounded.
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

    /// The greeting told this of the root.
    pub(super) fn see_root(&self, followed: Looked, root: Looked) {
        let mut known = self.known();
        known.root_is_absent = followed.entry.is_none() && root.entry.is_none();
        if let Some(entry) = &root.entry {
            known.files.insert(Vec::new(), entry.clone());
        }
        if root.is_clean {
            // A single file is written beside what else its directory holds.
            known.clean.insert(b"..".to_vec());
        }
        known.root = [Some(followed), Some(root)];
    }

    /// What the greeting told of the root, once.
    pub(super) fn take_root(&self, follow: bool) -> Option<Looked> {
        self.known().root[usize::from(!follow)].take()
    }

    /// Something changes: what was told before may be wrong now.
    pub(super) fn forget_root(&self) {
        self.known().root = [None, None];
    }

    /// Whether a directory can only be new; notes that it is being made.
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

    /// Whether this process had the directory made.
    pub(super) fn is_made(&self, path: &[u8]) -> bool {
        self.known().new.contains(path)
    }

    /// The peer made this directory just now.
    pub(super) fn made(&self, path: &[u8]) {
        let mut known = self.known();
        known.root_is_absent = false;
        remember(&mut known.new, path);
    }

    /// A directory was listed from its start to its end, and held nothing unfinished.
    pub(super) fn is_clean(&self, path: &[u8]) {
        remember(&mut self.known().clean, path);
    }

    /// A listing told of an entry.
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

    /// Whether a file is exactly what a listing told, so that opening it would tell nothing new.
    pub(super) fn takes_for(&self, path: &[u8], entry: &Entry) -> bool {
        let known = self.known();
        known.files.get(path).is_some_and(|seen| {
            seen.kind == Kind::File && (seen.size, seen.mtime) == (entry.size, entry.mtime)
        })
    }

    /// Whether a large file can only start from nothing.
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

    /// A large file has its first segment on its way.
    pub(super) fn started(&self, path: &[u8]) {
        let mut known = self.known();
        if !known.started.contains(path) && !remember(&mut known.started, path) {
            // Too many to know them all: then nothing is known to be clean.
            known.clean.clear();
            known.new.clear();
        }
    }

    /// A large file has its name, or is forgotten.
    pub(super) fn ended(&self, path: &[u8]) {
        self.known().started.remove(path);
    }
}

/// Whether a page of a listing shows something unfinished.
pub(super) fn has_unfinished(page: &[Entry]) -> bool {
    page.iter().any(|entry| is_unfinished(&entry.name))
}
