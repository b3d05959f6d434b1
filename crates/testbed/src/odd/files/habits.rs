//! Deviations of a file system from its folder.

use std::{ffi::OsStr, os::unix::ffi::OsStrExt, path::Path};

use fuser::ReplyStatfs;
use unicode_normalization::UnicodeNormalization;

/// Operation of a file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Deed {
    /// Look up a name.
    Look,
    /// List a directory.
    List,
    /// Make a directory.
    MakeDirectory,
    /// Make a symbolic link.
    MakeLink,
    /// Make and open a file.
    Create,
    /// Open a file.
    Open,
    /// Read from an open file.
    Read,
    /// Write to an open file.
    Write,
    /// Shorten or lengthen a file.
    SetSize,
    /// Set a mode.
    SetMode,
    /// Set times.
    SetTimes,
    /// Put a file on the disk.
    Sync,
    /// Close a file.
    Close,
    /// Give a file another name.
    Rename,
    /// Remove a file.
    Remove,
}

/// A call of the file system.
#[derive(Debug)]
pub struct Call<'a> {
    /// Operation.
    pub deed: Deed,
    /// Path below the mount; an open file keeps the one that it was opened by.
    pub path: &'a Path,
    /// End of a write or a read, in bytes; elsewhere the size of the file.
    pub end: u64,
}

impl Call<'_> {
    /// Returns whether the path contains this text.
    pub fn has(&self, text: &str) -> bool {
        self.path.to_string_lossy().contains(text)
    }
}

/// Function that returns the error of a call, as errno(3) numbers it; none if the call succeeds.
pub type Refuses = Box<dyn Fn(&Call) -> Option<i32> + Send + Sync>;

/// Deviations of a file system from its folder.
pub struct Habits {
    /// Rejected calls.
    pub refuses: Refuses,
    /// Seconds of its clock's step; 0 keeps nanoseconds.
    pub step_s: u64,
    /// True if it accepts each mode and always shows the same one.
    pub fixed_modes: bool,
    /// True if it accepts each time and shows the time of the last write.
    pub forgets_times: bool,
    /// True if it sets a time only together with the other one, and else pretends success, as with
    /// libfuse 2.
    pub both_times_or_none: bool,
    /// Directories in which names are equal that differ in case, in the form of accents, or in dots
    /// and spaces at the end.
    pub folds_names: fn(&Path) -> bool,
    /// Bytes of a name that a rename keeps; 0 keeps all.
    pub cuts_names: usize,
    /// True if a file removed while open stays under a hidden name until it is closed, as on NFS
    /// and FUSE.
    pub hides_open: bool,
    /// True if it accepts written bytes and stores zeros.
    pub loses_writes: bool,
    /// Blocks of 4 KiB that it reports as free.
    pub free_blocks: u64,
}

impl Default for Habits {
    fn default() -> Self {
        Self {
            refuses: Box::new(|_| None),
            step_s: 0,
            fixed_modes: false,
            forgets_times: false,
            both_times_or_none: false,
            folds_names: |_| false,
            cuts_names: 0,
            hides_open: false,
            loses_writes: false,
            free_blocks: 1 << 30,
        }
    }
}

impl Habits {
    /// Reports its size and what of it is free.
    pub(super) fn tell_space(&self, reply: ReplyStatfs) {
        let (all, free) = (1 << 30, self.free_blocks);
        reply.statfs(all, free, free, all, all, 4096, 255, 4096);
    }

    /// Returns the name that a rename keeps.
    pub(super) fn cut<'a>(&self, name: &'a OsStr) -> &'a OsStr {
        match self.cuts_names {
            0 => name,
            most => OsStr::from_bytes(&name.as_bytes()[..name.len().min(most)]),
        }
    }

    /// Returns habits that differ in rejected calls alone.
    pub fn refusing(refuses: impl Fn(&Call) -> Option<i32> + Send + Sync + 'static) -> Self {
        Self {
            refuses: Box::new(refuses),
            ..Self::default()
        }
    }
}

/// Returns the common form of equal names.
pub(super) fn folded(name: &OsStr) -> String {
    let name = name.to_string_lossy().to_lowercase();
    let name = name.trim_end_matches(['.', ' ']);
    name.nfc().collect()
}
