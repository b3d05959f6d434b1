//! Local files.
//!
//! The blocking halves, [`SourceFile`] and [`Draft`], are what the engine's local fast path is
//! made of; [`Posix`] wraps them for copies whose other end is remote.

mod block;
mod draft;
mod flush;
mod listing;
mod source;
mod writer;

use std::{
    ffi::OsStr,
    fs, io,
    os::unix::{
        ffi::{OsStrExt, OsStringExt},
        fs::{FileTypeExt, MetadataExt},
    },
    path::{Path, PathBuf},
    sync::Arc,
};

use bytes::Bytes;
use rustix::fs::{AtFlags, CWD, Mode, Timespec, Timestamps};

pub use block::Block;
pub use draft::{Draft, DraftRules, segment_range};
pub use flush::flush;
pub use listing::PosixListing;
pub use source::SourceFile;
use writer::PosixWriter;

use crate::{
    Actor, Capabilities, Checksum, Error, ErrorKind, Locus, Result,
    endpoint::{Boxed, Endpoint, Entry, FileSpec, FileTime, Kind, Listing, Reader, Whole, Writer},
};

/// Bytes read, summed and written at a time: stays in a core's L2 cache.
pub const BLOCK_BYTES: usize = 64 << 10;

/// Bytes of a segment of a large local file, and so what a crash loses for each lane.
pub const SEGMENT_BYTES: u64 = 16 << 20;

/// Fewest bytes of a segment that comes from elsewhere: the last ones end one by one, which takes
/// the longer the larger they are.
const RECEIVED_SEGMENT_BYTES_MIN: u64 = 1 << 20;

/// Segments of a file that comes from elsewhere, between those sizes.
const RECEIVED_SEGMENTS: u64 = 1024;

/// Bytes of a segment of a file of `size` bytes that comes from elsewhere: the same in every run.
fn received_segment_bytes(size: u64) -> u64 {
    (size / RECEIVED_SEGMENTS)
        .clamp(RECEIVED_SEGMENT_BYTES_MIN, SEGMENT_BYTES)
        .next_power_of_two()
}

/// The local file system below a root.
#[derive(Debug, Clone)]
pub struct Posix {
    root: PathBuf,
    rules: DraftRules,
    actor: Actor,
}

impl Posix {
    /// The files below `root`, or the one file `root` is.
    #[must_use]
    pub fn new(root: impl Into<PathBuf>, rules: DraftRules) -> Self {
        let root = root.into();
        let root = if root.as_os_str().is_empty() {
            PathBuf::from(".")
        } else {
            root
        };
        Self {
            root,
            rules,
            actor: Actor::oneself(),
        }
    }

    /// The same with the rights of somebody else.
    #[must_use]
    pub fn acting(self, actor: Actor) -> Self {
        Self { actor, ..self }
    }

    /// Runs a blocking call on the runtime's blocking threads, with the rights it acts with.
    fn blocking<T: Send + 'static>(
        &self,
        call: impl FnOnce() -> Result<T> + Send + 'static,
    ) -> impl Future<Output = Result<T>> + Send + 'static {
        let actor = self.actor.clone();
        async move { actor.blocking(call).await }
    }

    /// The real path of a relative one.
    #[must_use]
    pub fn path(&self, path: &[u8]) -> PathBuf {
        if path.is_empty() {
            return self.root.clone();
        }
        self.root.join(OsStr::from_bytes(path))
    }

    /// How unfinished files are treated.
    #[must_use]
    pub fn rules(&self) -> DraftRules {
        self.rules
    }
}

/// What the system says about a path. Blocks.
///
/// # Errors
/// Any of the system's but "not found", which is `None`.
pub fn stat(path: &Path, follow: bool) -> Result<Option<Entry>> {
    let found = if follow {
        fs::metadata(path)
    } else {
        fs::symlink_metadata(path)
    };
    match found {
        Ok(metadata) => Ok(Some(entry_of(Vec::new(), &metadata))),
        Err(cause)
            if matches!(
                cause.kind(),
                io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
            ) =>
        {
            Ok(None)
        }
        Err(cause) => Err(Error::io("look at", show(path), cause)),
    }
}

