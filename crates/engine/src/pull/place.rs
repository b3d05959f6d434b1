//! Destination: a directory outside of which nothing is written.
//!
//! Bytes go to files named by number in `.posthaste-pull-DIGEST`, a directory inside the
//! destination, so the names in a manifest matter only when a whole file gets its place. Each
//! directory on the way there is opened by itself and never through a link.

mod attributes;
mod extras;
mod left_out;
mod staged;
mod taken;

use std::{
    fs::{self, File},
    io::Write,
    os::{
        fd::OwnedFd,
        unix::{ffi::OsStrExt, fs::FileExt},
    },
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU32, AtomicUsize, Ordering},
    },
};

use bytes::Bytes;
use posthaste_endpoint::{Error, ErrorKind, Locus, Result, Unkept, posix::is_refused, pull_name};
use rustix::{
    fs::{
        AtFlags, FileType, FlockOperation, Mode, OFlags, chmodat, fchmod, flock, fstat, ftruncate,
        futimens, openat, readlinkat, renameat, statat, symlinkat, unlinkat,
    },
    io::Errno,
};

use super::resume::{self, ChunkSet};
use crate::dataset::{Extent, FileEntry, FileKind, Manifest};
use attributes::{mode_of, times, unless_refused};
pub use extras::ExtrasUnkept;
use left_out::LEFT_OUT;
pub use left_out::LeftOut;

/// Record in it: four bytes, little-endian, for each chunk that was written.
pub(super) const RECORD: &str = "chunks";
/// Marker in it: the destination itself was missing or empty before.
const FRESH: &str = "fresh";
/// Zero bytes in a row that are left as a hole: a block of the usual file systems.
const HOLE_BYTES: usize = 4096;

/// Destination of a pull.
pub(super) struct Destination {
    manifest: Arc<Manifest>,
    root_path: PathBuf,
    root: OwnedFd,
    staging_name: String,
    staging: OwnedFd,
    /// Record; `None` once it was closed.
    record: Mutex<Option<File>>,
    is_fresh: bool,
    /// Existing files under a dataset's names are replaced.
    overwrite: bool,
    /// Missing chunks of each file of the list; [`LEFT_OUT`] once it was left out.
    missing: Vec<AtomicU32>,
    files_done: AtomicUsize,
    unkept: Mutex<Unkept>,
    extras: Mutex<ExtrasUnkept>,
    left_out: Mutex<LeftOut>,
    /// Directory used last: files come in order, so the next one is likely there too.
    last_parent: Mutex<Option<(Vec<u8>, Arc<OwnedFd>)>>,
}

/// Flags that open a directory by itself.
const DIRECTORY: OFlags = OFlags::PATH
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);

impl Destination {
    /// Opens or makes the destination, finds what is there, and puts files in place that are
    /// already whole. Blocking.
    pub(super) fn open(
        root_path: &Path,
        manifest: Arc<Manifest>,
        overwrite: bool,
    ) -> Result<(Self, ChunkSet)> {
        let failed = |cause| at(root_path, "write to", cause);
        let is_new = !root_path.exists();
        fs::create_dir_all(root_path).map_err(failed)?;
        let root = OwnedFd::from(File::open(root_path).map_err(failed)?);
        let is_empty = fs::read_dir(root_path).map_err(failed)?.next().is_none();
        let staging_name = pull_name(&manifest.digest().to_string());
        if manifest
            .list
            .files
            .iter()
            .any(|file| file.path.starts_with(staging_name.as_bytes()))
        {
            return Err(Error::new(ErrorKind::Invalid, "pull", "the dataset")
                .cause("it holds the directory this pull would write to"));
        }
        let staging = staged::open(&root, root_path, &staging_name)?;
        flock(&staging, FlockOperation::NonBlockingLockExclusive).map_err(|_| {
            Error::new(
                ErrorKind::Conflict,
                "pull to",
                root_path.display().to_string(),
            )
            .at(Locus::Destination)
            .cause("another pull of the same dataset is writing there")
        })?;
        let open = |name: &str| {
            let flags = OFlags::RDWR | OFlags::CREATE | OFlags::APPEND;
            let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            openat(&staging, name, flags, Mode::RUSR | Mode::WUSR).map_err(|c| failed(c.into()))
        };
        if is_new || is_empty {
            open(FRESH)?;
        }
        let is_fresh = statat(&staging, FRESH, AtFlags::empty()).is_ok();
        let record = File::from(open(RECORD)?);
        let missing = manifest
            .list
            .files
            .iter()
            // Nobody has what was left out before it was sent.
            .map(|file| AtomicU32::new(u32::from(file.kind == FileKind::LeftOut) * LEFT_OUT))
            .collect();
        let destination = Self {
            manifest,
            root_path: root_path.to_owned(),
            root,
            staging_name,
            staging,
            record: Mutex::new(Some(record)),
            is_fresh,
            overwrite,
            missing,
            files_done: AtomicUsize::new(0),
            unkept: Mutex::default(),
            extras: Mutex::default(),
            left_out: Mutex::default(),
            last_parent: Mutex::new(None),
        };
        destination.make_directories()?;
        let there = resume::find(&destination)?;
        Ok((destination, there))
    }

