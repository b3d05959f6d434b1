//! Devices, pipes and sockets: no copy replaces them.

use std::fs;

use super::{Place, show};
use crate::{Error, ErrorKind, Locus, Result};

/// Fails where something is, perhaps behind a link, that a file or a link must not replace. Blocks.
pub(super) fn refuse_special(operation: &'static str, place: &Place) -> Result<()> {
    let Ok(there) = fs::symlink_metadata(&place.path) else {
        return Ok(());
    };
    let mut kind = there.file_type();
    if kind.is_symlink()
        && let Ok(behind) = fs::metadata(&place.path)
    {
        // What /dev/stdout leads to is meant, not the link.
        kind = behind.file_type();
    }
    if kind.is_file() || kind.is_symlink() || kind.is_dir() {
        return Ok(());
    }
    Err(special_there(operation, show(place.shown())))
}

/// That something is at a destination that must not be replaced.
pub(crate) fn special_there(operation: &'static str, shown: String) -> Error {
    Error::new(ErrorKind::Conflict, operation, shown)
        .cause("a device, a pipe or a socket is there")
        .hint("name a file, or a directory that it may go into")
        .at(Locus::Destination)
}
