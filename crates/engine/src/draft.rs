//! Files of a stage-in on their way: in a hidden directory beside the one they become.

use std::{
    collections::HashMap,
    ffi::OsStr,
    fs::{self, OpenOptions},
    io,
    ops::Range,
    os::{
        fd::OwnedFd,
        unix::{
            ffi::OsStrExt,
            fs::{FileExt, MetadataExt},
        },
    },
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, Ordering},
};

use posthaste_endpoint::{
    Actor, Error, ErrorKind, FileTime, Locus, Result, Unkept, draft_name, loss_name,
    posix::{Beneath, close, is_refused, published_mode, seal_file, split},
};
use rustix::{
    fs::{AtFlags, Mode, OFlags, fchmod, openat, unlinkat},
    io::Errno,
};

use crate::copy::{
    clash,
    folding::{Folding, clashes, is_one_with, may_be_one},
};

/// Bytes read at once.
const READ_BYTES: usize = 1 << 20;
/// Permission bits that are transferred: never those that let a file run as somebody else.
const MODE_MASK: u32 = 0o777;
/// Rights that let the owner work in a directory: it still has to get its name, and is removed some
/// day.
const OWNER_ALL: u32 = 0o700;

/// File of a draft, with its final attributes.
#[derive(Debug, Clone, Copy)]
pub struct Finish<'a> {
    /// Path relative to the draft.
    pub path: &'a [u8],
    /// Its bytes.
    pub size: u64,
    /// Permission bits, if known.
    pub mode: Option<u32>,
    /// Last change, if known.
    pub mtime: Option<FileTime>,
}

/// Directory of a draft, with its final attributes.
#[derive(Debug, Clone, Copy)]
pub struct Folder<'a> {
    /// Path relative to the draft; empty for the draft itself.
    pub path: &'a [u8],
    /// Permission bits, if known.
    pub mode: Option<u32>,
    /// Last change, if known.
    pub mtime: Option<FileTime>,
}

/// Folder where a stage-in is put together, with its destination.
#[derive(Debug)]
pub struct Draft {
    folder: PathBuf,
    destination: PathBuf,
    actor: Actor,
    /// The file system reported a loss of written bytes.
    has_lost: AtomicBool,
    /// Set once it has its name, or was removed: what comes late makes no other.
    is_over: AtomicBool,
}

/// Returns the path beside a draft that notes the loss of written bytes.
fn loss_path(folder: &Path) -> PathBuf {
    let name = folder.file_name().unwrap_or_default();
    folder.with_file_name(OsStr::from_bytes(&loss_name(name.as_bytes())))
}

/// Notes that a file of a draft lost written bytes. The file system reports that once, to the first
/// process that closes the file. Everything else in the draft has to be read again, and nothing is
/// kept of the file.
pub fn note_loss(folder: &Path, path: &[u8]) {
    // Without a note the file is missed all the same, unless somebody makes it again.
    let _ = OpenOptions::new()
        .write(true)
        .create_new(true)
        .open(loss_path(folder));
    let (parent, name) = split(path);
    let below = Beneath::open_exactly(folder).and_then(|folder| Ok(folder.folder(parent, false)?));
    let _ = below.map(|below| unlinkat(below, name, AtFlags::empty()));
}

fn failed(operation: &'static str, path: &Path, cause: io::Error) -> Error {
    Error::io(operation, path.display().to_string(), cause).at(Locus::Destination)
}

impl Draft {
    /// Returns the directory in which it is put together.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Returns the draft of what becomes `destination`; `token` distinguishes it from drafts of
    /// others.
    #[must_use]
    pub fn new(destination: &Path, token: &str) -> Self {
        let name = destination.file_name().unwrap_or_default();
        let hidden = draft_name(name.as_bytes(), token);
        Self {
            folder: destination.with_file_name(OsStr::from_bytes(&hidden)),
            destination: destination.to_path_buf(),
            actor: Actor::oneself(),
            has_lost: AtomicBool::new(false),
            is_over: AtomicBool::new(false),
        }
    }

