//! Unfinished copies that nobody goes on with.

use std::{fs, sync::atomic::Ordering};

use super::{Draft, flush, is_at, mtime_of};
use crate::endpoint::FileSpec;

impl Draft {
    /// Removes the unfinished copy if another writer gave its name to what most likely is the same:
    /// nobody would ever go on with it.
    pub(super) fn forget_second(&self, spec: &FileSpec) {
        let there = fs::symlink_metadata(&self.place.path);
        let is_same = there.is_ok_and(|there| {
            there.is_file() && there.len() == spec.size && mtime_of(&there) == spec.mtime
        });
        if is_same && spec.mtime.is_some() {
            self.ended.store(true, Ordering::Relaxed);
            self.forget();
        }
    }

    /// Removes the unfinished copy, if it is this one, and its record.
    pub(super) fn forget(&self) {
        if is_at(&self.file, &self.partial) {
            self.discard();
        }
    }

    /// Removes the unfinished copy and its record. Blocks.
    pub fn discard(&self) {
        let _ = fs::remove_file(&self.partial);
        if let Some(ledger) = &self.ledger {
            ledger.remove();
        }
    }
}

impl Drop for Draft {
    /// Removes a small file without its final name, and a record of lost bytes: both useless.
    fn drop(&mut self) {
        let is_left = !*self.ended.get_mut();
        if is_left && (self.ledger.is_none() || flush(&self.file).is_err()) {
            self.forget();
        }
    }
}
