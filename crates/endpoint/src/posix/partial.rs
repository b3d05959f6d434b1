//! Unfinished copies of local files: their names and their owners.

use std::{
    cell::RefCell,
    ffi::OsString,
    fs::{self, File, Metadata},
    io,
    os::unix::{
        ffi::{OsStrExt, OsStringExt},
        fs::{MetadataExt, OpenOptionsExt},
    },
    path::{Path, PathBuf},
};

use rustix::{
    fs::{FlockOperation, OFlags},
    io::Errno,
    process::geteuid,
};

use super::{
    draft::failed,
    owner::{Claim, Owner},
    private::published_mode,
    show,
};
use crate::{
    Error, ErrorKind, Locus, Result, Status,
    endpoint::{LEDGER_SUFFIX, PARTIAL_SUFFIX, new_word, partial_name},
    ledger::{Head, Kept, Ledger},
};

/// Attempts to open an unfinished copy that nobody else has.
const OPENED_MAX: u32 = 8;

/// Returns the path of the unfinished copy of `path`.
pub(super) fn partial_path(path: &Path, origin: &str) -> PathBuf {
    let name = path.file_name().unwrap_or_default();
    path.with_file_name(OsString::from_vec(partial_name(name.as_bytes(), origin)))
}

/// Returns a path beside `path` that no other process writes to.
pub(super) fn own_path(path: &Path) -> PathBuf {
    partial_path(path, &new_word())
}

/// Returns the path of the record of an unfinished copy.
pub(super) fn ledger_path(partial: &Path) -> PathBuf {
    let text = partial.as_os_str().as_bytes();
    let stem = text.strip_suffix(PARTIAL_SUFFIX.as_bytes()).unwrap_or(text);
    PathBuf::from(OsString::from_vec(
        [stem, LEDGER_SUFFIX.as_bytes()].concat(),
    ))
}

/// Returns whether an open file lies under this path. SMB and others may number it anew each time;
/// then its attributes decide.
pub(super) fn is_at(file: &File, path: &Path) -> bool {
    let number = |it: &Metadata| (it.dev(), it.ino());
    let looks = |it: &Metadata| (it.len(), it.mtime(), it.mtime_nsec());
    let (Ok(opened), Ok(there)) = (file.metadata(), fs::symlink_metadata(path)) else {
        return false;
    };
    number(&there) == number(&opened) || looks(&there) == looks(&opened)
}

/// Unfinished copy, open for writing.
pub(super) struct Opened {
    pub(super) file: File,
    pub(super) path: PathBuf,
    /// Segments that its record lists.
    pub(super) kept: Vec<Kept>,
}

impl Opened {
    fn new(file: File, path: PathBuf) -> Self {
        Self {
            file,
            path,
            kept: Vec::new(),
        }
    }

    /// Makes a copy that is certain to be nobody else's.
    fn own(path: &Path) -> io::Result<Self> {
        let partial = own_path(path);
        Ok(Self::new(create_own(&partial)?, partial))
    }
}

/// Makes an unfinished copy that does not exist yet. Nobody else may read it until it has its final
/// name.
pub(super) fn create_own(partial: &Path) -> io::Result<File> {
    create(partial, 0o600)
}

fn create(path: &Path, mode: u32) -> io::Result<File> {
    let mut options = File::options();
    options.read(true).write(true).create_new(true).mode(mode);
    options.open(path)
}

/// Returns the mode that a new file beside `path` gets from the umask or its directory's access
/// list.
///
/// # Errors
/// The system's errors.
pub(super) fn usual_mode(path: &Path) -> io::Result<u32> {
    type Known = (PathBuf, u32, u32);
    if let Some(mode) = published_mode(0o666) {
        return Ok(mode);
    }
    thread_local! {
        static LATELY: RefCell<Option<Known>> = const { RefCell::new(None) };
    }
    let (folder, user) = (path.parent().unwrap_or(path), geteuid().as_raw());
    LATELY.with_borrow_mut(|lately| {
        if let Some((known, whose, mode)) = lately
            && (known.as_path(), *whose) == (folder, user)
        {
            return Ok(*mode);
        }
        let trial = own_path(path);
        let made = create(&trial, 0o666)?.metadata();
        fs::remove_file(&trial)?;
        let mode = made?.mode() & 0o777;
        *lately = Some((folder.to_owned(), user, mode));
        Ok(mode)
    })
}