    /// Acts with the rights of another account, which then owns the files.
    #[must_use]
    pub fn acting(self, actor: Actor) -> Self {
        Self { actor, ..self }
    }

    /// Returns the full path of one of its files.
    fn path(&self, relative: &[u8]) -> PathBuf {
        self.folder.join(OsStr::from_bytes(relative))
    }

    /// Opens its directory, and makes it if there is none yet, unless the draft is over. A directory
    /// that somebody else put there is refused: what is written to it would be theirs.
    fn ground(&self) -> io::Result<Beneath> {
        match Beneath::open_own(&self.folder) {
            Err(cause)
                if cause.kind() == io::ErrorKind::NotFound
                    && !self.is_over.load(Ordering::Acquire) =>
            {
                fs::create_dir_all(&self.folder)?;
                Beneath::open_own(&self.folder)
            }
            opened => opened,
        }
    }

    /// Writes a piece of a file, durable only after [`Draft::sync`].
    ///
    /// # Errors
    /// The operating system's, as everywhere here.
    pub fn write(&self, path: &[u8], size: u64, at: u64, bytes: &[u8]) -> Result<()> {
        self.actor.run(|| {
            let wrote = self.open(path, size);
            let wrote = wrote.and_then(|file| {
                let wrote = file.write_all_at(bytes, at);
                self.hear(path, close(file))?;
                wrote
            });
            wrote.map_err(|cause| failed("write", &self.path(path), cause))
        })
    }

    /// Makes a file of this size, unless it is there.
    ///
    /// # Errors
    /// The operating system's.
    pub fn make(&self, path: &[u8], size: u64) -> Result<()> {
        self.actor.run(|| {
            let made = self.open(path, size);
            let made = made.and_then(|file| self.hear(path, close(file)));
            made.map_err(|cause| failed("make", &self.path(path), cause))
        })
    }

    /// Opens a file of this size to write, through no link, and makes it if it is missing.
    fn open(&self, path: &[u8], size: u64) -> io::Result<fs::File> {
        let (parent, name) = split(path);
        let folder = self.ground()?.folder(parent, true)?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = fs::File::from(openat(folder, name, flags, Mode::from_raw_mode(0o666))?);
        if file.metadata()?.len() != size {
            file.set_len(size)?;
        }
        Ok(file)
    }

    /// Removes a file that is not to arrive; a missing one is no error.
    ///
    /// # Errors
    /// The operating system's.
    pub fn leave_out(&self, path: &[u8]) -> Result<()> {
        self.actor.run(|| {
            let (parent, name) = split(path);
            let removed = self.ground().and_then(|ground| {
                let folder = ground.folder(parent, true)?;
                Ok(unlinkat(folder, name, AtFlags::empty())?)
            });
            match removed {
                Err(cause) if cause.kind() != io::ErrorKind::NotFound => {
                    Err(failed("remove", &self.path(path), cause))
                }
                _ => Ok(()),
            }
        })
    }

    /// Makes the written bytes of a file durable.
    ///
    /// # Errors
    /// The operating system's.
    pub fn sync(&self, path: &[u8], size: u64) -> Result<()> {
        self.actor.run(|| {
            let synced = self.open(path, size).and_then(|file| {
                let synced = self.hear(path, file.sync_data());
                self.hear(path, close(file))?;
                synced
            });
            synced.map_err(|cause| failed("flush", &self.path(path), cause))
        })
    }

    /// Handles the file system's report on bytes that it accepted before.
    fn hear(&self, path: &[u8], said: io::Result<()>) -> io::Result<()> {
        said.inspect_err(|_| {
            self.has_lost.store(true, Ordering::Relaxed);
            note_loss(&self.folder, path);
        })
    }

    /// Returns whether the file system reported a loss of written bytes, for any file and to
    /// anybody.
    #[must_use]
    pub fn has_lost(&self) -> bool {
        let is_noted = || Ok(loss_path(&self.folder).exists());
        self.has_lost.load(Ordering::Relaxed) || self.actor.run(is_noted).unwrap_or(true)
    }

