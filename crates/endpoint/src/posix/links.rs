//! Symbolic links.

use std::{
    ffi::OsStr,
    fs, io,
    os::unix::ffi::{OsStrExt, OsStringExt},
    path::Path,
};

use rustix::{fs::AtFlags, io::Errno};

use super::{Place, attributes, partial, show, special};
use crate::{Error, ErrorKind, FileSpec, Locus, Result, unkept::Unkept};

/// Makes a symbolic link under its final name, replacing a file or link. Returns the attributes
/// that the file system refuses to keep. Blocks.
///
/// # Errors
/// [`ErrorKind::Unsupported`] if the file system has no links; the system's errors.
pub fn make_link(path: &Path, target: &[u8], spec: &FileSpec) -> Result<Unkept> {
    special::refuse_special("make link", &Place::plain(path.to_owned()))?;
    let fail = |cause| Error::io("make link", show(path), cause).at(Locus::Destination);
    let draft = partial::own_path(path);
    rustix::fs::symlink(OsStr::from_bytes(target), &draft).map_err(|cause| match cause {
        // symlink(2) fails so on file systems without links.
        Errno::PERM | Errno::NOSYS | Errno::NOTSUP | Errno::INVAL => {
            Error::new(ErrorKind::Unsupported, "make link", show(path))
                .cause(cause)
                .hint("--links follow copies what links point to")
                .at(Locus::Destination)
        }
        cause => fail(cause.into()),
    })?;
    let set_times = |times: &_| attributes::set_times_at(&draft, times, AtFlags::SYMLINK_NOFOLLOW);
    let set = attributes::set((None, |_| Ok(())), (spec.mtime, set_times));
    let made = set.map_err(io::Error::from).and_then(|refused| {
        let found = fs::symlink_metadata(&draft)?;
        let unkept = attributes::not_kept(refused, (None, spec.mtime), &found);
        fs::rename(&draft, path)?;
        Ok(unkept)
    });
    made.map_err(|cause| {
        let _ = fs::remove_file(&draft);
        fail(cause)
    })
}

/// Returns the target of a symbolic link. Blocks.
///
/// # Errors
/// The system's errors.
pub fn read_link(path: &Path) -> Result<Vec<u8>> {
    let target = fs::read_link(path)
        .map_err(|cause| Error::io("read link", show(path), cause).at(Locus::Source))?;
    Ok(target.into_os_string().into_vec())
}
