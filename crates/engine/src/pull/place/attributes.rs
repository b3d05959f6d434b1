//! Modes and times of what is in its place, as far as the destination keeps them.

use std::sync::PoisonError;

use posthaste_endpoint::{
    Result, Unkept,
    posix::{is_refused, without_lent_rights},
};
use rustix::fs::{AtFlags, Mode, Timespec, Timestamps, chmodat, statat, utimensat};

use super::Destination;
use crate::dataset::{FileEntry, FileKind};

impl Destination {
    /// What files and directories are there without, because it was refused.
    pub(in crate::pull) fn unkept(&self) -> Unkept {
        *self.unkept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts an attribute that the file system refuses to keep.
    pub(super) fn note(
        &self,
        set: rustix::io::Result<()>,
        file: &FileEntry,
        count: impl FnOnce(&mut Unkept),
    ) -> Result<()> {
        let is_kept = unless_refused(set).map_err(|cause| self.failed(file, cause))?;
        if !is_kept {
            count(&mut self.unkept.lock().unwrap_or_else(PoisonError::into_inner));
        }
        Ok(())
    }

    /// Mode and mtime of what is there, where they differ.
    pub(super) fn restore(&self, file: &FileEntry) -> Result<()> {
        let (parent, name) = self.parent(file)?;
        let failed = |cause| self.failed(file, cause);
        let stat = statat(&parent, name, AtFlags::SYMLINK_NOFOLLOW).map_err(failed)?;
        let mode = mode_of(file);
        if stat.st_mode & 0o7777 != mode.as_raw_mode() {
            let set = chmodat(&parent, name, mode, AtFlags::empty());
            self.note(set, file, |unkept| unkept.modes += 1)?;
        }
        let is_in_time =
            stat.st_mtime == file.mtime_s && stat.st_mtime_nsec == u64::from(file.mtime_ns);
        if is_in_time {
            return Ok(());
        }
        let set = utimensat(&parent, name, &times(file), AtFlags::SYMLINK_NOFOLLOW);
        self.note(set, file, |unkept| unkept.times += 1)
    }
}

/// The mode it gets. Owners are not kept; the group of a directory's new files is nobody's right.
pub(super) fn mode_of(file: &FileEntry) -> Mode {
    Mode::from_raw_mode(match file.kind {
        FileKind::Regular => without_lent_rights(file.mode),
        FileKind::Directory | FileKind::Symlink { .. } => file.mode,
    })
}

/// Whether an attribute was set; not where the file system refuses to keep it.
pub(super) fn unless_refused(set: rustix::io::Result<()>) -> rustix::io::Result<bool> {
    match set {
        Err(cause) if is_refused(cause) => Ok(false),
        set => set.map(|()| true),
    }
}

pub(super) fn times(file: &FileEntry) -> Timestamps {
    let mtime = Timespec {
        tv_sec: file.mtime_s,
        tv_nsec: i64::from(file.mtime_ns),
    };
    let atime = Timespec {
        tv_sec: 0,
        tv_nsec: rustix::fs::UTIME_OMIT,
    };
    Timestamps {
        last_access: atime,
        last_modification: mtime,
    }
}