    /// Passes the existing bytes of a file to `take`, piece by piece.
    ///
    /// # Errors
    /// The operating system's.
    pub fn read(&self, path: &[u8], range: Range<u64>, mut take: impl FnMut(&[u8])) -> Result<()> {
        self.actor.run(|| {
            // Nothing is made to be read: it may have got its name, or be over.
            let opened = Beneath::open_own(&self.folder)
                .and_then(|ground| Ok(ground.open(path, OFlags::RDONLY)?));
            let read = opened.map(fs::File::from).and_then(|file| {
                let mut block = vec![0; READ_BYTES];
                let mut at = range.start;
                while at < range.end {
                    let left = usize::try_from(range.end - at).unwrap_or(READ_BYTES);
                    let block = &mut block[..left.min(READ_BYTES)];
                    file.read_exact_at(block, at)?;
                    take(block);
                    at += block.len() as u64;
                }
                self.hear(path, close(file))
            });
            read.map_err(|cause| failed("read", &self.path(path), cause))
        })
    }

    /// Fails if two of these names are equal at the destination: one would replace the other. To
    /// learn that it makes a file there, if any may be.
    ///
    /// # Errors
    /// [`ErrorKind::Conflict`], with both.
    pub fn refuse_clash(&self, paths: &[&[u8]]) -> Result<()> {
        let parent = self.folder.parent().unwrap_or(&self.folder);
        let learn = || {
            let learn = || Ok(fs::File::open(parent).map_or(Folding::WIDEST, Folding::learn_in));
            self.actor.run(learn).unwrap_or(Folding::WIDEST)
        };
        match clashes(paths.iter().copied(), learn)[..] {
            [] => Ok(()),
            [(place, first), ..] => Err(self.clash(paths[place], paths[first])),
        }
    }

