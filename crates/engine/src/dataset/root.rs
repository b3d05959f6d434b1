//! Root directory of a dataset, and access to what lies below it.
//!
//! The user behind a request may rename directories and put links in their places at any time. So
//! the root is opened once for each piece of work and compared with the list, and everything below
//! it is reached through it, over no link. A root by way of `/proc/self/fd`, which would lead to
//! what this process has open, is refused.

use std::{
    io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::Arc,
};

use posthaste_endpoint::{
    Error, ErrorKind, Locus, Result,
    posix::{Beneath, Place, split},
};
use rustix::{fs::OFlags, io::Errno};

use super::{Bounds, FileEntry, FileList};

/// Opened directory of a dataset.
#[derive(Debug)]
pub struct Root {
    path: PathBuf,
    beneath: Beneath,
    pub(super) bounds: Bounds,
}

impl Root {
    /// Opens the directory at `path`. The path may be or contain a link unless `is_judged`: then
    /// somebody saw where it leads, and a link on it was put there since. Blocks.
    ///
    /// # Errors
    /// At [`Locus::Source`]: [`ErrorKind::Invalid`] if it is no directory or one of the system's
    /// own; [`ErrorKind::Conflict`] if a link is on a judged path; otherwise the system's.
    pub fn open(path: &Path, is_judged: bool) -> Result<Self> {
        let shown = || path.display().to_string();
        let refuse = |kind, cause| {
            Error::new(kind, "open", shown())
                .at(Locus::Source)
                .cause(cause)
        };
        let beneath = match Beneath::open_source(path, is_judged) {
            Ok(beneath) => beneath,
            Err(Errno::NOTDIR) => {
                return Err(refuse(ErrorKind::Invalid, "it is no directory")
                    .hint("name the directory that holds it"));
            }
            Err(Errno::LOOP) => {
                return Err(
                    refuse(ErrorKind::Conflict, "a symbolic link is on the way to it")
                        .hint("submit it again by the path it really has"),
                );
            }
            Err(cause) => return Err(Error::io("open", shown(), cause.into()).at(Locus::Source)),
        };
        if beneath
            .is_of_system()
            .map_err(|cause| Error::io("open", shown(), cause.into()))?
        {
            return Err(refuse(
                ErrorKind::Invalid,
                "its files are the system's own, as those of /proc",
            ));
        }
        Ok(Self {
            path: path.to_owned(),
            beneath,
            bounds: Bounds::default(),
        })
    }

    /// Limits scans of it to these bounds.
    #[must_use]
    pub fn within(self, bounds: Bounds) -> Self {
        Self { bounds, ..self }
    }

    /// Opens the directory that `list` is of. Blocks.
    ///
    /// # Errors
    /// Errors of [`Self::open`]; [`ErrorKind::Changed`] if another directory has its name now.
    pub fn of(path: &Path, list: &FileList) -> Result<Self> {
        let root = Self::open(path, false)?;
        let listed = list.files.first().map_or(0, |top| top.inode);
        let found = root.metadata()?.ino();
        if listed != 0 && found != listed {
            return Err(
                Error::new(ErrorKind::Changed, "open", path.display().to_string())
                    .at(Locus::Source)
                    .cause("it is another directory than was listed"),
            );
        }
        Ok(root)
    }

    /// Returns the path by which it was opened.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the system's metadata of the directory. Blocks.
    ///
    /// # Errors
    /// The system's.
    pub fn metadata(&self) -> Result<std::fs::Metadata> {
        let found = self
            .directory(b"")
            .and_then(|place| std::fs::metadata(&place.path));
        found.map_err(|cause| {
            Error::io("look at", self.path.display().to_string(), cause).at(Locus::Source)
        })
    }

    /// Returns the place of something in it. Blocks.
    ///
    /// # Errors
    /// The system's for components of the path.
    pub fn place(&self, path: &[u8]) -> io::Result<Place> {
        let (parent, name) = split(path);
        let folder = Arc::new(self.beneath.folder(parent, false)?);
        Ok(Place::within(folder, name).called(self.shown(path)))
    }

    /// Opens a directory in it, or itself. Blocks.
    ///
    /// # Errors
    /// The system's.
    pub fn directory(&self, path: &[u8]) -> io::Result<Place> {
        let found = self.beneath.folder(path, false)?;
        Ok(Place::opened(found).called(self.shown(path)))
    }

    /// Opens a file in it. Blocks.
    pub(super) fn file(&self, file: &FileEntry, flags: OFlags) -> Result<std::fs::File, Errno> {
        self.beneath.open(&file.path, flags).map(Into::into)
    }

    pub(super) fn shown(&self, path: &[u8]) -> PathBuf {
        use std::{ffi::OsStr, os::unix::ffi::OsStrExt};
        if path.is_empty() {
            return self.path.clone();
        }
        self.path.join(OsStr::from_bytes(path))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dataset::{SourceReader, scan};
    use posthaste_types::Bytes;
    use std::{
        fs::{self, File},
        os::{fd::AsRawFd, unix::fs::symlink},
    };

    #[test]
    fn what_the_process_has_open_and_the_systems_own_files_are_no_source() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("secret"), "1").unwrap();
        let open = File::open(folder.path()).unwrap();
        let descriptor = format!("/proc/self/fd/{}", open.as_raw_fd());
        let link = folder.path().join("link");
        symlink(&descriptor, &link).unwrap();
        for path in [Path::new(&descriptor), &link] {
            assert_eq!(scan(path).unwrap_err().kind(), ErrorKind::Conflict);
        }
        for path in ["/proc/self", "/proc/sys", "/sys/kernel"] {
            let error = scan(Path::new(path)).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Invalid, "{path}");
        }
    }

    #[test]
    fn a_judged_path_leads_over_no_link() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().canonicalize().unwrap();
        fs::create_dir(folder.join("real")).unwrap();
        symlink("real", folder.join("link")).unwrap();
        assert!(Root::open(&folder.join("link"), false).is_ok());
        assert!(Root::open(&folder.join("real"), true).is_ok());
        let refused = Root::open(&folder.join("link"), true).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Conflict);
    }

    #[test]
    fn another_directory_of_the_same_name_is_not_read() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        for name in ["mine/sub", "yours/sub"] {
            fs::create_dir_all(at(name)).unwrap();
            fs::write(at(name).join("file"), "12345").unwrap();
        }
        let list = Arc::new(scan(&at("mine")).unwrap());
        let reader = SourceReader::new(at("mine"), Arc::clone(&list), Bytes::new(5));
        let mut buffer = Vec::new();
        reader.read_chunk(0, &mut buffer).unwrap();
        // A link in place of a directory below it, then in place of itself.
        fs::rename(at("mine/sub"), at("mine/old")).unwrap();
        symlink(at("mine/old"), at("mine/sub")).unwrap();
        let refused = reader.read_chunk(0, &mut buffer).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Changed);
        fs::rename(at("mine"), at("gone")).unwrap();
        symlink(at("yours"), at("mine")).unwrap();
        let refused = reader.read_chunk(0, &mut buffer).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::NotFound);
        assert_eq!(
            Root::of(&at("mine"), &list).unwrap_err().kind(),
            ErrorKind::Changed
        );
    }
}
