//! Entries that the destination refuses: a bad name, link or file is left out and named, and the
//! rest arrives.

use std::{
    collections::{HashMap, HashSet},
    hash::{BuildHasher, RandomState},
    sync::{PoisonError, atomic::Ordering},
};

use posthaste_endpoint::{Error, ErrorKind, Result, posix::split};
use rustix::{
    fs::{Mode, OFlags, mkdirat, openat},
    io::Errno,
};

use super::{DIRECTORY, Destination, staged::drop_inherited};
use crate::{
    copy::folding::{Folding, is_one_with},
    dataset::{FileEntry, FileKind},
};

/// Number of missing chunks that marks an entry as left out.
pub(super) const LEFT_OUT: u32 = u32::MAX;
/// Maximum of lines kept; further ones are only counted.
const NAMED_MAX: usize = 100;

/// Files, directories and links that a pull left out, because the destination refuses them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LeftOut {
    /// Number of files.
    pub count: u64,
    /// Links among them, if the destination keeps none.
    pub links: u64,
    /// Regular files among them.
    pub files: usize,
    /// Bytes of those.
    pub bytes: u64,
    /// Lines for the first of them; a single one for all links that are not kept.
    pub named: Vec<String>,
}

/// Entries of one directory that may share a name there.
struct Twins<'a> {
    files: &'a [FileEntry],
    may_be_one: HashSet<usize>,
    foldings: HashMap<&'a [u8], Folding>,
    first: HashMap<(&'a [u8], Vec<u8>), usize>,
}

impl<'a> Twins<'a> {
    fn of(files: &'a [FileEntry]) -> Self {
        let state = RandomState::new();
        let mut had = HashMap::new();
        let mut may_be_one = HashSet::new();
        for (index, file) in files.iter().enumerate() {
            let (directory, name) = split(&file.path);
            let hash = state.hash_one((directory, &*Folding::WIDEST.fold(name)));
            let first = *had.entry(hash).or_insert(index);
            if first != index {
                may_be_one.extend([first, index]);
            }
        }
        Self {
            files,
            may_be_one,
            foldings: HashMap::new(),
            first: HashMap::new(),
        }
    }

    /// Returns the first entry whose name equals that of this one in its directory, which is there
    /// by now.
    fn first(&mut self, index: usize, learn: impl Fn(&FileEntry) -> Folding) -> Option<usize> {
        if !self.may_be_one.contains(&index) {
            return None;
        }
        let (directory, name) = split(&self.files[index].path);
        let learnt = self.foldings.entry(directory);
        let folding = learnt.or_insert_with(|| learn(&self.files[index]));
        let name = folding.fold(name).into_owned();
        let first = *self.first.entry((directory, name)).or_insert(index);
        (first != index).then_some(first)
    }
}

impl Destination {
    /// Returns what was left out so far.
    pub(in crate::pull) fn left_out(&self) -> LeftOut {
        let left_out = self.left_out.lock();
        left_out.unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(in crate::pull) fn is_left_out(&self, index: usize) -> bool {
        self.missing[index].load(Ordering::Acquire) == LEFT_OUT
    }

    /// Returns whether a chunk holds anything that was not left out.
    pub(in crate::pull) fn wants(&self, chunk: u32) -> bool {
        let chunk_size = self.manifest.chunk_size;
        let mut extents = self.manifest.list.extents(chunk, chunk_size);
        extents.any(|extent| !self.is_left_out(extent.file))
    }

    /// Leaves out an entry for which this failed.
    ///
    /// # Errors
    /// Errors that concern everything.
    pub(in crate::pull) fn unless_left_out(&self, index: usize, done: Result<()>) -> Result<()> {
        let Err(error) = done else { return Ok(()) };
        if error.concerns_everything() {
            return Err(error);
        }
        self.leave_out(index, Some(&error));
        Ok(())
    }

    /// Counts an entry once, and names it unless another line covers it.
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

    /// Makes every directory of the list. Leaves out entries of a directory that can't be made, and
    /// those whose name there equals an earlier one's: one would replace the other. Modes and times
    /// come at the end.
    pub(super) fn make_directories(&self) -> Result<()> {
        let mut refused: HashSet<&[u8]> = HashSet::new();
        let mut twins = Twins::of(&self.manifest.list.files);
        for (index, file) in self.manifest.list.files.iter().enumerate() {
            let above = file.path.iter().rposition(|&byte| byte == b'/');
            if above.is_some_and(|end| refused.contains(&file.path[..end])) {
                self.leave_out(index, None);
            } else if let Some(first) = twins.first(index, |file| self.folding_beside(file)) {
                let shown = file.below(&self.root_path).display().to_string();
                let error = is_one_with("write", shown, &self.file(first).path);
                let error = error.hint("pull it to another directory");
                self.leave_out(index, Some(&error));
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

    /// Returns the folding of names in the directory of this entry.
    fn folding_beside(&self, file: &FileEntry) -> Folding {
        let parent = self.parent(file);
        parent.map_or(Folding::WIDEST, |(parent, _)| Folding::learn_in(&parent))
    }

    fn make_directory(&self, file: &FileEntry) -> Result<()> {
        let (parent, name) = self.parent(file)?;
        match mkdirat(&parent, name, Mode::RWXU) {
            Ok(()) => {
                let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                let made = openat(&parent, name, flags, Mode::empty());
                made.and_then(|made| drop_inherited(&made))
                    .map_err(|cause| self.failed(file, cause))
            }
            Err(Errno::EXIST) => openat(&parent, name, DIRECTORY, Mode::empty())
                .map(drop)
                .map_err(|_| self.in_the_way(file)),
            Err(cause) => Err(self.failed(file, cause)),
        }
    }
}
