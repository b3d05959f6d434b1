//! Unfinished copies of local files: their names, and whose they are.

use std::{
    ffi::OsString,
    fs::{self, File, Metadata},
    io,
    os::unix::{
        ffi::{OsStrExt, OsStringExt},
        fs::{MetadataExt, OpenOptionsExt},
    },
    path::{Path, PathBuf},
};

use rustix::{fs::FlockOperation, io::Errno};

use super::{
    draft::failed,
    owner::{Claim, Owner},
    show,
};
use crate::{
    Error, ErrorKind, Locus, Result, Status,
    endpoint::{LEDGER_SUFFIX, PARTIAL_SUFFIX, new_word, partial_name},
};

/// Times that an unfinished copy is opened until it is nobody else's.
const OPENED_MAX: u32 = 8;

/// The path of the unfinished copy of `path`.
pub(super) fn partial_path(path: &Path, origin: &str) -> PathBuf {
    let name = path.file_name().unwrap_or_default();
    path.with_file_name(OsString::from_vec(partial_name(name.as_bytes(), origin)))
}

/// A path beside `path` that nobody else writes to.
pub(super) fn own_path(path: &Path) -> PathBuf {
    partial_path(path, &new_word())
}

/// Where the record of an unfinished copy lies.
pub(super) fn ledger_path(partial: &Path) -> PathBuf {
    let text = partial.as_os_str().as_bytes();
    let stem = text.strip_suffix(PARTIAL_SUFFIX.as_bytes()).unwrap_or(text);
    PathBuf::from(OsString::from_vec(
        [stem, LEDGER_SUFFIX.as_bytes()].concat(),
    ))
}

/// Whether an open file lies under this path. SMB and others may number it anew each time; then what it is like tells.
pub(super) fn is_at(file: &File, path: &Path) -> bool {
    let number = |it: &Metadata| (it.dev(), it.ino());
    let looks = |it: &Metadata| (it.len(), it.mtime(), it.mtime_nsec());
    let (Ok(opened), Ok(there)) = (file.metadata(), fs::symlink_metadata(path)) else {
        return false;
    };
    number(&there) == number(&opened) || looks(&there) == looks(&opened)
}

/// Makes an unfinished copy that is not there yet.
pub(super) fn create_own(partial: &Path) -> io::Result<File> {
    let mut options = File::options();
    options
        .read(true)
        .write(true)
        .create_new(true)
        .open(partial)
}

fn open_partial(partial: &Path, path: &Path) -> Result<File> {
    File::options()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .custom_flags(rustix::fs::OFlags::NOFOLLOW.bits().cast_signed())
        .open(partial)
        .map_err(|cause| failed("write", path, cause))
}

/// Opens an unfinished copy that nobody else writes. `owner` is who wrote it last, as its ledger says.
pub(super) fn open_own_partial(partial: &Path, path: &Path, owner: Option<&str>) -> Result<File> {
    let taken = || {
        Error::new(ErrorKind::Conflict, "write", show(path))
            .cause("another posthaste writes it")
            .hint("wait for it to end; of one on another host, a minute longer")
            .at(Locus::Destination)
    };
    for _ in 0..OPENED_MAX {
        let file = open_partial(partial, path)?;
        let fail = |cause| failed("write", path, cause);
        let is_locked = match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => true,
            // Lustre and others may have no locks at all.
            Err(Errno::NOSYS | Errno::NOTSUP | Errno::NOLCK | Errno::INVAL) => false,
            Err(Errno::WOULDBLOCK) => return Err(taken()),
            Err(cause) => return Err(fail(cause.into())),
        };
        // Whoever wrote it before may have given it its final name between the two calls: then it is no draft any more.
        if !is_at(&file, partial) {
            continue;
        }
        let written = file.metadata().map_err(fail)?.mtime();
        match Owner::may_write(owner, is_locked, written) {
            Claim::Goes => return Ok(file),
            // Whoever takes over from a machine that went away may go on in a minute.
            Claim::Waits => return Err(taken().status_is(Status::Temporary)),
            // Its own writer, if it is still there, writes to what has no name any more.
            Claim::Anew => fs::remove_file(partial).map_err(fail)?,
        }
    }
    Err(taken())
}