    pub(super) fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    pub(super) fn files_done(&self) -> usize {
        self.files_done.load(Ordering::Relaxed)
    }

    fn file(&self, index: usize) -> &FileEntry {
        &self.manifest.list.files[index]
    }

    pub(super) fn failed(&self, file: &FileEntry, cause: impl Into<std::io::Error>) -> Error {
        at(&file.below(&self.root_path), "write", cause.into())
    }

    /// Returns the chunks that an earlier run wrote, by its record.
    pub(super) fn recorded(&self) -> Result<Vec<u8>> {
        use std::io::Read;
        let mut bytes = Vec::new();
        let mut record = self.record.lock().unwrap_or_else(PoisonError::into_inner);
        let read = record.as_mut().map(|record| record.read_to_end(&mut bytes));
        read.transpose()
            .map_err(|cause| at(&self.root_path, "read from", cause))?;
        Ok(bytes)
    }

    pub(super) fn in_the_way(&self, file: &FileEntry) -> Error {
        let path = file.below(&self.root_path).display().to_string();
        Error::new(ErrorKind::Other, "write", path)
            .at(Locus::Destination)
            .cause("something of another kind is in the way")
            .hint("move it away, or pull to another directory")
    }

    /// Returns the directory of a file, opened component by component, and its name there.
    pub(super) fn parent<'a>(&self, file: &'a FileEntry) -> Result<(Arc<OwnedFd>, &'a [u8])> {
        let (directory, name) = match file.path.iter().rposition(|&byte| byte == b'/') {
            Some(at) => (&file.path[..at], &file.path[at + 1..]),
            None => (&[][..], file.path.as_slice()),
        };
        let mut last = self
            .last_parent
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some((path, parent)) = &*last
            && path == directory
        {
            return Ok((Arc::clone(parent), name));
        }
        let open = |from: &OwnedFd, name: &[u8]| {
            openat(from, name, DIRECTORY, Mode::empty()).map_err(|cause| match cause {
                Errno::NOTDIR | Errno::LOOP => self.in_the_way(file),
                cause => self.failed(file, cause),
            })
        };
        let mut parent = open(&self.root, b".")?;
        for component in directory
            .split(|&byte| byte == b'/')
            .filter(|name| !name.is_empty())
        {
            parent = open(&parent, component)?;
        }
        let parent = Arc::new(parent);
        *last = Some((directory.to_vec(), Arc::clone(&parent)));
        Ok((parent, name))
    }

    /// Returns the type and size of what lies under the file's final name.
    pub(super) fn final_state(&self, file: &FileEntry) -> Result<Option<(FileType, u64)>> {
        let (parent, name) = self.parent(file)?;
        match statat(&parent, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => {
                let kind = FileType::from_raw_mode(stat.st_mode);
                if kind == FileType::Directory && file.kind != FileKind::Directory {
                    return Err(self.in_the_way(file));
                }
                Ok(Some((kind, u64::try_from(stat.st_size).unwrap_or(0))))
            }
            Err(Errno::NOENT) => Ok(None),
            Err(cause) => Err(self.failed(file, cause)),
        }
    }

    pub(super) fn open_final(&self, file: &FileEntry) -> Result<File> {
        let (parent, name) = self.parent(file)?;
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let open = openat(&parent, name, flags, Mode::empty());
        open.map(File::from)
            .map_err(|cause| self.failed(file, cause))
    }

    /// Returns whether an earlier run left an unfinished file. That run may have been killed after
    /// it gave the file its final mode, so the file is made writable again.
    pub(super) fn revive_staged(&self, index: usize) -> bool {
        let mode = Mode::RUSR | Mode::WUSR;
        chmodat(&self.staging, index.to_string(), mode, AtFlags::empty()).is_ok()
    }

    /// Opens the unfinished file, if an earlier run made it.
    pub(super) fn open_staged(&self, index: usize) -> Option<File> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        openat(&self.staging, index.to_string(), flags, Mode::empty())
            .ok()
            .map(File::from)
    }

    fn stage(&self, index: usize) -> Result<File> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let open = openat(
            &self.staging,
            index.to_string(),
            flags,
            Mode::RUSR | Mode::WUSR,
        );
        open.map(File::from)
            .map_err(|cause| self.failed(self.file(index), cause))
    }

    /// Sets the number of chunks that a file still waits for; with none it gets its place at once.
    pub(super) fn expect(&self, index: usize, missing: u32) -> Result<()> {
        self.missing[index].store(missing, Ordering::Relaxed);
        if missing == 0 {
            self.settle(index)
        } else {
            Ok(())
        }
    }

    /// Notes that a file is whole under its final name.
    pub(super) fn is_settled(&self, index: usize) {
        // Chunks that span it and others do not write it again.
        self.missing[index].store(0, Ordering::Relaxed);
        self.files_done.fetch_add(1, Ordering::Relaxed);
    }

    /// Writes bytes of an unfinished file, leaving holes for zeros.
    pub(super) fn write_staged(&self, index: usize, offset: u64, bytes: &[u8]) -> Result<()> {
        let out = self.stage(index)?;
        self.write_to(&out, index, offset, bytes)?;
        self.close_staged(index, out)
    }

    fn write_to(&self, out: &File, index: usize, offset: u64, bytes: &[u8]) -> Result<()> {
        let failed = |cause| self.failed(self.file(index), cause);
        let (mut start, mut at) = (0, 0);
        // Runs of blocks that are not all zeros are written at once.
        while at < bytes.len() {
            let end = bytes.len().min(at + HOLE_BYTES);
            let is_zero = bytes[at..end].iter().all(|&byte| byte == 0);
            if is_zero && is_zero_at(out, offset + at as u64, end - at) {
                out.write_all_at(&bytes[start..at], offset + start as u64)
                    .map_err(failed)?;
                start = end;
            }
            at = end;
        }
        out.write_all_at(&bytes[start..], offset + start as u64)
            .map_err(failed)
    }

    /// Writes a verified chunk, given as consecutive pieces, and puts every file in place that it
    /// makes whole. Blocking.
    pub(super) fn write_chunk(&self, chunk: u32, pieces: &[Bytes]) -> Result<()> {
        let extents: Vec<_> = self
            .manifest
            .list
            .extents(chunk, self.manifest.chunk_size)
            .collect();
        let waits =
            |index: usize| !matches!(self.missing[index].load(Ordering::Acquire), 0 | LEFT_OUT);
        for extent in extents.iter().filter(|extent| waits(extent.file)) {
            self.unless_left_out(extent.file, self.write_extent(extent, pieces))?;
        }
        let mut record = self.record.lock().unwrap_or_else(PoisonError::into_inner);
        let recorded = record
            .as_mut()
            .map(|record| record.write_all(&chunk.to_le_bytes()));
        drop(record);
        let recorded = recorded.transpose();
        recorded.map_err(|cause| at(&self.root_path, "write to", cause))?;
        for extent in extents.iter().filter(|extent| waits(extent.file)) {
            // Another chunk of it may have been refused meanwhile.
            let one_less = |missing| (missing != LEFT_OUT).then(|| missing - 1);
            let (set, fetch) = (Ordering::AcqRel, Ordering::Acquire);
            if self.missing[extent.file].fetch_update(set, fetch, one_less) == Ok(1) {
                self.unless_left_out(extent.file, self.settle(extent.file))?;
            }
        }
        Ok(())
    }

    /// Writes what a chunk, given as consecutive pieces, holds of a file.
    fn write_extent(&self, extent: &Extent, pieces: &[Bytes]) -> Result<()> {
        let (mut from, end) = (extent.chunk_offset, extent.chunk_offset + extent.length);
        let mut piece_start = 0;
        for piece in pieces {
            let piece_end = piece_start + piece.len();
            if from < end && from < piece_end {
                let to = end.min(piece_end);
                let offset = extent.file_offset + (from - extent.chunk_offset) as u64;
                let bytes = &piece[from - piece_start..to - piece_start];
                self.write_staged(extent.file, offset, bytes)?;
                from = to;
            }
            piece_start = piece_end;
        }
        Ok(())
    }

    /// Gives a whole file its size, attributes and final name.
    fn settle(&self, index: usize) -> Result<()> {
        let file = self.file(index);
        let failed = |cause: Errno| self.failed(file, cause);
        let staged = self.stage(index)?;
        ftruncate(&staged, file.size).map_err(failed)?;
        self.give_extras(&staged, file)?;
        // A refused attribute is tried again at the end, and counted then.
        unless_refused(fchmod(&staged, mode_of(file))).map_err(failed)?;
        let found = fstat(&staged).map_err(failed)?;
        unless_refused(futimens(&staged, &times(file, &found))).map_err(failed)?;
        if self.is_taken(file, &staged)? {
            return Err(self.taken(file));
        }
        self.close_staged(index, staged)?;
        self.rename_staged(&index.to_string(), file)?;
        self.files_done.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn rename_staged(&self, staged: &str, file: &FileEntry) -> Result<()> {
        let (parent, name) = self.parent(file)?;
        self.refuse_special(file)?;
        renameat(&self.staging, staged, &parent, name).map_err(|cause| match cause {
            Errno::ISDIR | Errno::NOTEMPTY | Errno::EXIST => self.in_the_way(file),
            cause => self.failed(file, cause),
        })
    }

    /// Makes the links, restores attributes, asks the disk to keep everything, and removes the
    /// staging directory. Returns why it could not remove it. Blocking.
    pub(super) fn finish(&self) -> Result<Option<Error>> {
        let files = &self.manifest.list.files;
        let finish = |index: usize| {
            let file = self.file(index);
            let finished = match &file.kind {
                _ if self.is_left_out(index) => return Ok(()),
                FileKind::Symlink { target } => self.make_link(file, target),
                FileKind::Regular => self.join_names(file).and_then(|()| self.restore(file)),
                FileKind::Directory => self.restore_directory(file),
                FileKind::LeftOut => Ok(()),
            };
            self.unless_left_out(index, finished)
        };
        let is_directory = |index: &usize| self.file(*index).kind == FileKind::Directory;
        let root = files.first().filter(|file| file.path.is_empty());
        let below = usize::from(root.is_some())..files.len();
        below
            .clone()
            .filter(|index| !is_directory(index))
            .try_for_each(finish)?;
        below.rev().filter(is_directory).try_for_each(finish)?;
        // Depots may forget a dataset once it was delivered: so it must be on disk.
        rustix::fs::syncfs(&self.root).map_err(|c| at(&self.root_path, "flush", c.into()))?;
        // Everything is there, whatever is left beside it.
        let left = self.remove_staging().err();
        if let Some(root) = root {
            self.unless_left_out(0, self.restore_root(root))?;
        }
        Ok(left)
    }

    fn remove_staging(&self) -> Result<()> {
        let failed = |cause| at(&self.root_path, "clean", cause);
        // NFS and FUSE keep what is open under another name in its directory.
        drop(
            self.record
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .take(),
        );
        let staging = self.root_path.join(&self.staging_name);
        // Some file systems skip names when others go while they list.
        let items: Vec<_> = fs::read_dir(&staging)
            .and_then(Iterator::collect)
            .map_err(failed)?;
        for item in items {
            unlinkat(&self.staging, item.file_name().as_bytes(), AtFlags::empty())
                .map_err(|cause| failed(cause.into()))?;
        }
        unlinkat(&self.root, self.staging_name.as_str(), AtFlags::REMOVEDIR)
            .map_err(|cause| failed(cause.into()))
    }

    /// Makes a link in staging and moves it to its place, unless an equal one is there.
    fn make_link(&self, file: &FileEntry, target: &[u8]) -> Result<()> {
        const STAGED: &str = "link";
        let (parent, name) = self.parent(file)?;
        let there = readlinkat(&parent, name, Vec::new());
        if !there.is_ok_and(|there| there.as_bytes() == target) {
            if self.final_state(file)?.is_some() && !self.overwrite {
                return Err(self.taken(file));
            }
            match unlinkat(&self.staging, STAGED, AtFlags::empty()) {
                Ok(()) | Err(Errno::NOENT) => {}
                Err(cause) => return Err(self.failed(file, cause)),
            }
            symlinkat(target, &self.staging, STAGED).map_err(|cause| match cause {
                cause if is_refused(cause) => no_links(file.below(&self.root_path)),
                cause => self.failed(file, cause),
            })?;
            self.rename_staged(STAGED, file)?;
        }
        self.give_link_owner(file)?;
        self.restore(file)
    }
}

/// Returns whether a file reads as zeros there already: it has a hole, or ends before.
fn is_zero_at(file: &File, offset: u64, length: usize) -> bool {
    let mut bytes = [0; HOLE_BYTES];
    let bytes = &mut bytes[..length.min(HOLE_BYTES)];
    file.read_at(bytes, offset)
        .is_ok_and(|count| bytes[..count].iter().all(|&byte| byte == 0))
}

fn at(path: &Path, operation: &'static str, cause: std::io::Error) -> Error {
    let error = Error::io(operation, path.display().to_string(), cause).at(Locus::Destination);
    if error.kind() == ErrorKind::Full {
        return error.hint("make room and run it again; what is here is kept");
    }
    error
}

fn no_links(path: PathBuf) -> Error {
    Error::new(
        ErrorKind::Unsupported,
        "make link",
        path.display().to_string(),
    )
    .cause("no symbolic links can be there")
    .at(Locus::Destination)
}