    /// Checks that everything that is there under these names is an object of its own.
    fn refuse_merged<'a>(&self, paths: impl Iterator<Item = &'a [u8]> + Clone) -> Result<()> {
        let mut seen = HashMap::new();
        for path in may_be_one(paths) {
            let found = fs::symlink_metadata(self.path(path));
            let found = found.map_err(|cause| failed("look at", &self.path(path), cause))?;
            if let Some(other) = seen.insert((found.dev(), found.ino()), path) {
                return Err(self.clash(path, other));
            }
        }
        Ok(())
    }

    /// Returns the error that two names are equal at the destination.
    fn clash(&self, path: &[u8], other: &[u8]) -> Error {
        let shown = self.destination.join(OsStr::from_bytes(path));
        let error = is_one_with("stage in", shown.display().to_string(), other);
        clash(error.hint("let it go to another file system"))
    }

    /// Returns whether a file is there with room for all of it.
    #[must_use]
    pub fn has(&self, path: &[u8], size: u64) -> bool {
        let has = self.actor.run(|| {
            let about = fs::symlink_metadata(self.path(path));
            Ok(about.is_ok_and(|about| about.is_file() && about.len() == size))
        });
        has.unwrap_or(false)
    }

    /// Returns what distinguishes this draft from anything else of its name; `None` if it is not
    /// there.
    #[must_use]
    pub fn identity(&self) -> Option<String> {
        self.actor.run(|| Ok(identity(&self.folder))).ok()?
    }

    /// Returns whether the object at the destination is the draft of this identity.
    #[must_use]
    pub fn has_landed(&self, identity_then: &str) -> bool {
        let now = self.actor.run(|| Ok(identity(&self.destination)));
        now.is_ok_and(|now| now.as_deref() == Some(identity_then))
    }

    /// Makes everything that no chunk brings, and gives files the attributes of their source.
    /// Parents stand before what is in them. Returns what the file system does not keep of that.
    ///
    /// # Errors
    /// The operating system's; [`ErrorKind::Conflict`] if two names became equal, in a directory
    /// that folds other names than those [`Draft::refuse_clash`] looked at.
    pub fn complete<'a>(
        &self,
        directories: &[Folder<'_>],
        files: impl Iterator<Item = Finish<'a>> + Clone,
    ) -> Result<Unkept> {
        self.actor.run(|| {
            let mut unkept = Unkept::default();
            let ground = self.ground();
            let ground = ground.map_err(|cause| failed("make", &self.folder, cause))?;
            for Folder { path, .. } in directories.iter().filter(|folder| !folder.path.is_empty()) {
                let made = ground.folder(path, true);
                made.map_err(|cause| failed("make", &self.path(path), cause.into()))?;
            }
            for about in files.clone() {
                let path = about.path;
                let opened = if about.size > 0 {
                    let opened = ground.open(path, OFlags::WRONLY);
                    opened.map(fs::File::from).map_err(io::Error::from)
                } else {
                    self.open(path, 0)
                };
                let written = opened.and_then(|file| {
                    let mode = about.mode.map(|mode| mode & MODE_MASK | 0o200);
                    let mode = mode.or_else(|| published_mode(0o666));
                    let unkept = seal_file(&file, mode, about.mtime)?;
                    let synced = self.hear(path, file.sync_all());
                    self.hear(path, close(file))?;
                    synced.map(|()| unkept)
                });
                unkept += written.map_err(|cause| failed("finish", &self.path(path), cause))?;
            }
            let paths = directories.iter().map(|folder| folder.path);
            let paths = paths.filter(|path| !path.is_empty());
            self.refuse_merged(paths.chain(files.map(|about| about.path)))?;
            // Its entries come before it: then its time is that of its source.
            for folder in directories.iter().rev() {
                let opened = ground.open(folder.path, OFlags::RDONLY | OFlags::DIRECTORY);
                let opened = opened.map_err(io::Error::from);
                let published = opened.and_then(|opened| publish_directory(opened, folder));
                unkept +=
                    published.map_err(|cause| failed("finish", &self.path(folder.path), cause))?;
            }
            Ok(unkept)
        })
    }

    /// Gives it its name. Never replaces anything.
    ///
    /// # Errors
    /// [`ErrorKind::Conflict`] if something is there.
    pub fn rename(&self) -> Result<()> {
        self.actor.run(|| {
            use rustix::fs::{CWD, RenameFlags, renameat_with};
            let renamed = renameat_with(
                CWD,
                &self.folder,
                CWD,
                &self.destination,
                RenameFlags::NOREPLACE,
            );
            let renamed = match renamed.map_err(io::Error::from) {
                // Some file systems can't say so in one step.
                Err(cause) if is_unable(&cause) => {
                    if fs::symlink_metadata(&self.destination).is_ok() {
                        return Err(self.in_the_way());
                    }
                    fs::rename(&self.folder, &self.destination)
                }
                Err(cause) if cause.kind() == io::ErrorKind::AlreadyExists => {
                    return Err(self.in_the_way());
                }
                other => other,
            };
            renamed.map_err(|cause| failed("name", &self.destination, cause))?;
            self.is_over.store(true, Ordering::Release);
            let _ = fs::remove_file(loss_path(&self.folder));
            sync_directory(self.destination.parent().unwrap_or(&self.destination))
        })
    }

    fn in_the_way(&self) -> Error {
        let shown = self.destination.display().to_string();
        Error::new(ErrorKind::Conflict, "stage in to", shown)
            .cause("something came to be there meanwhile")
            .at(Locus::Destination)
    }

    /// Removes what was written.
    ///
    /// # Errors
    /// The operating system's.
    pub fn remove(&self) -> Result<()> {
        self.is_over.store(true, Ordering::Release);
        self.actor.run(|| match fs::remove_dir_all(&self.folder) {
            Err(cause) if cause.kind() != io::ErrorKind::NotFound => {
                Err(failed("remove", &self.folder, cause))
            }
            _ => {
                let _ = fs::remove_file(loss_path(&self.folder));
                Ok(())
            }
        })
    }
}

