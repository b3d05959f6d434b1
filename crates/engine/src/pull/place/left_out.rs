//! Entries that the destination refuses: one bad name, link or file is left out and named, and the rest arrives.

use std::{
    collections::HashSet,
    sync::{PoisonError, atomic::Ordering},
};

use posthaste_endpoint::{Error, ErrorKind, Result};
use rustix::{
    fs::{Mode, mkdirat, openat},
    io::Errno,
};

use super::{DIRECTORY, Destination};
use crate::{
    copy::folding::{Folding, clashes, is_one_with},
    dataset::{FileEntry, FileKind},
};

/// Stands for the number of missing chunks of an entry that was left out.
pub(super) const LEFT_OUT: u32 = u32::MAX;
/// Lines that are kept; more are only counted.
const NAMED_MAX: usize = 100;

/// Files, directories and links that a pull left out, because the destination refuses them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LeftOut {
    /// How many.
    pub count: u64,
    /// Links among them of which the destination keeps none.
    pub links: u64,
    /// Regular files among them.
    pub files: usize,
    /// Bytes of those.
    pub bytes: u64,
    /// A line for each of the first; of links that are not kept, one for all.
    pub named: Vec<String>,
}

impl Destination {
    /// What was left out so far.
    pub(in crate::pull) fn left_out(&self) -> LeftOut {
        let left_out = self.left_out.lock();
        left_out.unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(in crate::pull) fn is_left_out(&self, index: usize) -> bool {
        self.missing[index].load(Ordering::Acquire) == LEFT_OUT
    }

    /// Whether a chunk holds anything that was not left out.
    pub(in crate::pull) fn wants(&self, chunk: u32) -> bool {
        let chunk_size = self.manifest.chunk_size;
        let mut extents = self.manifest.list.extents(chunk, chunk_size);
        extents.any(|extent| !self.is_left_out(extent.file))
    }

    /// Leaves out an entry of which this failed.
    ///
    /// # Errors
    /// What concerns everything, and what is in the way: that is for somebody to decide.
    pub(in crate::pull) fn unless_left_out(&self, index: usize, done: Result<()>) -> Result<()> {
        let Err(error) = done else { return Ok(()) };
        if error.concerns_everything() || error.kind() == ErrorKind::Conflict {
            return Err(error);
        }
        self.leave_out(index, Some(&error));
        Ok(())
    }

    /// Counts an entry once, and names it unless another line tells of it.
    fn leave_out(&self, index: usize, error: Option<&Error>) {
        if self.missing[index].swap(LEFT_OUT, Ordering::AcqRel) == LEFT_OUT {
            return;
        }
        let file = self.file(index);
        let mut left_out = self.left_out.lock().unwrap_or_else(PoisonError::into_inner);
        left_out.count += 1;
        if file.kind == FileKind::Regular {
            left_out.files += 1;
            left_out.bytes += file.size;
        }
        let is_unsupported = error.is_some_and(|error| error.kind() == ErrorKind::Unsupported);
        let is_link = matches!(file.kind, FileKind::Symlink { .. }) && is_unsupported;
        left_out.links += u64::from(is_link);
        if let Some(error) = error
            && left_out.named.len() < NAMED_MAX
            && !(is_link && left_out.links > 1)
        {
            left_out.named.push(error.to_string());
        }
    }

    /// Leaves out whatever has a name here that something before it in the list has: one would replace the other.
    pub(super) fn leave_out_folded(&self) {
        let files = &self.manifest.list.files;
        let paths = files.iter().map(|file| &file.path[..]);
        for (index, first) in clashes(paths, || Folding::learn_in(&self.staging)) {
            let shown = files[index].below(&self.root_path).display().to_string();
            let error = is_one_with("write", shown, &files[first].path)
                .hint("pull it to another directory");
            self.leave_out(index, Some(&error));
        }
    }

    /// Makes every directory of the list, and leaves out what would lie in one that can't be. Modes and times come at the end.
    pub(super) fn make_directories(&self) -> Result<()> {
        let mut refused: HashSet<&[u8]> = HashSet::new();
        for (index, file) in self.manifest.list.files.iter().enumerate() {
            let above = file.path.iter().rposition(|&byte| byte == b'/');
            if above.is_some_and(|end| refused.contains(&file.path[..end])) {
                self.leave_out(index, None);
            } else if file.kind == FileKind::Directory
                && !file.path.is_empty()
                && !self.is_left_out(index)
            {
                self.unless_left_out(index, self.make_directory(file))?;
            }
            if file.kind == FileKind::Directory && self.is_left_out(index) {
                refused.insert(&file.path);
            }
        }
        Ok(())
    }

    fn make_directory(&self, file: &FileEntry) -> Result<()> {
        let (parent, name) = self.parent(file)?;
        match mkdirat(&parent, name, Mode::RWXU) {
            Ok(()) => Ok(()),
            Err(Errno::EXIST) => openat(&parent, name, DIRECTORY, Mode::empty())
                .map(drop)
                .map_err(|_| self.in_the_way(file)),
            Err(cause) => Err(self.failed(file, cause)),
        }
    }
}
