//! Modes and times, as far as a file system keeps them.

use std::path::Path;

use rustix::{
    fs::{AtFlags, CWD, Mode, Timespec, Timestamps},
    io::Errno,
};

use super::show;
use crate::{
    Error, Locus, Result,
    endpoint::{Entry, FileTime},
    unkept::Unkept,
};

pub(super) fn timestamps(mtime: FileTime) -> Timestamps {
    let time = Timespec {
        tv_sec: mtime.secs,
        tv_nsec: mtime.nanos.into(),
    };
    Timestamps {
        last_access: time,
        last_modification: time,
    }
}

/// The mode that a file gets whose owner is not kept: set-user-ID and set-group-ID would lend another one's rights.
#[must_use]
pub fn without_lent_rights(mode: u32) -> u32 {
    mode & !0o6000
}

/// Whether a file system says so of what it does not keep, as SMB, FUSE and FAT do, or that only an owner may change it.
#[must_use]
pub fn is_refused(cause: Errno) -> bool {
    matches!(
        cause,
        Errno::PERM | Errno::ACCESS | Errno::NOSYS | Errno::NOTSUP | Errno::INVAL
    )
}

/// Sets what there is to set of a file, and tells what is refused.
///
/// # Errors
/// The system's, where it is of another kind.
pub(super) fn set(
    (mode, set_mode): (Option<u32>, impl FnOnce(Mode) -> Result<(), Errno>),
    (mtime, set_times): (
        Option<FileTime>,
        impl FnOnce(&Timestamps) -> Result<(), Errno>,
    ),
) -> Result<Unkept, Errno> {
    let count = |set: Option<Result<(), Errno>>| match set {
        Some(Err(cause)) if is_refused(cause) => Ok(1),
        Some(Err(cause)) => Err(cause),
        Some(Ok(())) | None => Ok(0),
    };
    Ok(Unkept {
        modes: count(mode.map(|mode| set_mode(Mode::from_raw_mode(mode))))?,
        times: count(mtime.map(|mtime| set_times(&timestamps(mtime))))?,
    })
}

/// Gives a directory its mode and mtime, and tells which of them the file system refuses. Blocks.
///
/// # Errors
/// The system's.
pub fn seal_directory(path: &Path, entry: &Entry) -> Result<Unkept> {
    let set_mode = |mode| rustix::fs::chmodat(CWD, path, mode, AtFlags::empty());
    let set_times = |times: &_| rustix::fs::utimensat(CWD, path, times, AtFlags::empty());
    set((entry.mode, set_mode), (entry.mtime, set_times)).map_err(|cause| {
        Error::io("set the attributes of", show(path), cause.into()).at(Locus::Destination)
    })
}
