//! Writer that adds to the files of one slot of a scan.

use std::{os::unix::fs::FileExt, sync::Arc};

use posthaste_endpoint::{Entry, Result};
use posthaste_types::Record;

use super::{
    record::{Raw, write_page},
    spool::{Spool, failed},
};

/// Writer for one slot of a spool. Additions count when it says so.
#[derive(Debug)]
pub(super) struct Pen {
    spool: Arc<Spool>,
    slot: usize,
    entries_at: u64,
    directories_at: u64,
    /// Bytes not counted yet.
    entries: u64,
    directories: u64,
}

impl Pen {
    /// Returns a pen for a slot that nobody else writes into.
    pub(super) fn new(spool: &Arc<Spool>, slot: usize) -> Self {
        Self {
            spool: Arc::clone(spool),
            slot,
            entries_at: 0,
            directories_at: 0,
            entries: 0,
            directories: 0,
        }
    }

    /// Begins at the counted lengths: uncounted additions are overwritten.
    pub(super) fn begin(&mut self) {
        let state = self.spool.state();
        let slot = &state.checkpoint.slots[self.slot];
        (self.entries_at, self.directories_at) = (slot.entries, slot.directories);
        (self.entries, self.directories) = (0, 0);
    }

    /// Writes a page and the paths of those of its directories that are to be listed. Blocks.
    ///
    /// # Errors
    /// The system's.
    pub(super) fn write(
        &mut self,
        directory: &[u8],
        entries: &[Entry],
        below: Vec<Vec<u8>>,
    ) -> Result<()> {
        let files = &self.spool.files[self.slot];
        let folder = &self.spool.folder;
        let mut page = Vec::with_capacity(entries.len() * 48);
        write_page(directory, entries, &mut page);
        let written = files.entries.write_all_at(&page, self.entries_at);
        written.map_err(failed("write into", folder))?;
        self.entries_at += page.len() as u64;
        self.entries += entries.len() as u64;
        if below.is_empty() {
            return Ok(());
        }
        page.clear();
        self.directories += below.len() as u64;
        for path in below {
            Raw(path).write(&mut page);
        }
        let written = files.directories.write_all_at(&page, self.directories_at);
        written.map_err(failed("write into", folder))?;
        self.directories_at += page.len() as u64;
        Ok(())
    }

    /// Counts what was written: `mark` is where the listing stands, `None` at its end.
    pub(super) fn count(&mut self, mark: Option<Vec<u8>>) {
        let mut state = self.spool.state();
        let checkpoint = &mut state.checkpoint;
        checkpoint.entries += std::mem::take(&mut self.entries);
        checkpoint.directories += std::mem::take(&mut self.directories);
        let slot = &mut checkpoint.slots[self.slot];
        (slot.entries, slot.directories) = (self.entries_at, self.directories_at);
        match mark {
            Some(mark) => {
                if let Some(current) = &mut slot.current {
                    current.mark = Some(Raw(mark));
                }
            }
            None => slot.current = None,
        }
        drop(state);
        self.spool.changed.notify_waiters();
    }
}
