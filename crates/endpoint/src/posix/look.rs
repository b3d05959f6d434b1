//! What lies under the name that a file is to get.

use std::{
    fs::{self, FileType},
    io,
    os::unix::fs::MetadataExt,
    path::Path,
};

/// What a path looks like from outside, to see whether something else came there. SMB and others may number files anew each time.
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
