//! Space that files use of what is lent.

use std::{path::Path, sync::Arc};

use posthaste_endpoint::{Error, ErrorKind, Result};
use posthaste_types::Bytes;
use rustix::fs::statvfs;

use crate::store::{Store, Usage};

/// Source of the space that files use.
#[derive(Debug, Clone)]
pub(crate) enum Space {
    /// Limits of the disk alone.
    Disk,
    /// Capacity of a relay, shared with fragments.
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

    /// Returns the bytes that can still be stored, if known.
    pub(crate) fn free_bytes(&self, near: &Path) -> Option<u64> {
        match self {
            Self::Lent(store) => Some(store.usage().free),
            Self::Disk => disk_free(near),
        }
    }
}

/// Returns the free bytes of the file system of this path, for users other than root.
pub(crate) fn disk_free(near: &Path) -> Option<u64> {
    let found = statvfs(near).ok()?;
    Some(found.f_bavail.saturating_mul(found.f_frsize))
}

/// Returns the warning for more space lent than the disk has.
pub(crate) fn beyond_disk(usage: Usage, disk_free: u64) -> Option<String> {
    let to_fill = usage.capacity.saturating_sub(usage.used);
    (to_fill > disk_free).then(|| {
        format!(
            "{} more are lent than lie here, and the disk has {} free: what does not fit is refused (lower --capacity, or make room)",
            Bytes::new(to_fill),
            Bytes::new(disk_free)
        )
    })
}

/// Returns the bytes of the file itself at `path`; 0 if there is none.
pub(crate) fn size_at(path: &Path) -> u64 {
    std::fs::symlink_metadata(path)
        .ok()
        .filter(std::fs::Metadata::is_file)
        .map_or(0, |found| found.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_lends_more_than_the_disk_has_hears_it() {
        let usage = Usage {
            capacity: 3 << 30,
            used: 1 << 30,
            reserved: 0,
            free: 2 << 30,
        };
        let said = beyond_disk(usage, 40 << 20).unwrap();
        let begins = "2.0 GiB more are lent than lie here, and the disk has 40.0 MiB free";
        assert!(said.starts_with(begins), "{said}");
        assert_eq!(beyond_disk(usage, 2 << 30), None);
    }
}
