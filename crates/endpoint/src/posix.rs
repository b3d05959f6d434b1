//! Local files.
//!
//! The engine's local fast path is made of the blocking halves, [`SourceFile`] and [`Draft`];
//! [`Posix`] wraps them for copies whose other end is remote.

mod attributes;
mod beneath;
mod block;
mod clock;
mod directory;
mod draft;
mod flush;
mod ground;
mod lease;
mod links;
mod listing;
mod look;
mod mapped;
mod name;
mod owner;
mod partial;
mod private;
mod real_path;
mod rules;
mod size_limit;
mod source;
mod special;
mod writer;

use std::{
    fs, io,
    os::unix::{
        ffi::OsStringExt,
        fs::{FileTypeExt, MetadataExt},
    },
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use bytes::Bytes;

pub use attributes::{
    as_last_read, is_refused, not_kept_of, seal_directory, seal_file, without_lent_rights,
};
pub use beneath::{Beneath, Follow, Place, lies_in_system, split};
pub use block::Block;
pub use clock::Clocks;
pub use directory::{ensure_directory, make_directory};
pub use draft::{Draft, segment_range};
pub use flush::{close, drop_cached, flush};
use ground::Ground;
pub use lease::{HeldLease, Lease};
pub use links::{make_link, read_link};
pub use listing::PosixListing;
pub use look::stat;
pub use mapped::{lies_in_memory, settle_mapped};
pub use private::{hides, keep_private, published_mode};
pub use real_path::real_path;
pub use rules::DraftRules;
pub use size_limit::outlive_size_limit;
pub use source::SourceFile;
pub(crate) use source::UNTOLD_BYTES_MAX;
pub(crate) use special::special_there;
use writer::PosixWriter;

use crate::{
    Actor, Capabilities, Checksum, Error, ErrorKind, Locus, Result,
    endpoint::{Boxed, Endpoint, Entry, FileSpec, FileTime, Kind, Listing, Reader, Whole, Writer},
    unkept::{Unkept, UnkeptCount},
};

/// Bytes read, hashed and written at a time: fits in a core's L2 cache.
pub const BLOCK_BYTES: usize = 64 << 10;

/// Bytes of a segment of a large local file, and so the loss of each lane in a crash.
pub const SEGMENT_BYTES: u64 = 16 << 20;

/// Fewest bytes of a segment from a remote source. Near the end lanes become idle one by one, for
/// longer with larger segments.
const RECEIVED_SEGMENT_BYTES_MIN: u64 = 1 << 20;

/// Segments of a file from a remote source, between those sizes.
const RECEIVED_SEGMENTS: u64 = 1024;

/// Returns the bytes of a segment of a file of `size` bytes from a remote source: the same in every
/// run.
fn received_segment_bytes(size: u64) -> u64 {
    (size / RECEIVED_SEGMENTS)
        .clamp(RECEIVED_SEGMENT_BYTES_MIN, SEGMENT_BYTES)
        .next_power_of_two()
}

/// Local file system below a root.
#[derive(Debug, Clone)]
pub struct Posix {
    root: PathBuf,
    rules: DraftRules,
    actor: Actor,
    clocks: Clocks,
    ground: Arc<Ground>,
    unkept: Arc<UnkeptCount>,
    /// Set once directories were listed with links followed: later reads may be of links.
    follows: Arc<AtomicBool>,
}

impl Posix {
    /// Opens the files below `root`, or the one file `root` is.
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
            clocks: Clocks::default(),
            ground: Arc::default(),
            unkept: Arc::default(),
            follows: Arc::default(),
        }
    }

    /// Returns the endpoint with the rights of another actor.
    #[must_use]
    pub fn acting(self, actor: Actor) -> Self {
        Self { actor, ..self }
    }

    /// Returns whether `path` may be a link that is followed: the root may.
    fn follows(&self, path: &[u8]) -> bool {
        path.is_empty() || self.follows.load(Relaxed)
    }

    /// Runs a blocking call on the runtime's blocking threads, with the actor's rights.
    fn blocking<T: Send + 'static>(
        &self,
        call: impl FnOnce() -> Result<T> + Send + 'static,
    ) -> impl Future<Output = Result<T>> + Send + 'static {
        let actor = self.actor.clone();
        async move { actor.blocking(call).await }
    }

    /// Counts the attributes that a call reports as not kept.
    async fn noting(&self, done: impl Future<Output = Result<Unkept>> + Send) -> Result<()> {
        done.await.map(|unkept| self.note(unkept))
    }

    /// Returns the real path of a relative one.
    #[must_use]
    pub fn path(&self, path: &[u8]) -> PathBuf {
        ground::below(&self.root, path)
    }

    /// Returns the place of `path` for writing: no link below the root is followed on the way to
    /// it. Blocks.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Conflict`] if a link is on the way; the system's errors.
    pub fn place(&self, path: &[u8]) -> Result<Place> {
        self.ground.place(&self.root, path, false)
    }

    /// Returns the place of `path` for reading: no link below the root is followed on the way to
    /// it, unless links are followed. Blocks.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Changed`] if a link has appeared on the way; the system's errors.
    pub fn source(&self, path: &[u8]) -> Result<Place> {
        match self.follows(path) {
            true => Ok(Place::plain(self.path(path))),
            false => self.ground.source(&self.root, path),
        }
    }

    /// Returns the directory at `path` itself, to be changed: no link is followed to it. Blocks.
    ///
    /// # Errors
    /// See [`Posix::place`].
    pub fn directory(&self, path: &[u8]) -> Result<Place> {
        self.ground.directory(&self.root, path)
    }

    /// Runs a blocking call on the place of `path`, from [`Posix::place`].
    fn placed<T: Send + 'static>(
        &self,
        path: &[u8],
        call: impl FnOnce(&Place) -> Result<T> + Send + 'static,
    ) -> impl Future<Output = Result<T>> + Send + 'static {
        let (this, path) = (self.clone(), path.to_vec());
        self.blocking(move || {
            let place = this.place(&path)?;
            call(&place).map_err(|error| error.about(show(place.shown())))
        })
    }

    /// Returns the step in which times are kept at `path`, in nanoseconds; `None` if none can be
    /// set. It is learnt once for each file system, by a file that is made and removed there.
    /// Blocks.
    ///
    /// # Errors
    /// [`crate::ErrorKind::PermissionDenied`] if the actor's rights can't be assumed.
    pub fn time_step_ns(&self, path: &[u8]) -> Result<Option<u32>> {
        let path = self.path(path);
        self.actor.run(|| Ok(self.clocks.step_ns(&path)))
    }

    /// Counts the attributes that an entry arrived without.
    pub fn note(&self, unkept: Unkept) {
        self.unkept.add(unkept);
    }

    /// Returns the rules for unfinished files.
    #[must_use]
    pub fn rules(&self) -> DraftRules {
        self.rules
    }
}

