//! Compares what lies at a source with what was sealed.

use std::{fs, os::unix::fs::MetadataExt};

use posthaste_engine::dataset::{FileEntry, FileKind, changed_ns};
use posthaste_types::Timestamp;

/// Returns whether its mode, owner or attributes changed, or its bytes changed and its time was set
/// back.
pub(super) fn is_touched(entry: &FileEntry, found: &fs::Metadata) -> bool {
    entry.changed_ns != 0 && entry.changed_ns != changed_ns(found)
}

/// Returns whether its kind, size, inode and time of change are those of the entry.
pub(super) fn is_as_sealed(entry: &FileEntry, found: &fs::Metadata) -> bool {
    let size_is_same = match entry.kind {
        FileKind::Regular => found.is_file() && found.len() == entry.size,
        FileKind::Symlink { .. } => found.is_symlink(),
        FileKind::Directory => found.is_dir(),
        FileKind::LeftOut => false,
    };
    let mtime = (entry.mtime_s, i64::from(entry.mtime_ns));
    size_is_same && found.ino() == entry.inode && (found.mtime(), found.mtime_nsec()) == mtime
}

/// Returns whether nothing of a file, including its name, is newer than this. Otherwise its source
/// may have been released after the backup, and another file may have its name, number and time.
pub(super) fn is_older(found: &fs::Metadata, made: Timestamp) -> bool {
    let made = i128::from(made.as_micros()) * 1000;
    i128::from(found.ctime()) * 1_000_000_000 + i128::from(found.ctime_nsec()) <= made
}