/// State of the path of an unfinished copy.
enum There {
    /// File of this user, under no other name.
    Own(File),
    /// Another user's file, a link, or a file with a second name: somebody may have put it there to
    /// be written to or read.
    Foreign,
    /// No file any more.
    Nothing,
}

fn look(partial: &Path, path: &Path) -> io::Result<There> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let opened = File::options()
        .read(true)
        .write(true)
        .custom_flags(flags.bits().cast_signed())
        .open(partial);
    let file = match opened {
        Ok(file) => file,
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => return Ok(There::Nothing),
        Err(cause) => {
            let errno = Errno::from_io_error(&cause);
            return match errno {
                Some(Errno::LOOP | Errno::ACCESS | Errno::PERM | Errno::ISDIR | Errno::NXIO) => {
                    Ok(There::Foreign)
                }
                Some(_) | None => Err(cause),
            };
        }
    };
    let found = file.metadata()?;
    if !found.is_file() || found.nlink() > 1 {
        return Ok(There::Foreign);
    }
    let is_own = found.uid() == geteuid().as_raw() || found.uid() == given_owner(path)?;
    Ok(if is_own {
        There::Own(file)
    } else {
        There::Foreign
    })
}

/// Returns the user that the file system assigns to new files: NFS and SMB may make everybody one.
fn given_owner(path: &Path) -> io::Result<u32> {
    let Opened { file, path, .. } = Opened::own(path)?;
    let made = file.metadata();
    fs::remove_file(&path)?;
    Ok(made?.uid())
}

/// Opens the unfinished copy of `path` that comes from `origin`, or begins it. It is continued only
/// if `is_same` says that its record is of the very same bytes: another writer of it writes the
/// same. Any other file there is left alone or loses its name, and is never written to.
///
/// # Errors
/// [`ErrorKind::Conflict`] while another process writes it; the system's errors.
pub(super) fn begin(path: &Path, origin: &str, is_same: impl Fn(&Head) -> bool) -> Result<Opened> {
    let fail = |cause| failed("write", path, cause);
    let partial = partial_path(path, origin);
    for _ in 0..OPENED_MAX {
        let (file, is_new) = match create_own(&partial) {
            Ok(file) => (file, true),
            Err(cause) if cause.kind() == io::ErrorKind::AlreadyExists => {
                match look(&partial, path).map_err(fail)? {
                    There::Own(file) => (file, false),
                    There::Foreign => return Opened::own(path).map_err(fail),
                    There::Nothing => continue,
                }
            }
            Err(cause) => return Err(fail(cause)),
        };
        let is_locked = lock(&file, path)?;
        // Its former writer may have given it its final name between the two calls: then it is no
        // draft any more.
        if !is_at(&file, &partial) {
            continue;
        }
        let opened = Opened::new(file, partial.clone());
        if is_new {
            return Ok(opened);
        }
        let found = opened.file.metadata().map_err(fail)?;
        let record = Ledger::load_of(&ledger_path(&partial), found.uid());
        let owner = record.as_ref().map(|(head, _)| head.token.as_str());
        match (Owner::may_write(owner, is_locked, found.mtime()), record) {
            // After a machine went away, its successor may go on in a minute.
            (Claim::Waits, _) => return Err(taken(path).status_is(Status::Temporary)),
            (Claim::Goes, Some((head, kept))) if is_same(&head) => {
                return Ok(Opened { kept, ..opened });
            }
            // If its own writer is still there, it writes to a file without a name.
            (Claim::Goes | Claim::Anew, _) => fs::remove_file(&partial).map_err(fail)?,
        }
    }
    Err(taken(path))
}

/// Locks an unfinished copy. Returns whether there are locks.
fn lock(file: &File, path: &Path) -> Result<bool> {
    match rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(true),
        // Lustre and others may have no locks at all.
        Err(Errno::NOSYS | Errno::NOTSUP | Errno::NOLCK | Errno::INVAL) => Ok(false),
        Err(Errno::WOULDBLOCK) => Err(taken(path)),
        Err(cause) => Err(failed("write", path, cause.into())),
    }
}

fn taken(path: &Path) -> Error {
    Error::new(ErrorKind::Conflict, "write", show(path))
        .cause("another posthaste writes it")
        .hint("wait for it to end; of one on another host, a minute longer")
        .at(Locus::Destination)
}
