//! Directories that are written to.

use std::{fs, io, os::unix::fs::MetadataExt, path::Path};

use rustix::fs::{AtFlags, CWD, Mode, OFlags};

use super::{Posix, beneath::Place, show};
use crate::{Error, ErrorKind, Locus, Result, endpoint::Boxed};

/// Makes a directory and those above it. Returns whether it is new. Blocks.
///
/// # Errors
/// [`ErrorKind::Conflict`] if something else has the name; otherwise the system's errors.
pub fn make_directory(path: &Path) -> Result<bool> {
    let fail = |cause| Error::io("make directory", show(path), cause).at(Locus::Destination);
    match fs::create_dir(path) {
        Ok(()) => Ok(true),
        Err(cause) if cause.kind() == io::ErrorKind::AlreadyExists => match fs::metadata(path) {
            Ok(metadata) if metadata.is_dir() => Ok(false),
            Ok(_) => Err(
                Error::new(ErrorKind::Conflict, "make directory", show(path))
                    .cause("a file has that name")
                    .at(Locus::Destination),
            ),
            Err(cause) => Err(fail(cause)),
        },
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => {
            let parent = path
                .parent()
                .filter(|parent| !parent.as_os_str().is_empty());
            match parent {
                Some(parent) => {
                    make_directory(parent)?;
                    match fs::create_dir(path) {
                        Ok(()) => Ok(true),
                        Err(cause) if cause.kind() == io::ErrorKind::AlreadyExists => Ok(false),
                        Err(cause) => Err(fail(cause)),
                    }
                }
                None => Err(fail(cause)),
            }
        }
        Err(cause) => Err(fail(cause)),
    }
}

/// Makes a directory that will be written to, and those above it. Returns whether it is new. A link
/// to a directory will do only if `follow`. Blocks.
///
/// # Errors
/// See [`make_directory`].
pub fn ensure_directory(path: &Path, follow: bool) -> Result<bool> {
    if !follow && fs::symlink_metadata(path).is_ok_and(|found| found.is_symlink()) {
        return Err(
            Error::new(ErrorKind::Conflict, "make directory", show(path))
                .cause("a symbolic link has that name")
                .hint("remove the link, or copy to where it points")
                .at(Locus::Destination),
        );
    }
    let new = make_directory(path)?;
    if !new && !follow {
        open_directory(path);
    }
    Ok(new)
}

/// Lets the owner write into a directory that an earlier run may have sealed. Without permission
/// for that, the files in it report the error.
fn open_directory(path: &Path) {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let Ok(found) = rustix::fs::open(path, flags, Mode::empty()) else {
        return;
    };
    let place = Place::opened(found);
    let Ok(metadata) = fs::metadata(&place.path) else {
        return;
    };
    let mode = metadata.mode() & 0o7777;
    if mode & 0o700 != 0o700 {
        let opened = Mode::from_raw_mode(mode | 0o700);
        let _ = rustix::fs::chmodat(CWD, &place.path, opened, AtFlags::empty());
    }
}

impl Posix {
    /// Hides a directory as [`Endpoint::keep_private`](crate::Endpoint::keep_private) does.
    pub(super) fn hide(&self, path: &[u8], mode: u32) -> Boxed<'_, ()> {
        let (this, path) = (self.clone(), path.to_vec());
        let kept = self.blocking(move || {
            let place = this.directory(&path)?;
            let given = fs::metadata(&place.path).map_or(0, |found| found.mode());
            let mode = Mode::from_raw_mode(mode & given & 0o777 | 0o700);
            // Without modes, nothing is kept private either.
            let _ = rustix::fs::chmodat(CWD, &place.path, mode, AtFlags::empty());
            Ok(())
        });
        Box::pin(async {
            let _ = kept.await;
        })
    }
}
