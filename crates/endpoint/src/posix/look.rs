//! What lies under the name that a file is to get.

use std::{
    fs::{self, FileType},
    io,
    os::unix::fs::MetadataExt,
    path::Path,
};

use super::{Place, show};
use crate::{Error, ErrorKind, Locus, Result};

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

/// Fails where something is that a file must not replace: a device, a pipe or a socket.
pub(super) fn refuse_special(place: &Place) -> Result<()> {
    let Ok(there) = fs::symlink_metadata(&place.path) else {
        return Ok(());
    };
    let kind = there.file_type();
    if kind.is_file() || kind.is_symlink() || kind.is_dir() {
        return Ok(());
    }
    Err(
        Error::new(ErrorKind::Conflict, "write", show(place.shown()))
            .cause("a device, a pipe or a socket is there")
            .hint("name a file, or a directory that it may go into")
            .at(Locus::Destination),
    )
}