fn identity(path: &Path) -> Option<String> {
    let about = fs::symlink_metadata(path).ok()?;
    Some(format!("{}:{}", about.dev(), about.ino()))
}

/// Gives a directory its source's attributes, or the mode of a user's new directories, and makes it
/// durable.
fn publish_directory(directory: OwnedFd, folder: &Folder<'_>) -> io::Result<Unkept> {
    let directory = fs::File::from(directory);
    let mode = folder.mode.map(|mode| mode & MODE_MASK | OWNER_ALL);
    let unkept = match (mode, folder.mtime) {
        (None, None) => {
            if let Some(mode) = published_mode(0o777) {
                match fchmod(&directory, Mode::from_raw_mode(mode)) {
                    // Nothing of the source's is lost where modes are not kept.
                    Err(cause) if is_refused(cause) => {}
                    given => given?,
                }
            }
            Unkept::default()
        }
        (mode, mtime) => seal_file(&directory, mode.or_else(|| published_mode(0o777)), mtime)?,
    };
    flush_directory(&directory)?;
    Ok(unkept)
}

/// Returns whether a file system can't do a thing at all.
fn is_unable(cause: &io::Error) -> bool {
    let cause = Errno::from_io_error(cause);
    matches!(cause, Some(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP))
}

fn sync_directory(path: &Path) -> Result<()> {
    let synced = fs::File::open(path).and_then(|directory| flush_directory(&directory));
    synced.map_err(|cause| failed("flush", path, cause))
}

fn flush_directory(directory: &fs::File) -> io::Result<()> {
    match directory.sync_all() {
        // SMB has nothing to flush there.
        Err(cause) if is_unable(&cause) => Ok(()),
        synced => synced,
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn nothing_is_written_through_a_link_that_came_into_a_draft() {
        let folder = tempfile::tempdir().unwrap();
        let draft = Draft::new(&folder.path().join("input"), "0123456789abcdef");
        let others = folder.path().join("others");
        fs::create_dir(&others).unwrap();
        fs::write(others.join("file"), "theirs").unwrap();
        draft.make(b"sub/first", 1).unwrap();
        fs::rename(draft.folder().join("sub"), folder.path().join("away")).unwrap();
        symlink(&others, draft.folder().join("sub")).unwrap();
        symlink(others.join("file"), draft.folder().join("file")).unwrap();
        for path in [&b"sub/file"[..], b"file"] {
            draft.write(path, 6, 0, b"ours!!").unwrap_err();
            draft.sync(path, 6).unwrap_err();
            draft.read(path, 0..6, |_| ()).unwrap_err();
            note_loss(draft.folder(), path);
        }
        assert_eq!(fs::read(others.join("file")).unwrap(), b"theirs");
        // Nor into what somebody put into the draft's place.
        draft.remove().unwrap();
        symlink(&others, draft.folder()).unwrap();
        draft.write(b"file", 6, 0, b"ours!!").unwrap_err();
        assert_eq!(fs::read(others.join("file")).unwrap(), b"theirs");
    }
    #[test]
    fn what_comes_after_the_end_of_a_draft_makes_no_other() {
        let folder = tempfile::tempdir().unwrap();
        for is_named in [true, false] {
            let draft = Draft::new(&folder.path().join("input"), "0123456789abcdef");
            draft.write(b"sub/file", 4, 0, b"ours").unwrap();
            match is_named {
                true => draft.rename().unwrap(),
                false => draft.remove().unwrap(),
            }
            draft.write(b"sub/file", 4, 0, b"ours").unwrap_err();
            draft.make(b"other", 4).unwrap_err();
            draft.sync(b"sub/file", 4).unwrap_err();
            draft.leave_out(b"other").unwrap();
            assert!(!draft.folder().exists());
        }
        assert_eq!(
            fs::read(folder.path().join("input/sub/file")).unwrap(),
            b"ours"
        );
    }
}
