//! Compares what lies at a source with what was sealed.

use std::{fs, os::unix::fs::MetadataExt};

use posthaste_engine::dataset::{FileEntry, FileKind, NOBODY_KNOWS, changed_ns};
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

/// Returns whether a file that we moved aside is as it was sealed, its change time apart: that is
/// ours.
pub(super) fn is_only_moved(entry: &FileEntry, found: &fs::Metadata) -> bool {
    let knows = |wanted: u32, is: u32| wanted == NOBODY_KNOWS || wanted == is;
    let is_link = matches!(entry.kind, FileKind::Symlink { .. });
    let has_rights = is_link || entry.mode == found.mode() & 0o7777;
    let has_owner = knows(entry.owner, found.uid()) && knows(entry.group, found.gid());
    is_as_sealed(entry, found) && has_rights && has_owner
}

/// Returns whether nothing of a file, including its name, is newer than this. Otherwise its source
/// may have been released after the backup, and another file may have its name, number and time.
pub(super) fn is_older(found: &fs::Metadata, made: Timestamp) -> bool {
    let made = i128::from(made.as_micros()) * 1000;
    i128::from(found.ctime()) * 1_000_000_000 + i128::from(found.ctime_nsec()) <= made
}
