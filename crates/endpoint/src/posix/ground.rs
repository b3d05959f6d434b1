//! Access to files beneath a root, through no link.

use std::{
    ffi::OsStr,
    os::{fd::OwnedFd, unix::ffi::OsStrExt},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use rustix::io::Errno;

use super::{
    beneath::{Beneath, Follow, Place, split},
    directory::make_directory,
    show,
};
use crate::{Error, ErrorKind, Locus, Result, clock};

/// Directories recently used for writing or reading files.
#[derive(Debug, Default)]
pub(super) struct Ground {
    root: Mutex<Option<Arc<Beneath>>>,
    last: Mutex<Option<Last>>,
}

/// Directory that was used last. Files come in order, so the next one is likely there too.
#[derive(Debug)]
struct Last {
    path: Vec<u8>,
    folder: Arc<OwnedFd>,
    opened: Instant,
}

/// Time after which an open directory may have been moved away.
const OPENED_MAX: Duration = Duration::from_secs(1);

impl Ground {
    /// Returns the place of `path` below `root`, and makes the directories above it if `make`.
    /// Blocks.
    pub(super) fn place(&self, root: &Path, path: &[u8], make: bool) -> Result<Place> {
        let plain = below(root, path);
        let (parent, name) = split(path);
        if path.is_empty() {
            return Ok(Place::plain(plain));
        }
        if make && self.known().is_none() {
            make_directory(root)?;
        }
        let folder = self.folder(root, parent, make);
        let folder = folder.map_err(|cause| on_the_way(&plain, cause))?;
        Ok(Place::within(folder, name).called(plain))
    }

    /// Returns the directory at `path` below `root` itself. Blocks.
    pub(super) fn directory(&self, root: &Path, path: &[u8]) -> Result<Place> {
        let plain = below(root, path);
        if path.is_empty() {
            return Ok(Place::plain(plain));
        }
        let found = self.beneath(root);
        let found = found.and_then(|root| root.folder(path, false));
        let found = found.map_err(|cause| on_the_way(&plain, cause))?;
        Ok(Place::opened(found).called(plain))
    }

    /// Returns the place of `path` below `root` for reading: beneath the directory that was opened
    /// first, whatever replaced a directory on the path. Blocks.
    pub(super) fn source(&self, root: &Path, path: &[u8]) -> Result<Place> {
        let plain = below(root, path);
        let (parent, name) = split(path);
        let folder = self.folder(root, parent, false);
        let folder = folder.map_err(|cause| no_source("read", &plain, cause))?;
        Ok(Place::within(folder, name).called(plain))
    }

    /// Returns the directory at `path` below `root`, to be listed. Blocks.
    pub(super) fn source_directory(&self, root: &Path, path: &[u8]) -> Result<Place> {
        let plain = below(root, path);
        let beneath = self.beneath(root);
        let beneath = beneath.map_err(|cause| Error::io("list", show(root), cause.into()));
        let beneath = beneath.map_err(|error| error.at(Locus::Source))?;
        let found = beneath.folder(path, false);
        let found = found.map_err(|cause| no_source("list", &plain, cause))?;
        Ok(Place::opened(found).called(plain))
    }

    /// Returns the opened root, unless somebody removed it since.
    fn known(&self) -> Option<Arc<Beneath>> {
        let known = self.root.lock().unwrap_or_else(PoisonError::into_inner);
        known.clone().filter(|known| !known.is_removed())
    }

    fn beneath(&self, root: &Path) -> Result<Arc<Beneath>, Errno> {
        if let Some(known) = self.known() {
            return Ok(known);
        }
        // A link in its place is not one that anybody named.
        let is_first = {
            let known = self.root.lock().unwrap_or_else(PoisonError::into_inner);
            known.is_none()
        };
        let opened = Beneath::open_root_at(root, Follow::Never, is_first);
        let opened = opened.map_err(|cause| Errno::from_io_error(&cause).unwrap_or(Errno::IO))?;
        let mut known = self.root.lock().unwrap_or_else(PoisonError::into_inner);
        // A faster thread opened the same root.
        let first = known.take().filter(|known| !known.is_removed());
        let opened = first.unwrap_or_else(|| Arc::new(opened));
        Ok(Arc::clone(known.insert(opened)))
    }

    fn folder(&self, root: &Path, path: &[u8], make: bool) -> Result<Arc<OwnedFd>, Errno> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(last) = &*last
            && last.path == path
            && clock::now().duration_since(last.opened) < OPENED_MAX
        {
            return Ok(Arc::clone(&last.folder));
        }
        let folder = Arc::new(self.beneath(root)?.folder(path, make)?);
        *last = Some(Last {
            path: path.to_vec(),
            folder: Arc::clone(&folder),
            opened: clock::now(),
        });
        Ok(folder)
    }
}

/// Returns the error for a path that can't be reached.
fn on_the_way(path: &Path, cause: Errno) -> Error {
    let error = match cause {
        Errno::LOOP | Errno::XDEV | Errno::NOTDIR => {
            Error::new(ErrorKind::Conflict, "write", show(path))
                .cause("a symbolic link or a file is on the way to it")
                .hint("remove it, or copy to where it points")
        }
        cause => Error::io("write", show(path), cause.into()),
    };
    error.at(Locus::Destination)
}

/// Returns whether the caller asked to list a file, or something below one.
fn is_or_lies_in_file(path: &Path) -> bool {
    match std::fs::symlink_metadata(path) {
        Ok(found) => found.is_file(),
        Err(cause) => cause.kind() == std::io::ErrorKind::NotADirectory,
    }
}

/// Returns the error for a path that can't be read.
fn no_source(operation: &'static str, path: &Path, cause: Errno) -> Error {
    let error = match cause {
        Errno::NOTDIR if operation == "list" && is_or_lies_in_file(path) => {
            Error::io(operation, show(path), cause.into())
        }
        Errno::LOOP | Errno::XDEV | Errno::NOTDIR => {
            Error::new(ErrorKind::Changed, operation, show(path))
                .cause("a symbolic link or a file came to be on the way to it")
        }
        cause => Error::io(operation, show(path), cause.into()),
    };
    error.at(Locus::Source)
}

/// Returns the path of a name below `root`.
pub(super) fn below(root: &Path, path: &[u8]) -> PathBuf {
    if path.is_empty() {
        return root.to_owned();
    }
    root.join(OsStr::from_bytes(path))
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink};

    use super::*;

    #[test]
    fn a_root_that_was_removed_is_not_looked_for_behind_a_link() {
        let folder = tempfile::tempdir().unwrap();
        let [root, others] = ["root", "others"].map(|name| folder.path().join(name));
        fs::create_dir(&others).unwrap();
        fs::write(others.join("file"), b"theirs").unwrap();
        for is_source in [true, false] {
            let _ = fs::remove_file(&root);
            fs::create_dir(&root).unwrap();
            let ground = Ground::default();
            ground.source_directory(&root, b"").unwrap();
            fs::remove_dir(&root).unwrap();
            symlink(&others, &root).unwrap();
            let (found, kind) = match is_source {
                true => (ground.source(&root, b"file"), ErrorKind::Changed),
                false => (ground.place(&root, b"file", true), ErrorKind::Conflict),
            };
            assert_eq!(found.unwrap_err().kind(), kind);
        }
    }
}
