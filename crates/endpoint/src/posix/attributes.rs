//! Modes and times, as far as a file system keeps them.

use std::{
    fs::{self, File, Metadata},
    io,
    os::unix::fs::MetadataExt,
    path::Path,
};

use rustix::{
    fs::{AtFlags, CWD, Mode, Stat, Timespec, Timestamps, UTIME_OMIT},
    io::Errno,
};

use super::{clock::STEP_NS_MAX, entry_of, show};
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

/// Returns the mode of a file whose owner is not kept: set-user-ID and set-group-ID would lend
/// another one's rights.
#[must_use]
pub fn without_lent_rights(mode: u32) -> u32 {
    mode & !0o6000
}

/// Returns whether an error means that a file system does not keep an attribute, as on SMB, FUSE
/// and FAT. It may also mean that only an owner may change it.
#[must_use]
pub fn is_refused(cause: Errno) -> bool {
    matches!(
        cause,
        Errno::PERM | Errno::ACCESS | Errno::NOSYS | Errno::NOTSUP | Errno::INVAL
    )
}

/// Sets a mode and a time if present, and returns what is refused.
///
/// # Errors
/// The system's errors of other kinds.
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

/// Adds to the refused mode and time those that the file system accepted and reports otherwise:
/// some accept each mode and keep their own. A time that is rounded is kept.
pub(super) fn not_kept(
    refused: Unkept,
    (mode, mtime): (Option<u32>, Option<FileTime>),
    found: &Metadata,
) -> Unkept {
    let told = entry_of(Vec::new(), found).mtime;
    not_kept_of(refused, (mode, mtime), (found.mode(), told))
}

/// Counts as `not_kept` does, for a mode and perhaps a time that were found in another way.
#[must_use]
pub fn not_kept_of(
    refused: Unkept,
    (mode, mtime): (Option<u32>, Option<FileTime>),
    (found, told): (u32, Option<FileTime>),
) -> Unkept {
    let other_mode = mode.is_some_and(|mode| mode != found & 0o7777);
    let other_time = mtime
        .zip(told)
        .is_some_and(|(mtime, told)| !mtime.agrees(told, STEP_NS_MAX));
    Unkept {
        modes: refused.modes.max(other_mode.into()),
        times: refused.times.max(other_time.into()),
    }
}

/// Returns the times to set: the given last change, and the last read as found. Some file systems
/// (libfuse 2) set both times, or silently none.
#[must_use]
pub fn as_last_read(last_modification: Timespec, found: &Stat) -> Timestamps {
    let last_access = Timespec {
        tv_sec: found.st_atime,
        tv_nsec: i64::try_from(found.st_atime_nsec).unwrap_or(UTIME_OMIT),
    };
    Timestamps {
        last_access,
        last_modification,
    }
}

/// Sets the modification time of an open file.
pub(super) fn set_file_times(file: &File, times: &Timestamps) -> Result<(), Errno> {
    let found = rustix::fs::fstat(file)?;
    rustix::fs::futimens(file, &as_last_read(times.last_modification, &found))
}

/// Sets the times of the entry at a path.
pub(super) fn set_times_at(path: &Path, times: &Timestamps, flags: AtFlags) -> Result<(), Errno> {
    let found = rustix::fs::statat(CWD, path, flags)?;
    let times = as_last_read(times.last_modification, &found);
    rustix::fs::utimensat(CWD, path, &times, flags)
}

/// Gives an open file its mode and mtime. Returns which of them the file system does not keep. The
/// time of its last read stays: purges go by that. Blocks.
///
/// # Errors
/// The system's errors.
pub fn seal_file(file: &File, mode: Option<u32>, mtime: Option<FileTime>) -> io::Result<Unkept> {
    let set_mode = |mode| rustix::fs::fchmod(file, mode);
    let set_times = |times: &_| set_file_times(file, times);
    let refused = set((mode, set_mode), (mtime, set_times))?;
    // Attributes that can't be looked at were set all the same.
    let found = file.metadata().ok();
    Ok(found.map_or(refused, |found| not_kept(refused, (mode, mtime), &found)))
}

/// Gives a directory its mode and mtime. Returns which of them the file system does not keep.
/// Blocks.
///
/// # Errors
/// The system's errors.
pub fn seal_directory(path: &Path, entry: &Entry) -> Result<Unkept> {
    let set_mode = |mode| rustix::fs::chmodat(CWD, path, mode, AtFlags::empty());
    let set_times = |times: &_| set_times_at(path, times, AtFlags::empty());
    let fail = |cause| Error::io("set the attributes of", show(path), cause).at(Locus::Destination);
    let refused = set((entry.mode, set_mode), (entry.mtime, set_times));
    let refused = refused.map_err(|cause| fail(cause.into()))?;
    // Attributes that can't be looked at were set all the same.
    let found = fs::metadata(path).ok();
    Ok(found.map_or(refused, |found| {
        not_kept(refused, (entry.mode, entry.mtime), &found)
    }))
}