pub(crate) fn show(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

fn mtime_of(metadata: &fs::Metadata) -> Option<FileTime> {
    Some(FileTime {
        secs: metadata.mtime(),
        nanos: u32::try_from(metadata.mtime_nsec()).unwrap_or(0),
    })
}

/// Returns the entry of `name` from the system's `metadata`.
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
        mtime: mtime_of(metadata),
        stored: None,
        mode: Some(metadata.mode() & 0o7777),
        version: None,
    }
}

/// Stores a small file under its final name. Returns the attributes that the file system refuses to
/// keep. Blocks.
///
/// # Errors
/// The system's errors; [`crate::ErrorKind::Corrupt`] if the file reads back differently.
pub fn put(place: &Place, spec: &FileSpec, data: &[Bytes], rules: DraftRules) -> Result<Unkept> {
    let draft = Draft::small(place, spec, rules)?;
    draft.write_pieces(data, 0)?;
    draft.publish(spec)
}

/// Capabilities of a file system.
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

    fn unkept(&self) -> Unkept {
        self.unkept.get()
    }

    fn show(&self, path: &[u8]) -> String {
        show(&self.path(path))
    }

    fn stat<'a>(&'a self, path: &'a [u8], follow: bool) -> Boxed<'a, Result<Option<Entry>>> {
        let path = self.path(path);
        Box::pin(self.blocking(move || stat(&path, follow)))
    }

    fn list<'a>(&'a self, path: &'a [u8], follow: bool) -> Boxed<'a, Result<Box<dyn Listing>>> {
        self.follows.fetch_or(follow, Relaxed);
        let (this, path) = (self.clone(), path.to_vec());
        Box::pin(self.blocking(move || {
            let place = match this.follows.load(Relaxed) {
                true => Place::plain(this.path(&path)),
                false => this.ground.source_directory(&this.root, &path)?,
            };
            let listing = PosixListing::acting(this.actor.clone(), &place, follow)?;
            let listing: Box<dyn Listing> = Box::new(listing);
            Ok(listing)
        }))
    }

    fn get<'a>(&'a self, path: &'a [u8], _entry: &'a Entry) -> Boxed<'a, Result<Whole>> {
        let (this, path) = (self.clone(), path.to_vec());
        Box::pin(self.blocking(move || {
            let place = this.source(&path)?;
            SourceFile::open_at(&place, this.follows(&path))?.read_whole()
        }))
    }

    fn open<'a>(&'a self, path: &'a [u8], _entry: &'a Entry) -> Boxed<'a, Result<Arc<dyn Reader>>> {
        let (this, path) = (self.clone(), path.to_vec());
        Box::pin(self.blocking(move || {
            let place = this.source(&path)?;
            let actor = this.actor.clone();
            let reader = source::PosixReader::new(actor, &place, this.follows(&path))?;
            let reader: Arc<dyn Reader> = Arc::new(reader);
            Ok(reader)
        }))
    }

    fn read_link<'a>(&'a self, path: &'a [u8]) -> Boxed<'a, Result<Vec<u8>>> {
        let (this, path) = (self.clone(), path.to_vec());
        Box::pin(self.blocking(move || {
            let place = this.source(&path)?;
            read_link(&place.path).map_err(|error| error.about(show(place.shown())))
        }))
    }

    fn put<'a>(
        &'a self,
        path: &'a [u8],
        spec: &'a FileSpec,
        data: Vec<Bytes>,
        _sum: Checksum,
    ) -> Boxed<'a, Result<()>> {
        let (spec, rules) = (spec.clone(), self.rules.of_received());
        let put = self.placed(path, move |place| put(place, &spec, &data, rules));
        Box::pin(self.noting(put))
    }

    fn create<'a>(
        &'a self,
        path: &'a [u8],
        spec: &'a FileSpec,
    ) -> Boxed<'a, Result<Arc<dyn Writer>>> {
        let (spec, rules) = (spec.clone(), self.rules.of_received());
        let (actor, unkept) = (self.actor.clone(), Arc::clone(&self.unkept));
        Box::pin(self.placed(path, move |place| {
            let segment_size = received_segment_bytes(spec.size);
            let (draft, kept) = Draft::resumable(place, &spec, segment_size, rules)?;
            let writer = PosixWriter::new(actor, draft, kept, spec, segment_size, unkept);
            let writer: Arc<dyn Writer> = Arc::new(writer);
            Ok(writer)
        }))
    }

    fn create_open_ended<'a>(
        &'a self,
        path: &'a [u8],
        spec: &'a FileSpec,
    ) -> Boxed<'a, Result<Arc<dyn Writer>>> {
        let (spec, rules) = (spec.open_ended(), self.rules.of_received());
        let (actor, unkept) = (self.actor.clone(), Arc::clone(&self.unkept));
        Box::pin(self.placed(path, move |place| {
            let (draft, kept) = Draft::open_ended(place, &spec, SEGMENT_BYTES, rules)?;
            let writer = PosixWriter::new(actor, draft, kept, spec, SEGMENT_BYTES, unkept);
            let writer: Arc<dyn Writer> = Arc::new(writer);
            Ok(writer)
        }))
    }

    fn remove<'a>(&'a self, path: &'a [u8]) -> Boxed<'a, Result<()>> {
        Box::pin(self.placed(path, |place| remove(&place.path)))
    }

    fn system(&self) -> Option<String> {
        Some("this machine".to_owned())
    }

    fn real_path<'a>(&'a self, path: &'a [u8]) -> Boxed<'a, Result<Vec<u8>>> {
        let path = self.path(path);
        Box::pin(self.blocking(move || Ok(real_path(&path)?.into_os_string().into_vec())))
    }

    fn keep_private<'a>(&'a self, path: &'a [u8], mode: u32) -> Boxed<'a, ()> {
        self.hide(path, mode)
    }

    fn learn_time_step_ns<'a>(&'a self, path: &'a [u8]) -> Boxed<'a, Result<Option<u32>>> {
        let (path, clocks) = (self.path(path), self.clocks.clone());
        Box::pin(self.blocking(move || Ok(clocks.step_ns(&path))))
    }

    fn make_link<'a>(
        &'a self,
        path: &'a [u8],
        target: &'a [u8],
        spec: &'a FileSpec,
    ) -> Boxed<'a, Result<()>> {
        let (target, spec) = (target.to_vec(), spec.clone());
        let made = self.placed(path, move |place| make_link(&place.path, &target, &spec));
        Box::pin(self.noting(made))
    }

    fn make_parents(&self) -> Boxed<'_, Result<()>> {
        let parent = self.root.parent().map(Path::to_owned);
        let root = self.root.clone();
        Box::pin(self.blocking(move || {
            match parent {
                _ if lies_in_system(&root) => {
                    Err(Error::new(ErrorKind::Invalid, "write to", show(&root))
                        .cause("its files are the system's own, as those of /proc")
                        .hint("name a path where files lie")
                        .at(Locus::Destination))
                }
                Some(parent) if !parent.as_os_str().is_empty() => {
                    make_directory(&parent).map(|_| ())
                }
                Some(_) | None => Ok(()),
            }
        }))
    }

    fn make_directory<'a>(&'a self, path: &'a [u8]) -> Boxed<'a, Result<bool>> {
        let (this, path) = (self.clone(), path.to_vec());
        Box::pin(self.blocking(move || {
            let place = this.ground.place(&this.root, &path, true)?;
            let made = ensure_directory(&place.path, path.is_empty());
            made.map_err(|error| error.about(show(place.shown())))
        }))
    }

    fn seal_directory<'a>(
        &'a self,
        path: &'a [u8],
        entry: &'a Entry,
        _empty: bool,
    ) -> Boxed<'a, Result<()>> {
        let (this, path, entry) = (self.clone(), path.to_vec(), entry.clone());
        let sealed = self.blocking(move || {
            let place = this.directory(&path)?;
            let sealed = seal_directory(&place.path, &entry);
            sealed.map_err(|error| error.about(show(place.shown())))
        });
        Box::pin(self.noting(sealed))
    }
}

/// Removes a file or link; a missing one is no error. Blocks.
fn remove(path: &Path) -> Result<()> {
    match fs::remove_file(path) {
        Err(cause) if cause.kind() != io::ErrorKind::NotFound => {
            Err(Error::io("remove", show(path), cause).at(Locus::Destination))
        }
        Ok(()) | Err(_) => Ok(()),
    }
}
