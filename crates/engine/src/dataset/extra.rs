//! Attributes of a file beyond its bytes, mode and time: its other names, extended attributes and
//! access lists.

use std::{
    ffi::OsStr,
    io,
    os::unix::{ffi::OsStrExt, fs::MetadataExt},
    path::Path,
};

use posthaste_endpoint::posix::without_lent_rights;
use rustix::{
    fs::{getxattr, lgetxattr, listxattr, llistxattr},
    io::Errno,
};

use super::{FileKind, FileList};

/// Maximum of bytes of one file's extended attributes, names included: Linux's limit.
pub(super) const ATTRIBUTES_BYTES_MAX: usize = 64 << 10;
/// Unknown owner or group.
pub const NOBODY_KNOWS: u32 = u32::MAX;

/// Attributes that few files have.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Extra {
    /// Position in the list of an earlier file that is the same one under another name.
    pub same_as: Option<usize>,
    /// Extended attributes and access lists, by their names.
    pub attributes: Vec<(Vec<u8>, Vec<u8>)>,
    /// Attributes that can't be kept, for people. Not in a manifest.
    pub lacks: Option<String>,
}

/// Attributes that are access lists: the rights of users, and their defaults for new files in a
/// directory.
pub(crate) const ACCESS_LISTS: [&str; 2] = ["system.posix_acl_access", "system.posix_acl_default"];

/// Returns whether an attribute is the user's own or an access list. All others are the system's
/// and mean something there alone.
pub(crate) fn is_kept(name: &[u8]) -> bool {
    name.starts_with(b"user.") || ACCESS_LISTS.iter().any(|list| list.as_bytes() == name)
}

impl Extra {
    /// Reads the attributes at a path, whose metadata is `metadata`. For an opened directory the
    /// path may lead there through a link.
    pub(super) fn of(
        path: &Path,
        kind: &FileKind,
        metadata: &std::fs::Metadata,
    ) -> io::Result<Option<Box<Self>>> {
        let mut extra = Self::default();
        if *kind == FileKind::Regular && metadata.nlink() > 1 {
            // The device, until the list knows its places.
            extra.same_as = usize::try_from(metadata.dev()).ok();
        }
        if !matches!(kind, FileKind::Symlink { .. }) {
            extra.read_attributes(path, *kind == FileKind::Directory)?;
        }
        Ok((extra != Self::default()).then(|| Box::new(extra)))
    }

    fn read_attributes(&mut self, path: &Path, is_directory: bool) -> io::Result<()> {
        let list = |names: &mut [u8]| match is_directory {
            true => listxattr(path, names),
            false => llistxattr(path, names),
        };
        let mut names = vec![0; 256];
        let count = match list(&mut names[..]) {
            Err(Errno::RANGE) => {
                names.resize(ATTRIBUTES_BYTES_MAX, 0);
                list(&mut names[..])
            }
            listed => listed,
        };
        let count = match count {
            Ok(count) => count,
            Err(Errno::NOTSUP | Errno::NOSYS) => 0,
            Err(Errno::NOENT) => return Err(Errno::NOENT.into()),
            Err(cause) => {
                self.lacks = Some(format!("its extended attributes can't be listed: {cause}"));
                0
            }
        };
        let mut left = ATTRIBUTES_BYTES_MAX;
        for name in names[..count]
            .split(|&byte| byte == 0)
            .filter(|name| !name.is_empty())
        {
            let shown = name.escape_ascii();
            if name == b"security.capability" {
                self.lacks = Some(format!("{shown} lends rights, and is not kept"));
            }
            if !is_kept(name) {
                continue;
            }
            let mut value = vec![0; left];
            let called = OsStr::from_bytes(name);
            let read = match is_directory {
                true => getxattr(path, called, &mut value[..]),
                false => lgetxattr(path, called, &mut value[..]),
            };
            match read {
                Ok(size) if name.len() + size <= left => {
                    value.truncate(size);
                    left -= name.len() + size;
                    self.attributes.push((name.to_vec(), value));
                }
                Err(Errno::NODATA) => {}
                Ok(_) | Err(Errno::RANGE) => {
                    self.lacks = Some(format!("{shown} is too long: 64 KiB of a file are kept"));
                }
                Err(cause) => self.lacks = Some(format!("{shown} can't be read: {cause}")),
            }
        }
        Ok(())
    }
}

impl FileList {
    /// Returns the first file with something that only a dataset keeps, and what that is: another
    /// name, attributes or access lists, another owner than the first file's, or bits that lend its
    /// owner's rights.
    #[must_use]
    pub fn beyond_bytes(&self) -> Option<(&super::FileEntry, &str)> {
        let owned = |file: &super::FileEntry| (file.owner, file.group);
        let mut regular = self.files.iter();
        let first = regular.find(|file| file.kind == FileKind::Regular);
        self.files.iter().find_map(|file| {
            let extra = file.extra.as_deref();
            let is_of_another = |first| file.kind == FileKind::Regular && owned(file) != owned(first);
            let what = if extra.is_some_and(|extra| extra.same_as.is_some()) {
                "it is another name of a file, which an address does not keep"
            } else if extra.is_some_and(|extra| !extra.attributes.is_empty()) {
                "it has extended attributes or access lists, which an address does not keep"
            } else if first.is_some_and(is_of_another) {
                "its owner or group is another than that of other files, which an address does not keep"
            } else if file.kind == FileKind::Regular && without_lent_rights(file.mode) != file.mode {
                "it has set-user-ID or set-group-ID bits, which an address does not keep"
            } else {
                return None;
            };
            Some((file, what))
        })
    }

    /// Returns the first file with something that can't be kept, and what that is.
    #[must_use]
    pub fn lacking(&self) -> Option<(&super::FileEntry, &str)> {
        let mut files = self.files.iter();
        files.find_map(|file| Some((file, file.extra.as_ref()?.lacks.as_deref()?)))
    }
}
