//! Modes and times of files in place, as far as the destination keeps them.

use std::sync::PoisonError;

use posthaste_endpoint::{
    FileTime, Result, Unkept,
    posix::{as_last_read, is_refused, not_kept_of, without_lent_rights},
};
use rustix::fs::{
    AtFlags, Mode, Stat, Timespec, Timestamps, chmodat, fchmod, fstat, futimens, statat, utimensat,
};

use super::Destination;
use crate::dataset::{FileEntry, FileKind};

type Done<T = ()> = rustix::io::Result<T>;

impl Destination {
    /// Returns what files and directories are without, because it was refused, or accepted and not
    /// kept.
    pub(in crate::pull) fn unkept(&self) -> Unkept {
        *self.unkept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Restores mode and mtime if they differ; of a link its mtime.
    pub(super) fn restore(&self, file: &FileEntry) -> Result<()> {
        let (parent, name) = self.parent(file)?;
        let flags = AtFlags::SYMLINK_NOFOLLOW;
        let is_link = matches!(file.kind, FileKind::Symlink { .. });
        let mode = (!is_link).then(|| mode_of(file));
        self.seal(
            file,
            || statat(&parent, name, flags),
            (mode, |mode| chmodat(&parent, name, mode, AtFlags::empty())),
            |times| utimensat(&parent, name, times, flags),
        )
    }

    /// Restores the attributes of the destination itself: its mode only if nobody had chosen that.
    pub(super) fn restore_root(&self, root: &FileEntry) -> Result<()> {
        if self.is_fresh {
            self.give_directory_extras(root)?;
        }
        let mode = self.is_fresh.then(|| mode_of(root));
        self.seal(
            root,
            || fstat(&self.root),
            (mode, |mode| fchmod(&self.root, mode)),
            |times| futimens(&self.root, times),
        )
    }

    /// Sets what differs, and counts what is not kept of it.
    fn seal(
        &self,
        file: &FileEntry,
        look: impl Fn() -> Done<Stat>,
        (mode, set_mode): (Option<Mode>, impl FnOnce(Mode) -> Done),
        set_times: impl FnOnce(&Timestamps) -> Done,
    ) -> Result<()> {
        let failed = |cause| self.failed(file, cause);
        let found = look().map_err(failed)?;
        let mode = mode.filter(|mode| found.st_mode & 0o7777 != mode.as_raw_mode());
        let wanted = FileTime {
            secs: file.mtime_s,
            nanos: file.mtime_ns,
        };
        let mtime = (mtime_of(&found) != Some(wanted)).then_some(wanted);
        if mode.is_none() && mtime.is_none() {
            return Ok(());
        }
        let mut refused = Unkept::default();
        if let Some(mode) = mode {
            let is_set = unless_refused(set_mode(mode)).map_err(failed)?;
            refused.modes = u64::from(!is_set);
        }
        if mtime.is_some() {
            let is_set = unless_refused(set_times(&times(file, &found))).map_err(failed)?;
            refused.times = u64::from(!is_set);
        }
        // An attribute that can't be read was set all the same.
        let unkept = look().map_or(refused, |found| {
            let wanted = (mode.map(Mode::as_raw_mode), mtime);
            not_kept_of(refused, wanted, (found.st_mode, mtime_of(&found)))
        });
        *self.unkept.lock().unwrap_or_else(PoisonError::into_inner) += unkept;
        Ok(())
    }
}

fn mtime_of(found: &Stat) -> Option<FileTime> {
    let nanos = u32::try_from(found.st_mtime_nsec).ok()?;
    Some(FileTime {
        secs: found.st_mtime,
        nanos,
    })
}

/// Returns the mode it gets: for files without set-ID bits, because owners are not kept. A
/// directory's set-group-ID bit only chooses the group of new files and lends no rights.
pub(super) fn mode_of(file: &FileEntry) -> Mode {
    Mode::from_raw_mode(match file.kind {
        FileKind::Regular => without_lent_rights(file.mode),
        FileKind::Directory | FileKind::Symlink { .. } | FileKind::LeftOut => file.mode,
    })
}

/// Returns whether an attribute was set; `false` if the file system refuses to keep it.
pub(super) fn unless_refused(set: Done) -> Done<bool> {
    match set {
        Err(cause) if is_refused(cause) => Ok(false),
        set => set.map(|()| true),
    }
}

/// Returns the file's time of change; the time of the last read stays as found.
pub(super) fn times(file: &FileEntry, found: &Stat) -> Timestamps {
    let mtime = Timespec {
        tv_sec: file.mtime_s,
        tv_nsec: i64::from(file.mtime_ns),
    };
    as_last_read(mtime, found)
}
