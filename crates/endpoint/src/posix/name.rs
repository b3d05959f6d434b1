//! Names that a file system accepted, and did not keep.

use std::{io, path::Path};

use super::show;
use crate::{Error, ErrorKind, Locus, Result};

/// Length in bytes from which a name is checked after it was given: few are that long.
const LOOKED_FOR_BYTES: usize = 64;

/// Checks that a file has its final name, if that is so long that a file system may have cut it:
/// two of them would be one.
///
/// # Errors
/// [`ErrorKind::Unsupported`] if nothing has that name.
pub(super) fn look_for_name(path: &Path, shown: &Path) -> Result<()> {
    let is_long = |name: &std::ffi::OsStr| name.len() >= LOOKED_FOR_BYTES;
    if !path.file_name().is_some_and(is_long) {
        return Ok(());
    }
    match path.symlink_metadata() {
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => {
            let error = Error::new(ErrorKind::Unsupported, "write", show(shown));
            Err(error
                .cause(
                    "the file system took it and has nothing of that name: it may cut long names",
                )
                .hint("give it a shorter name")
                .at(Locus::Destination))
        }
        Ok(_) | Err(_) => Ok(()),
    }
}
