//! Files that a listing has just asked about: whoever opens one need not ask again.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use super::pages::Found;
use crate::{clock, endpoint::Entry};

/// Most answers that are kept: a few pages of a listing.
const KEPT_MAX: usize = 4096;

/// Time for which an answer counts. A file that changes meanwhile is left out, as one that changes
/// while it is read.
const COUNTS_FOR: Duration = Duration::from_secs(30);

/// Answers of the last moments, by path.
#[derive(Default)]
pub(super) struct Told(Mutex<BTreeMap<Vec<u8>, (Found, Instant)>>);

impl Told {
    fn kept(&self) -> MutexGuard<'_, BTreeMap<Vec<u8>, (Found, Instant)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps an answer for whoever opens the file.
    pub(super) fn keep(&self, path: &[u8], found: Found) {
        let mut kept = self.kept();
        if kept.len() >= KEPT_MAX {
            kept.clear();
        }
        kept.insert(path.to_vec(), (found, clock::now()));
    }

    /// Takes the answer about a file that was listed so.
    pub(super) fn take(&self, path: &[u8], listed: &Entry) -> Option<Found> {
        let (found, at) = self.kept().remove(path)?;
        let facts = |entry: &Entry| (entry.size, entry.mtime, entry.version.clone());
        let is_it = facts(&found.entry) == facts(listed) && at.elapsed() < COUNTS_FOR;
        is_it.then_some(found)
    }
}
