//! Existing files with other content under a dataset's names. They are replaced only on request.

use std::{fs::File, os::unix::fs::FileExt};

use posthaste_endpoint::{Error, ErrorKind, Locus, Result};
use rustix::fs::FileType;

use super::Destination;
use crate::dataset::FileEntry;

/// Bytes compared at once.
const COMPARED_BYTES: usize = 1 << 16;

impl Destination {
    /// Returns the error that another object has the name of a file, which is left out.
    pub(in crate::pull) fn taken(&self, file: &FileEntry) -> Error {
        let path = file.below(&self.root_path).display().to_string();
        Error::new(ErrorKind::Other, "write", path)
            .at(Locus::Destination)
            .cause("another one is there")
            .hint("--overwrite replaces it")
    }

    /// Returns whether the object under a file's name certainly differs and stays.
    pub(in crate::pull) fn is_other(
        &self,
        file: &FileEntry,
        (kind, size): (FileType, u64),
    ) -> bool {
        !self.overwrite && (kind != FileType::RegularFile || size != file.size)
    }

    /// Fails if a device, a pipe or a socket has a file's name: files and links alone are replaced.
    pub(super) fn refuse_special(&self, file: &FileEntry) -> Result<()> {
        let plain = [
            FileType::RegularFile,
            FileType::Symlink,
            FileType::Directory,
        ];
        let is_special = |(kind, _): (FileType, u64)| !plain.contains(&kind);
        match self.overwrite && self.final_state(file)?.is_some_and(is_special) {
            true => Err(self.in_the_way(file)),
            false => Ok(()),
        }
    }

    /// Returns whether a whole file must not get its name, because a different object there stays.
    pub(super) fn is_taken(&self, file: &FileEntry, whole: &File) -> Result<bool> {
        if self.overwrite {
            return Ok(false);
        }
        let Some(there) = self.final_state(file)? else {
            return Ok(false);
        };
        let there = match there {
            there if self.is_other(file, there) => return Ok(true),
            _ => self.open_final(file)?,
        };
        is_same(&there, whole, file.size)
            .map(|same| !same)
            .map_err(|cause| self.failed(file, cause))
    }
}

fn is_same(left: &File, right: &File, size: u64) -> std::io::Result<bool> {
    let (mut ours, mut theirs) = (vec![0; COMPARED_BYTES], vec![0; COMPARED_BYTES]);
    let mut at = 0;
    while at < size {
        let count =
            usize::try_from(size - at).map_or(COMPARED_BYTES, |left| left.min(COMPARED_BYTES));
        left.read_exact_at(&mut ours[..count], at)?;
        right.read_exact_at(&mut theirs[..count], at)?;
        if ours[..count] != theirs[..count] {
            return Ok(false);
        }
        at += count as u64;
    }
    Ok(true)
}
