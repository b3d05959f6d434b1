//! Owners, other names, extended attributes and access lists of files in place.

use std::{fs::File, os::fd::AsFd, sync::PoisonError};

use posthaste_endpoint::{Result, posix::without_lent_rights};
use rustix::{
    fs::{
        AtFlags, Gid, Mode, OFlags, Uid, XattrFlags, chownat, fchown, fsetxattr, linkat, openat,
        statat, unlinkat,
    },
    io::Errno,
    process::geteuid,
};

use super::{Destination, attributes::unless_refused};
use crate::dataset::{FileEntry, FileKind, NOBODY_KNOWS, is_kept};

/// Counts of files, directories and links that arrived without something that the destination
/// refuses to keep.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ExtrasUnkept {
    /// Entries without their owner and group.
    pub owners: u64,
    /// Entries without extended attributes and access lists.
    pub attributes: u64,
    /// Hard links that are files of their own now.
    pub links: u64,
    /// Files without their set-user-ID and set-group-ID bits, which a pull never gives: they would
    /// lend an owner's rights.
    pub lent_rights: u64,
}

/// Name under which a hard link is made.
const STAGED: &str = "same";

/// Returns the owner to set, for root alone: nobody else may give files away.
fn owner_of(file: &FileEntry) -> Option<(Option<Uid>, Option<Gid>)> {
    let is_known = file.owner != NOBODY_KNOWS && file.group != NOBODY_KNOWS;
    (is_known && geteuid().is_root()).then(|| {
        (
            Some(Uid::from_raw(file.owner)),
            Some(Gid::from_raw(file.group)),
        )
    })
}

impl Destination {
    /// Returns what arrived without something beyond modes and times, because it was refused.
    pub(in crate::pull) fn extras_unkept(&self) -> ExtrasUnkept {
        let lends = |(index, file): (usize, &FileEntry)| {
            let is_file = file.kind == FileKind::Regular && !self.is_left_out(index);
            is_file && without_lent_rights(file.mode) != file.mode
        };
        let files = self.manifest.list.files.iter().enumerate();
        ExtrasUnkept {
            lent_rights: files.filter(|&file| lends(file)).count() as u64,
            ..*self.extras.lock().unwrap_or_else(PoisonError::into_inner)
        }
    }

    fn note_extra(
        &self,
        set: rustix::io::Result<()>,
        file: &FileEntry,
        count: impl FnOnce(&mut ExtrasUnkept),
    ) -> Result<()> {
        if !unless_refused(set).map_err(|cause| self.failed(file, cause))? {
            count(&mut self.extras.lock().unwrap_or_else(PoisonError::into_inner));
        }
        Ok(())
    }

    /// Gives an open file its owner, attributes and access lists: before its mode, which may forbid
    /// that.
    pub(super) fn give_extras(&self, open: &File, file: &FileEntry) -> Result<()> {
        if let Some((owner, group)) = owner_of(file) {
            let set = fchown(open, owner, group);
            self.note_extra(set, file, |unkept| unkept.owners += 1)?;
        }
        let attributes = file.extra.iter().flat_map(|extra| &extra.attributes);
        // Whatever a manifest says, none is set that means something to the system.
        for (name, value) in attributes.filter(|(name, _)| is_kept(name)) {
            let set = fsetxattr(open.as_fd(), &name[..], value, XattrFlags::empty());
            // Some file systems have less room for attributes than others, however much they have
            // for files.
            let set = match set {
                Err(Errno::NOSPC | Errno::TOOBIG | Errno::RANGE) => Err(Errno::NOTSUP),
                set => set,
            };
            self.note_extra(set, file, |unkept| unkept.attributes += 1)?;
        }
        Ok(())
    }

    /// Gives extras to a file that was there with the right bytes.
    pub(in crate::pull) fn give_extras_there(&self, file: &FileEntry) -> Result<()> {
        if owner_of(file).is_none() && file.extra.is_none() {
            return Ok(());
        }
        self.give_extras(&self.open_final(file)?, file)
    }

    /// Restores everything of a directory that is set last.
    pub(super) fn restore_directory(&self, file: &FileEntry) -> Result<()> {
        self.give_directory_extras(file)?;
        self.restore(file)
    }

    /// Gives extras to a directory that has its place.
    pub(super) fn give_directory_extras(&self, file: &FileEntry) -> Result<()> {
        if owner_of(file).is_none() && file.extra.is_none() {
            return Ok(());
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let open = if file.path.is_empty() {
            openat(&self.root, ".", flags, Mode::empty())
        } else {
            let (parent, name) = self.parent(file)?;
            openat(&parent, name, flags, Mode::empty())
        };
        let open = open.map_err(|cause| self.failed(file, cause))?;
        self.give_extras(&open.into(), file)
    }

    /// Gives a symbolic link its owner.
    pub(super) fn give_link_owner(&self, file: &FileEntry) -> Result<()> {
        let Some((owner, group)) = owner_of(file) else {
            return Ok(());
        };
        let (parent, name) = self.parent(file)?;
        let set = chownat(&parent, name, owner, group, AtFlags::SYMLINK_NOFOLLOW);
        self.note_extra(set, file, |unkept| unkept.owners += 1)
    }

    /// Makes a file a hard link to the one that it was another name of, which is in its place too.
    pub(super) fn join_names(&self, file: &FileEntry) -> Result<()> {
        let Some(first) = file.extra.as_ref().and_then(|extra| extra.same_as) else {
            return Ok(());
        };
        if self.file(first).kind != FileKind::Regular || self.is_left_out(first) {
            return Ok(());
        }
        let failed = |cause| self.failed(file, cause);
        let (folder, other) = self.parent(self.file(first))?;
        let (parent, name) = self.parent(file)?;
        let look = |at, name| statat(at, name, AtFlags::SYMLINK_NOFOLLOW).map_err(failed);
        let (one, two) = (look(&folder, other)?, look(&parent, name)?);
        if (one.st_dev, one.st_ino) == (two.st_dev, two.st_ino) {
            return Ok(());
        }
        match unlinkat(&self.staging, STAGED, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(cause) => return Err(failed(cause)),
        }
        let made = linkat(&folder, other, &self.staging, STAGED, AtFlags::empty());
        let made = match made {
            Err(Errno::MLINK | Errno::XDEV) => Err(Errno::NOTSUP),
            made => made,
        };
        let is_made = made.is_ok();
        self.note_extra(made, file, |unkept| unkept.links += 1)?;
        match is_made {
            true => self.rename_staged(STAGED, file),
            false => Ok(()),
        }
    }
}
