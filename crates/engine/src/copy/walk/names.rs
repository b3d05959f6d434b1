//! Names at the destination: a directory is listed once rather than each file looked up.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use posthaste_endpoint::{Entry, Locus, Result};
use tokio::sync::OnceCell;

use super::{
    super::{lane::Shared, retry::retried},
    There,
};

/// Entries of destination directories kept at once: about 40 MB. Files of a larger directory are
/// looked up one by one.
const REMEMBERED_ENTRIES_MAX: usize = 200_000;

/// Names in one directory.
#[derive(Debug)]
pub(super) struct Names {
    known: HashMap<Vec<u8>, Entry>,
    /// The directory had too many names.
    cut: bool,
}

impl Names {
    /// Returns what has this name.
    pub(super) fn get(&self, name: &[u8]) -> There {
        match self.known.get(name) {
            Some(found) => There::Found(found.clone()),
            None if self.cut => There::Ask,
            None => There::Nothing,
        }
    }
}

type Cell = Arc<OnceCell<Names>>;

/// Recent lookups of directories: when the younger ones are many, the older ones are dropped.
#[derive(Debug, Default)]
struct Lately {
    young: HashMap<Vec<u8>, Cell>,
    old: HashMap<Vec<u8>, Cell>,
    young_entries: usize,
}

/// Objects looked up at the destination.
#[derive(Debug, Default)]
pub(super) struct Lookups {
    lately: Mutex<Lately>,
}

impl Lookups {
    fn cell(&self, path: &[u8]) -> Cell {
        let mut lately = self.lately.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(cell) = lately.young.get(path) {
            return Arc::clone(cell);
        }
        let cell = lately.old.remove(path).unwrap_or_default();
        lately.young.insert(path.to_vec(), Arc::clone(&cell));
        let entries = cell.get().map_or(0, |names| names.known.len());
        lately.grow(entries);
        cell
    }

    /// Returns the names in the destination directory at `path`.
    pub(super) async fn names(&self, shared: &Shared, path: &[u8]) -> Result<Cell> {
        let cell = self.cell(path);
        if cell.get().is_none() {
            let names = cell.get_or_try_init(|| list(shared, path)).await;
            let count = names
                .map_err(|error| error.at(Locus::Destination))?
                .known
                .len();
            let mut lately = self.lately.lock().unwrap_or_else(PoisonError::into_inner);
            lately.grow(count);
        }
        Ok(cell)
    }
}

impl Lately {
    fn grow(&mut self, entries: usize) {
        // A directory without entries costs its path.
        self.young_entries += entries + 1;
        if self.young_entries > REMEMBERED_ENTRIES_MAX / 2 {
            self.old = std::mem::take(&mut self.young);
            self.young_entries = 0;
        }
    }
}

async fn list(shared: &Shared, path: &[u8]) -> Result<Names> {
    let endpoint = &shared.destination.endpoint;
    let listing = retried(shared, || endpoint.list(path, false)).await?;
    let listing = tokio::sync::Mutex::new(listing);
    let mut known = HashMap::new();
    loop {
        let page = retried(shared, || async { listing.lock().await.next_page().await }).await?;
        let cut = known.len() > REMEMBERED_ENTRIES_MAX;
        if page.is_empty() || cut {
            return Ok(Names { known, cut });
        }
        known.extend(page.into_iter().map(|entry| (entry.name.clone(), entry)));
    }
}
