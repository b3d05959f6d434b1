//! Entries under names.

use std::{
    fs::{self, FileType},
    io,
    os::unix::fs::MetadataExt,
    path::Path,
};

use super::{entry_of, show};
use crate::{Entry, Error, Result};

/// Attributes of a path from outside, to detect that another file came there. SMB and others may
/// number files anew each time.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Look(Option<(FileType, u64, i64, i64)>);

impl Look {
    pub(super) fn at(path: &Path) -> io::Result<Self> {
        match fs::symlink_metadata(path) {
            Ok(it) => Ok(Self(Some((
                it.file_type(),
                it.len(),
                it.mtime(),
                it.mtime_nsec(),
            )))),
            Err(cause) if cause.kind() == io::ErrorKind::NotFound => Ok(Self(None)),
            Err(cause) => Err(cause),
        }
    }
}

/// Returns the system's facts about a path. Blocks.
///
/// # Errors
/// Any of the system's errors but "not found", which is `None`.
pub fn stat(path: &Path, follow: bool) -> Result<Option<Entry>> {
    let found = if follow {
        fs::metadata(path)
    } else {
        fs::symlink_metadata(path)
    };
    match found {
        Ok(metadata) => Ok(Some(entry_of(Vec::new(), &metadata))),
        Err(cause)
            if matches!(
                cause.kind(),
                io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
            ) =>
        {
            Ok(None)
        }
        Err(cause) => Err(Error::io("look at", show(path), cause)),
    }
}
