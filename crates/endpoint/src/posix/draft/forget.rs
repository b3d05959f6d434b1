//! Unfinished copies that nobody goes on with.

use std::{
    fs::{self, File},
    io,
    os::unix::fs::FileExt,
    sync::atomic::Ordering,
};

use super::{Draft, flush, is_at, mtime_of};
use crate::endpoint::FileSpec;

/// Bytes compared at once.
const COMPARED_BYTES: usize = 1 << 20;

impl Draft {
    /// Removes the unfinished copy if another writer gave its name to the same: nobody would ever go
    /// on with it. Blocks while both are read.
    pub(super) fn forget_second(&self, spec: &FileSpec) {
        let there = fs::symlink_metadata(&self.place.path);
        let is_like = there.is_ok_and(|there| {
            there.is_file() && there.len() == spec.size && mtime_of(&there) == spec.mtime
        });
        if is_like && spec.mtime.is_some() && self.is_there(spec.size).unwrap_or(false) {
            self.ended.store(true, Ordering::Relaxed);
            self.forget();
        }
    }

    /// Returns whether the file that has its name holds the same bytes.
    fn is_there(&self, size: u64) -> io::Result<bool> {
        let there = File::open(&self.place.path)?;
        let (mut ours, mut theirs) = (vec![0; COMPARED_BYTES], vec![0; COMPARED_BYTES]);
        let mut at = 0;
        while at < size {
            let len = usize::try_from(size - at).unwrap_or(COMPARED_BYTES);
            let len = len.min(COMPARED_BYTES);
            self.file.read_exact_at(&mut ours[..len], at)?;
            there.read_exact_at(&mut theirs[..len], at)?;
            if ours[..len] != theirs[..len] {
                return Ok(false);
            }
            at += len as u64;
        }
        Ok(true)
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
