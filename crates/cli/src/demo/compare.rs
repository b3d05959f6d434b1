//! Comparison of the delivered tree with the original.

use std::{
    collections::BTreeSet,
    fs,
    io::Read,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use posthaste_engine::dataset::{FileEntry, FileKind};

use super::tree::Tree;

/// Bytes compared at once.
const BLOCK_BYTES: usize = 1 << 20;
/// Permission bits, and the sticky bit. Bits that lend an owner's rights stay behind, as `pull`
/// says.
const MODE_BITS: u32 = 0o1777;

/// Lists the differences between the tree and its copy at `home`, a line each: names, kinds, every
/// byte, modes, modification times, link targets. Empty if there are none.
pub(super) fn differences(tree: &Tree, home: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut expected = BTreeSet::new();
    for entry in tree.entries() {
        let copy = entry.below(home);
        if let Some(difference) = difference(entry, &entry.below(tree.root()), &copy) {
            found.push(format!("{}: {difference}", copy.display()));
        }
        expected.insert(copy);
    }
    collect_extra(home, &expected, &mut found);
    found
}

fn collect_extra(directory: &Path, expected: &BTreeSet<PathBuf>, found: &mut Vec<String>) {
    let Ok(entries) = fs::read_dir(directory) else {
        found.push(format!("{}: can't be listed", directory.display()));
        return;
    };
    for entry in entries.flatten() {
        let path = entry.path();
        if !expected.contains(&path) {
            found.push(format!("{}: should not be there", path.display()));
        } else if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            collect_extra(&path, expected, found);
        }
    }
}

fn difference(entry: &FileEntry, original: &Path, copy: &Path) -> Option<String> {
    let (Ok(left), Ok(right)) = (fs::symlink_metadata(original), fs::symlink_metadata(copy)) else {
        return Some("is missing".into());
    };
    if left.file_type() != right.file_type() {
        return Some("is of another kind".into());
    }
    if let FileKind::Symlink { .. } = entry.kind {
        let same = fs::read_link(original).ok() == fs::read_link(copy).ok();
        return (!same).then(|| "points elsewhere".into());
    }
    if left.mode() & MODE_BITS != right.mode() & MODE_BITS {
        return Some(format!("mode {:o} became {:o}", left.mode(), right.mode()));
    }
    if (left.mtime(), left.mtime_nsec()) != (right.mtime(), right.mtime_nsec()) {
        return Some("has another modification time".into());
    }
    match entry.kind {
        FileKind::Regular if !same_bytes(original, copy) => Some("has other bytes".into()),
        FileKind::Regular | FileKind::Directory | FileKind::Symlink { .. } | FileKind::LeftOut => {
            None
        }
    }
}

fn same_bytes(left: &Path, right: &Path) -> bool {
    let (Ok(mut left), Ok(mut right)) = (fs::File::open(left), fs::File::open(right)) else {
        return false;
    };
    let (mut ours, mut theirs) = (vec![0; BLOCK_BYTES], vec![0; BLOCK_BYTES]);
    loop {
        let Ok(length) = left.read(&mut ours) else {
            return false;
        };
        if length == 0 {
            return right.read(&mut theirs).is_ok_and(|length| length == 0);
        }
        if right.read_exact(&mut theirs[..length]).is_err() || ours[..length] != theirs[..length] {
            return false;
        }
    }
}
