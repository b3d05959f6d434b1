//! Inode and handle numbers of paths and open files.

use std::{
    collections::HashMap,
    fs::File,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::Arc,
};

use fuser::{Errno, FileHandle, INodeNo};

/// Paths and open files by number. No number is used twice: the kernel may remember one.
#[derive(Default)]
pub(super) struct Table {
    paths: HashMap<u64, PathBuf>,
    inodes: HashMap<PathBuf, u64>,
    files: HashMap<u64, (Arc<File>, PathBuf)>,
    last: u64,
}

impl Table {
    /// Returns the path of a number, below the mount.
    pub(super) fn path(&self, inode: INodeNo) -> Result<PathBuf, Errno> {
        if inode == INodeNo::ROOT {
            return Ok(PathBuf::new());
        }
        self.paths.get(&inode.0).cloned().ok_or(Errno::ESTALE)
    }

    fn next(&mut self) -> u64 {
        self.last += 1;
        self.last + INodeNo::ROOT.0
    }

    /// Returns the number of a path.
    pub(super) fn inode(&mut self, path: &Path) -> INodeNo {
        if let Some(&known) = self.inodes.get(path) {
            return INodeNo(known);
        }
        let inode = self.next();
        self.paths.insert(inode, path.to_owned());
        self.inodes.insert(path.to_owned(), inode);
        INodeNo(inode)
    }

    /// Forgets a removed path.
    pub(super) fn forget(&mut self, path: &Path) {
        if let Some(inode) = self.inodes.remove(path) {
            self.paths.remove(&inode);
        }
    }

    /// Gives a file another path; a file that had that path is gone.
    pub(super) fn rename(&mut self, from: &Path, to: &Path) {
        self.forget(to);
        if let Some(inode) = self.inodes.remove(from) {
            self.inodes.insert(to.to_owned(), inode);
            self.paths.insert(inode, to.to_owned());
        }
    }

    /// Returns a new number of an open file.
    pub(super) fn keep(&mut self, file: File, path: &Path) -> FileHandle {
        let handle = self.next();
        self.files.insert(handle, (Arc::new(file), path.to_owned()));
        FileHandle(handle)
    }

    /// Returns an open file, and the path it was opened by.
    pub(super) fn file(&self, handle: FileHandle) -> Result<(Arc<File>, PathBuf), Errno> {
        self.files.get(&handle.0).cloned().ok_or(Errno::EBADF)
    }

    /// Returns whether this file of this device is open.
    pub(super) fn is_open(&self, (device, number): (u64, u64)) -> bool {
        self.files.values().any(|(file, _)| {
            let found = file.metadata();
            found.is_ok_and(|found| (found.dev(), found.ino()) == (device, number))
        })
    }

    /// Closes a file.
    pub(super) fn close(&mut self, handle: FileHandle) {
        self.files.remove(&handle.0);
    }
}
