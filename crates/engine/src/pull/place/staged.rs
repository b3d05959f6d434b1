//! Unfinished files: their place, and their ends.

use std::{fs::File, os::fd::OwnedFd, path::Path};

use posthaste_endpoint::{Error, ErrorKind, Locus, Result, posix::close};
use rustix::{
    fs::{AtFlags, Mode, OFlags, fremovexattr, fstat, mkdirat, openat, unlinkat},
    io::Errno,
    process::geteuid,
};

use super::{Destination, at, attributes::unless_refused};
use crate::dataset::ACCESS_LISTS;

/// Makes the staging directory, or opens the one that an earlier run left. A directory that
/// somebody else made is refused: what is written into it would be theirs.
pub(super) fn open(root: &OwnedFd, root_path: &Path, name: &str) -> Result<OwnedFd> {
    let failed = |cause: Errno| at(root_path, "write to", cause.into());
    let is_new = match mkdirat(root, name, Mode::RWXU) {
        Ok(()) => true,
        Err(Errno::EXIST) => false,
        Err(cause) => return Err(failed(cause)),
    };
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let staging = openat(root, name, flags, Mode::empty()).map_err(failed)?;
    let owner = fstat(&staging).map_err(failed)?.st_uid;
    if is_new || owner == geteuid().as_raw() {
        drop_inherited(&staging).map_err(failed)?;
        return Ok(staging);
    }
    let shown = root_path.join(name).display().to_string();
    Err(Error::new(ErrorKind::Conflict, "write to", shown)
        .at(Locus::Destination)
        .cause("somebody else made it")
        .hint("remove it, or pull to another directory"))
}
/// Removes the access lists that a new directory inherits, so that they give nobody access to what
/// comes into it: files and directories have the lists of their sources, or none.
pub(super) fn drop_inherited(directory: &OwnedFd) -> rustix::io::Result<()> {
    for list in ACCESS_LISTS {
        match fremovexattr(directory, list) {
            Err(Errno::NODATA) => {}
            removed => drop(unless_refused(removed)?),
        }
    }
    Ok(())
}

impl Destination {
    /// Closes an unfinished file, and learns of lost bytes, whoever wrote them. The system reports
    /// a loss once, so nothing is kept of such a file: as long as this chunk is missing, nobody
    /// gives the file its name.
    pub(super) fn close_staged(&self, index: usize, file: File) -> Result<()> {
        close(file).map_err(|cause| {
            self.unstage(index);
            self.failed(self.file(index), cause)
        })
    }

    /// Removes an unfinished file. What can't be is read again before it is believed.
    pub(in crate::pull) fn unstage(&self, index: usize) {
        let _ = unlinkat(&self.staging, index.to_string(), AtFlags::empty());
    }
}
