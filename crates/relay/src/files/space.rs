//! What files take of the space that is lent.

use std::{path::Path, sync::Arc};

use posthaste_endpoint::{Error, ErrorKind, Result};
use rustix::fs::statvfs;

use crate::store::Store;

/// Where files take their space from.
#[derive(Debug, Clone)]
pub(crate) enum Space {
    /// The disk's own limits.
    Disk,
    /// A relay's capacity, which fragments share.
    Lent(Arc<Store>),
}

impl Space {
    /// Takes space for a file of `wanted` bytes in place of one of `had`.
    ///
    /// # Errors
    /// [`ErrorKind::Full`].
    pub(crate) fn change(&self, had: u64, wanted: u64) -> Result<()> {
        let Self::Lent(store) = self else {
            return Ok(());
        };
        store.change_files(had, wanted).map_err(|refusal| {
            let error = Error::new(ErrorKind::Full, "write", "").cause(refusal.message);
            match refusal.hint {
                Some(hint) => error.hint(hint),
                None => error,
            }
        })
    }

    /// Bytes that can still be stored, where it is known.
    pub(crate) fn free_bytes(&self, near: &Path) -> Option<u64> {
        match self {
            Self::Lent(store) => Some(store.usage().free),
            Self::Disk => {
                let found = statvfs(near).ok()?;
                Some(found.f_bavail.saturating_mul(found.f_frsize))
            }
        }
    }
}

/// Bytes of the file itself at `path`; 0 when there is none.
pub(crate) fn size_at(path: &Path) -> u64 {
    std::fs::symlink_metadata(path)
        .ok()
        .filter(std::fs::Metadata::is_file)
        .map_or(0, |found| found.len())
}
