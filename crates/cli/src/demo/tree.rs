//! Tree that the demo transfers: the user's, or some of one that is on every machine.

use std::{
    fs, io,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
};

use posthaste_endpoint::{Error, ErrorKind, Locus};
use posthaste_engine::dataset::{self, FileEntry, FileKind, FileList};

use crate::failure::{Exit, Failure};

/// Trees with small and large files on every Linux machine.
const CANDIDATES: [&str; 3] = ["/usr/lib", "/usr/share", "/usr"];
/// Bytes copied from such a tree.
const BYTES_WANTED: u64 = 300 << 20;
/// Least size of a tree that shows anything.
const BYTES_MIN: u64 = 50 << 20;
/// Largest file included, so that there are many.
const FILE_BYTES_MAX: u64 = 64 << 20;

/// Tree, or a selection from one.
#[derive(Debug)]
pub(super) struct Tree {
    root: PathBuf,
    entries: Vec<FileEntry>,
}

/// Selects `directory`, or some of the first candidate that is large enough.
pub(super) fn choose(directory: Option<&Path>) -> Result<Tree, Failure> {
    if let Some(directory) = directory {
        let root = std::path::absolute(directory).map_err(anyhow::Error::from)?;
        if !root.is_dir() {
            let error = Error::new(ErrorKind::NotFound, "move", root.display().to_string())
                .at(Locus::Destination)
                .cause("it is no directory");
            return Err(error.into());
        }
        let list = dataset::scan(&root)?;
        return Ok(Tree {
            root,
            entries: list.files,
        });
    }
    for candidate in CANDIDATES {
        let root = PathBuf::from(candidate);
        let Ok(list) = dataset::scan(&root) else {
            continue;
        };
        let entries = take_some(&root, &list);
        let tree = Tree { root, entries };
        if tree.bytes() >= BYTES_MIN {
            return Ok(tree);
        }
    }
    Err(Failure::new(
        Exit::FileNotFound,
        "no tree of this machine is large enough (name one)",
    ))
}

/// Returns the first readable entries of the list, up to the size wanted.
fn take_some(root: &Path, list: &FileList) -> Vec<FileEntry> {
    let mut bytes = 0;
    let mut taken = Vec::new();
    for entry in &list.files {
        let is_regular = matches!(entry.kind, FileKind::Regular);
        if is_regular && fs::File::open(entry.below(root)).is_err() {
            continue;
        }
        if is_regular && entry.size > FILE_BYTES_MAX {
            continue;
        }
        bytes += entry.size;
        taken.push(entry.clone());
        if bytes >= BYTES_WANTED {
            break;
        }
    }
    taken
}

impl Tree {
    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    pub(super) fn bytes(&self) -> u64 {
        self.entries.iter().map(|entry| entry.size).sum()
    }

    pub(super) fn files(&self) -> u64 {
        self.entries
            .iter()
            .filter(|entry| matches!(entry.kind, FileKind::Regular))
            .count() as u64
    }

    pub(super) fn entries(&self) -> &[FileEntry] {
        &self.entries
    }

    /// Copies the tree with modes and times to `destination`, which does not exist yet.
    pub(super) fn copy_to(&self, destination: &Path) -> Result<(), Failure> {
        let failed = |path: &Path, cause| {
            Failure::from(Error::io("copy", path.display().to_string(), cause))
        };
        for entry in &self.entries {
            let from = entry.below(&self.root);
            let to = entry.below(destination);
            match &entry.kind {
                FileKind::Directory => fs::create_dir(&to),
                FileKind::Symlink { .. } => {
                    fs::read_link(&from).and_then(|target| symlink(target, &to))
                }
                FileKind::Regular => copy_file(&from, &to),
                FileKind::LeftOut => Ok(()),
            }
            .map_err(|cause| failed(&from, cause))?;
        }
        // Last, from the leaves up: each file created above moved its directory's time.
        let directories = self.entries.iter().rev();
        for entry in directories.filter(|entry| matches!(entry.kind, FileKind::Directory)) {
            let from = entry.below(&self.root);
            let to = entry.below(destination);
            copy_times_and_mode(&from, &to).map_err(|cause| failed(&from, cause))?;
        }
        Ok(())
    }
}

fn copy_file(from: &Path, to: &Path) -> io::Result<()> {
    fs::copy(from, to)?;
    copy_times_and_mode(from, to)
}

fn copy_times_and_mode(from: &Path, to: &Path) -> io::Result<()> {
    let original = fs::metadata(from)?;
    let times = fs::FileTimes::new().set_modified(original.modified()?);
    fs::File::open(to)?.set_times(times)?;
    fs::set_permissions(to, original.permissions())
}