pub(crate) fn show(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

/// What the system's `metadata` says of `name`.
#[must_use]
pub fn entry_of(name: Vec<u8>, metadata: &fs::Metadata) -> Entry {
    let file_type = metadata.file_type();
    let kind = if file_type.is_file() {
        Kind::File
    } else if file_type.is_dir() {
        Kind::Directory
    } else if file_type.is_symlink() {
        Kind::Link
    } else {
        debug_assert!(
            file_type.is_fifo()
                || file_type.is_socket()
                || file_type.is_block_device()
                || file_type.is_char_device()
        );
        Kind::Special
    };
    Entry {
        name,
        kind,
        size: metadata.len(),
        mtime: Some(FileTime {
            secs: metadata.mtime(),
            nanos: u32::try_from(metadata.mtime_nsec()).unwrap_or(0),
        }),
        stored: None,
        mode: Some(metadata.mode() & 0o7777),
        version: None,
    }
}

pub(crate) fn timestamps(mtime: FileTime) -> Timestamps {
    let time = Timespec {
        tv_sec: mtime.secs,
        tv_nsec: mtime.nanos.into(),
    };
    Timestamps {
        last_access: time,
        last_modification: time,
    }
}

/// Makes a directory and those above it; says whether it is new. Blocks.
///
/// # Errors
/// [`ErrorKind::Conflict`] when something else has the name; the system's otherwise.
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

/// Makes a directory that will be written to, and those above it; says whether it is new. A link
/// that leads to a directory will do only if `follow`. Blocks.
///
/// # Errors
/// As [`make_directory`].
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

/// Lets the owner write into a directory that an earlier run may have sealed. When that is not
/// ours to do, the files in it say so.
fn open_directory(path: &Path) {
    let Ok(metadata) = fs::metadata(path) else {
        return;
    };
    let mode = metadata.mode() & 0o7777;
    if mode & 0o700 != 0o700 {
        let opened = Mode::from_raw_mode(mode | 0o700);
        let _ = rustix::fs::chmodat(CWD, path, opened, AtFlags::empty());
    }
}

/// Gives a directory its mode and mtime. Blocks.
///
/// # Errors
/// The system's.
pub fn seal_directory(path: &Path, entry: &Entry) -> Result<()> {
    let fail = |cause: rustix::io::Errno| {
        Error::io("set the attributes of", show(path), cause.into()).at(Locus::Destination)
    };
    if let Some(mode) = entry.mode {
        rustix::fs::chmodat(CWD, path, Mode::from_raw_mode(mode), AtFlags::empty())
            .map_err(fail)?;
    }
    if let Some(mtime) = entry.mtime {
        rustix::fs::utimensat(CWD, path, &timestamps(mtime), AtFlags::empty()).map_err(fail)?;
    }
    Ok(())
}

/// Makes a symbolic link under its final name, replacing a file or link. Blocks.
///
/// # Errors
/// The system's.
pub fn make_link(path: &Path, target: &[u8], spec: &FileSpec) -> Result<()> {
    let fail = |cause| Error::io("make link", show(path), cause).at(Locus::Destination);
    let draft = draft::partial_path(path, &spec.origin);
    match fs::remove_file(&draft) {
        Ok(()) => {}
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => {}
        Err(cause) => return Err(fail(cause)),
    }
    std::os::unix::fs::symlink(OsStr::from_bytes(target), &draft).map_err(fail)?;
    if let Some(mtime) = spec.mtime {
        rustix::fs::utimensat(CWD, &draft, &timestamps(mtime), AtFlags::SYMLINK_NOFOLLOW)
            .map_err(|cause| fail(cause.into()))?;
    }
    fs::rename(&draft, path).map_err(|cause| {
        let _ = fs::remove_file(&draft);
        fail(cause)
    })
}

/// Stores a small file under its final name. Blocks.
///
/// # Errors
/// The system's; [`ErrorKind::Corrupt`] when what was written reads back differently.
pub fn put(path: &Path, spec: &FileSpec, data: &[Bytes], rules: DraftRules) -> Result<()> {
    let draft = Draft::small(path, spec, rules)?;
    draft.write_pieces(data, 0)?;
    draft.publish(spec)
}

/// What it can do.
pub(crate) const CAPABILITIES: Capabilities = Capabilities {
    byte_names: true,
    lists: true,
    ranges: true,
    writes: true,
    removes: true,
    segments_in_any_order: true,
    resumes: true,
    open_ended: true,
    mtime_step_ns: Some(1),
    mtimes_listed: true,
    modes: true,
    links: true,
    directory_attributes: true,
    segment_size_min: SEGMENT_BYTES,
    piece_bytes_min: RECEIVED_SEGMENT_BYTES_MIN,
    requests_ahead_max: 16,
    segments_held: false,
    ..Capabilities::least("file")
};

impl Endpoint for Posix {
    fn capabilities(&self) -> Capabilities {
        CAPABILITIES
    }

    fn show(&self, path: &[u8]) -> String {
        show(&self.path(path))
    }

    fn stat<'a>(&'a self, path: &'a [u8], follow: bool) -> Boxed<'a, Result<Option<Entry>>> {
        let path = self.path(path);
        Box::pin(self.blocking(move || stat(&path, follow)))
    }

    fn list<'a>(&'a self, path: &'a [u8], follow: bool) -> Boxed<'a, Result<Box<dyn Listing>>> {
        let (path, actor) = (self.path(path), self.actor.clone());
        Box::pin(self.blocking(move || {
            let listing: Box<dyn Listing> = Box::new(PosixListing::acting(actor, path, follow)?);
            Ok(listing)
        }))
    }

    fn get<'a>(&'a self, path: &'a [u8], _entry: &'a Entry) -> Boxed<'a, Result<Whole>> {
        let path = self.path(path);
        Box::pin(self.blocking(move || SourceFile::open(path)?.read_whole()))
    }

    fn open<'a>(&'a self, path: &'a [u8], _entry: &'a Entry) -> Boxed<'a, Result<Arc<dyn Reader>>> {
        let (path, actor) = (self.path(path), self.actor.clone());
        Box::pin(self.blocking(move || {
            let reader: Arc<dyn Reader> = Arc::new(source::PosixReader::new(actor, path)?);
            Ok(reader)
        }))
    }

    fn read_link<'a>(&'a self, path: &'a [u8]) -> Boxed<'a, Result<Vec<u8>>> {
        let path = self.path(path);
        Box::pin(self.blocking(move || read_link(&path)))
    }

    fn put<'a>(
        &'a self,
        path: &'a [u8],
        spec: &'a FileSpec,
        data: Vec<Bytes>,
        _sum: Checksum,
    ) -> Boxed<'a, Result<()>> {
        let (path, spec, rules) = (self.path(path), spec.clone(), self.rules.of_received());
        Box::pin(self.blocking(move || put(&path, &spec, &data, rules)))
    }

    fn create<'a>(
        &'a self,
        path: &'a [u8],
        spec: &'a FileSpec,
    ) -> Boxed<'a, Result<Arc<dyn Writer>>> {
        let (path, spec, rules) = (self.path(path), spec.clone(), self.rules.of_received());
        let actor = self.actor.clone();
        Box::pin(self.blocking(move || {
            let segment_size = received_segment_bytes(spec.size);
            let (draft, kept) = Draft::resumable(&path, &spec, segment_size, rules)?;
            let writer = PosixWriter::new(actor, draft, kept, spec, segment_size);
            let writer: Arc<dyn Writer> = Arc::new(writer);
            Ok(writer)
        }))
    }

    fn create_open_ended<'a>(
        &'a self,
        path: &'a [u8],
        spec: &'a FileSpec,
    ) -> Boxed<'a, Result<Arc<dyn Writer>>> {
        let (path, spec, rules) = (self.path(path), spec.open_ended(), self.rules.of_received());
        let actor = self.actor.clone();
        Box::pin(self.blocking(move || {
            let (draft, kept) = Draft::open_ended(&path, &spec, SEGMENT_BYTES, rules)?;
            let writer = PosixWriter::new(actor, draft, kept, spec, SEGMENT_BYTES);
            let writer: Arc<dyn Writer> = Arc::new(writer);
            Ok(writer)
        }))
    }

    fn remove<'a>(&'a self, path: &'a [u8]) -> Boxed<'a, Result<()>> {
        let path = self.path(path);
        Box::pin(self.blocking(move || remove(&path)))
    }

    fn make_link<'a>(
        &'a self,
        path: &'a [u8],
        target: &'a [u8],
        spec: &'a FileSpec,
    ) -> Boxed<'a, Result<()>> {
        let (path, target, spec) = (self.path(path), target.to_vec(), spec.clone());
        Box::pin(self.blocking(move || make_link(&path, &target, &spec)))
    }

    fn make_parents(&self) -> Boxed<'_, Result<()>> {
        let parent = self.root.parent().map(Path::to_owned);
        Box::pin(self.blocking(move || match parent {
            Some(parent) if !parent.as_os_str().is_empty() => make_directory(&parent).map(|_| ()),
            Some(_) | None => Ok(()),
        }))
    }

    fn make_directory<'a>(&'a self, path: &'a [u8]) -> Boxed<'a, Result<bool>> {
        let follow = path.is_empty();
        let path = self.path(path);
        Box::pin(self.blocking(move || ensure_directory(&path, follow)))
    }

    fn seal_directory<'a>(
        &'a self,
        path: &'a [u8],
        entry: &'a Entry,
        _empty: bool,
    ) -> Boxed<'a, Result<()>> {
        let (path, entry) = (self.path(path), entry.clone());
        Box::pin(self.blocking(move || seal_directory(&path, &entry)))
    }
}

/// Removes a file or link; nothing there is no error. Blocks.
fn remove(path: &Path) -> Result<()> {
    match fs::remove_file(path) {
        Err(cause) if cause.kind() != io::ErrorKind::NotFound => {
            Err(Error::io("remove", show(path), cause).at(Locus::Destination))
        }
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Where a symbolic link points. Blocks.
///
/// # Errors
/// The system's.
pub fn read_link(path: &Path) -> Result<Vec<u8>> {
    let target = fs::read_link(path)
        .map_err(|cause| Error::io("read link", show(path), cause).at(Locus::Source))?;
    Ok(target.into_os_string().into_vec())
}
