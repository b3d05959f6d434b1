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

/// Makes the directory for what is unfinished, or opens the one that an earlier run left. One that
/// somebody else made is no such: what is in it would be written to, and be theirs.
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
/// Removes the access lists that a new directory has from the one it is in, so that nobody gets at
/// what comes into it by those: files and directories have the lists of their sources, or none.
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
    /// Closes an unfinished file, and hears what was lost of it, whoever wrote that. It is told
    /// once, so nothing is kept of one that lost some: as long as this chunk is missing, nobody
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
