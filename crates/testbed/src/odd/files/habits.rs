//! What a file system does otherwise than its folder.

use std::{ffi::OsStr, os::unix::ffi::OsStrExt, path::Path};

use unicode_normalization::UnicodeNormalization;

/// What a file system is asked to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Deed {
    /// Tell what lies under a name.
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
    /// Cut or lengthen a file.
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
    /// What it is to do.
    pub deed: Deed,
    /// To which path below the mount; an open file keeps the one that it was opened by.
    pub path: &'a Path,
    /// Where a write or a read ends, in bytes; elsewhere how large the file is.
    pub end: u64,
}

impl Call<'_> {
    /// Whether the path has this text in it.
    pub fn has(&self, text: &str) -> bool {
        self.path.to_string_lossy().contains(text)
    }
}

/// Returns which error a call ends with, as errno(3) numbers it; with none, it does what was asked.
pub type Refuses = Box<dyn Fn(&Call) -> Option<i32> + Send + Sync>;

/// How a file system is other than its folder.
pub struct Habits {
    /// What it refuses.
    pub refuses: Refuses,
    /// Seconds of its clock's step; 0 keeps nanoseconds.
    pub step_s: u64,
    /// It takes each mode and tells the same one always.
    pub fixed_modes: bool,
    /// It takes each time and tells when a file was written.
    pub forgets_times: bool,
    /// It takes a time only together with the other one, and else says that it did, as with libfuse 2.
    pub both_times_or_none: bool,
    /// In which directories names are one that differ in case, in how accents are written, or in dots and spaces at the end.
    pub folds_names: fn(&Path) -> bool,
    /// Bytes of a name that a rename keeps; 0 keeps all.
    pub cuts_names: usize,
    /// A file that is removed while it is open stays under a hidden name until it is closed, as on NFS and FUSE.
    pub hides_open: bool,
    /// It takes what is written, and keeps zeros.
    pub loses_writes: bool,
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
        }
    }
}

impl Habits {
    /// What a rename keeps of a name.
    pub(super) fn cut<'a>(&self, name: &'a OsStr) -> &'a OsStr {
        match self.cuts_names {
            0 => name,
            most => OsStr::from_bytes(&name.as_bytes()[..name.len().min(most)]),
        }
    }

    /// Those of one that is other in what it refuses alone.
    pub fn refusing(refuses: impl Fn(&Call) -> Option<i32> + Send + Sync + 'static) -> Self {
        Self {
            refuses: Box::new(refuses),
            ..Self::default()
        }
    }
}

/// What names become that are one.
pub(super) fn folded(name: &OsStr) -> String {
    let name = name.to_string_lossy().to_lowercase();
    let name = name.trim_end_matches(['.', ' ']);
    name.nfc().collect()
}
