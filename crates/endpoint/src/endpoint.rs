//! Common interface of all storage: list, read ranges, write whole files, continue unfinished ones.
//!
//! Abilities of an endpoint are data ([`Capabilities`]); copy branches on them and never on the
//! protocol. Paths are bytes, relative to the endpoint's root, `/` between components; the empty
//! path is the root itself.

mod given;

use std::{future::Future, ops::Range, pin::Pin, sync::Arc, time::Duration};

use bytes::Bytes;
use futures_util::Stream;

pub(crate) use crate::error::no_links;
pub(crate) use crate::unfinished::{
    LEDGER_SUFFIX, PARTIAL_SUFFIX, new_word, partial_name, same_partial_name,
};
use crate::{
    Capabilities, Checksum, Error, ErrorKind, Locus, Result, StoredSum,
    limits::Limits,
    pass::{Errand, Pass},
    unkept::Unkept,
};
pub(crate) use crate::{error::unsupported, relative::beside};
pub use crate::{
    file_spec::FileSpec,
    file_time::FileTime,
    relative::{base_name, join},
};
pub use given::{LentSegment, Parcel};

/// A future that a lane can own. A function that returns one is compiled in its own crate, an
/// `async fn` again in every crate that awaits it.
pub type Boxed<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Bytes of one range, in order.
pub type ByteStream = Pin<Box<dyn Stream<Item = Result<Bytes>> + Send>>;

/// Kind of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// File of bytes.
    File,
    /// Directory, or prefix that has keys below it.
    Directory,
    /// Symbolic link.
    Link,
    /// Socket, pipe or device: nothing to copy.
    Special,
}

/// Facts of an endpoint about one path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Last component; empty for the root.
    pub name: Vec<u8>,
    /// Kind of the entry.
    pub kind: Kind,
    /// Size of a file in bytes.
    pub size: u64,
    /// Last change of its content, if a listing reports it.
    pub mtime: Option<FileTime>,
    /// Time of acceptance by the store, if listed instead of the file's: for people, not comparing.
    pub stored: Option<FileTime>,
    /// Permission bits (`07777`), if known.
    pub mode: Option<u32>,
    /// Store's own name of this version (an ETag).
    pub version: Option<Box<str>>,
}

impl Entry {
    /// Returns an entry of which only the name and the kind are known.
    #[must_use]
    pub fn bare(name: Vec<u8>, kind: Kind) -> Self {
        Self {
            name,
            kind,
            size: 0,
            mtime: None,
            stored: None,
            mode: None,
            version: None,
        }
    }
}

/// Small file, read whole.
#[derive(Debug)]
pub struct Whole {
    /// Entry as it was when read.
    pub entry: Entry,
    /// Bytes, in order.
    pub data: Vec<Bytes>,
    /// Their checksum, compared with the store's own if it has one.
    pub checksum: Checksum,
}

/// Condition on a path for a write to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Condition {
    /// Path without an entry.
    Absent,
    /// Path whose entry the store still calls by this [`Entry::version`].
    Version(Box<str>),
}

/// Directory being listed.
pub trait Listing: Send {
    /// Returns the next entries, unordered and bounded in number; empty at the end. The call may be
    /// repeated after a temporary error, and fails again if the listing can't go on.
    fn next_page(&mut self) -> Boxed<'_, Result<Vec<Entry>>>;

    /// Returns the position behind the last page, for [`Endpoint::list_on`]; `None` if it has none.
    fn mark(&self) -> Option<Vec<u8>> {
        None
    }

    /// Returns whether it holds its requests to the caps itself: a page takes several or none.
    fn counts_itself(&self) -> bool {
        false
    }
}

/// File open for range reads.
pub trait Reader: Send + Sync {
    /// Returns the entry as it was when opened.
    fn entry(&self) -> &Entry;
    /// Returns the store's checksum of the whole file.
    fn checksum(&self) -> Option<Checksum>;
    /// Returns the store's checksum, of either kind, for [`Compared`](crate::Compared).
    fn stored_sum(&self) -> Option<StoredSum> {
        self.checksum().map(StoredSum::Crc64)
    }
    /// Returns whether ranges read apart are sure to be of one version; else one whole stream is.
    fn is_of_one_version(&self) -> bool {
        self.entry().version.is_some() || self.entry().mtime.is_some()
    }
    /// Returns whether a later run can tell that the file is still the same.
    fn can_be_continued(&self) -> bool {
        self.is_of_one_version()
    }
    /// Returns whether all bytes were read and have [`Reader::stored_sum`].
    fn is_compared(&self) -> bool {
        false
    }
    /// Streams `range`, which may be empty. The stream ends with an error if fewer bytes are there.
    fn read(&self, range: Range<u64>) -> Boxed<'_, Result<ByteStream>>;
    /// Fails with [`crate::ErrorKind::Changed`] unless the file is still the opened one.
    fn confirm(&self) -> Boxed<'_, Result<()>>;
}

/// Large file being written in segments, visible under its final name only after `finish`.
pub trait Writer: Send + Sync {
    /// Returns the bytes of each segment but the last.
    fn segment_size(&self) -> u64;
    /// Returns the segments an earlier run stored, checked again if that is cheaper than resending.
    fn kept(&self) -> Vec<(u64, Checksum)>;
    /// Stores a segment, or a run of them. Returns the checksum of the range as the store holds it.
    fn write(&self, index: u64, range: Range<u64>, body: ByteStream)
    -> Boxed<'_, Result<Checksum>>;
    /// Returns the most segments of a [`Writer::write`], by the first's index and the run's range.
    fn run_max(&self) -> u64 {
        1
    }
    /// Gives the file its attributes and its final name; the destination must hold `whole`.
    fn finish(&self, whole: Checksum) -> Boxed<'_, Result<()>>;
    /// Forgets the unfinished file: its source is gone.
    fn discard(&self) -> Boxed<'_, ()>;

    /// Waits until all segments are on their way, for [`Writer::finish_ahead`]. Returns the whole's
    /// checksum; `None` if nothing is gained.
    fn all_sent(&self) -> Boxed<'_, Option<Checksum>> {
        Box::pin(async { None })
    }

    /// Finishes as [`Writer::finish`] does, but waits for segments on their way. If it fails, it
    /// may be called later.
    fn finish_ahead(&self, whole: Checksum) -> Boxed<'_, Result<()>> {
        self.finish(whole)
    }

    /// Streams what was written of `range`, if that is here; `None` if it is as far as the source.
    fn read_back(&self, _range: Range<u64>) -> Option<ByteStream> {
        None
    }

    /// Returns the start of segment `index`. Segments of a file of unknown length may grow, so that
    /// few reach far. Only the last one is smaller than [`Writer::segment_size`].
    fn segment_start(&self, index: u64) -> u64 {
        index.saturating_mul(self.segment_size())
    }

    /// Finishes a file of [`Endpoint::create_open_ended`] at `size` bytes: all segments below are
    /// there, and longer content is cut off.
    fn finish_at(&self, _size: u64, _whole: Checksum) -> Boxed<'_, Result<()>> {
        Box::pin(async {
            Err(
                Error::new(ErrorKind::Unsupported, "finish", "a file of unknown length")
                    .cause("its length was known when it was begun"),
            )
        })
    }

    /// Makes the segments written so far survive a crash of the machine that holds them. Returns
    /// whether they do now. A store that acknowledges only durable segments has nothing to do.
    fn settle(&self) -> Boxed<'_, Result<bool>> {
        Box::pin(async { Ok(false) })
    }

    /// Returns the token with which other processes with the same credentials write segments of
    /// this file, by [`Endpoint::write_lent`]. Never a secret. `None` if none can.
    fn lend(&self) -> Option<String> {
        None
    }

    /// Accepts a segment that another process wrote, with its checksum and its receipt.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] for a malformed receipt, [`ErrorKind::Unsupported`] if nothing is
    /// lent; the operating system's.
    fn take(&self, _index: u64, _sum: Checksum, _receipt: &str) -> Result<()> {
        Err(Error::new(ErrorKind::Unsupported, "take", "a segment")
            .cause("it was not lent to anybody"))
    }

    /// Returns the note with which another machine continues the unfinished file, for
    /// [`Endpoint::adopt`]. Never a secret. `None` if nothing is kept on this machine.
    fn note(&self) -> Option<String> {
        None
    }
}

/// Protocol, root and the credentials to reach it.
pub trait Endpoint: Send + Sync {
    /// Returns the capabilities.
    fn capabilities(&self) -> Capabilities;
    /// Returns the address of `path` for people. Never a secret.
    fn show(&self, path: &[u8]) -> String;
    /// Returns the entry at `path`, behind a final symbolic link if asked; `None` if there is none.
    fn stat<'a>(&'a self, path: &'a [u8], follow: bool) -> Boxed<'a, Result<Option<Entry>>>;
    /// Starts to list the directory at `path`.
    fn list<'a>(&'a self, path: &'a [u8], follow: bool) -> Boxed<'a, Result<Box<dyn Listing>>>;
    /// Reads a whole, unchanged file of at most [`Capabilities::segment_size_min`] bytes.
    fn get<'a>(&'a self, path: &'a [u8], entry: &'a Entry) -> Boxed<'a, Result<Whole>>;
    /// Opens a file for range reads.
    fn open<'a>(&'a self, path: &'a [u8], entry: &'a Entry) -> Boxed<'a, Result<Arc<dyn Reader>>>;
    /// Returns the target of the symbolic link at `path`.
    fn read_link<'a>(&'a self, path: &'a [u8]) -> Boxed<'a, Result<Vec<u8>>>;
    /// Returns the error for a write to an endpoint that is only read from.
    fn read_only(&self, path: &[u8]) -> Error {
        unsupported("write", self.show(path)).at(Locus::Destination)
    }
    /// Fails if nothing can be written at all. Callers ask first: one error, not one per file.
    ///
    /// # Errors
    /// Error of [`Endpoint::read_only`].
    fn check_writes(&self) -> Result<()> {
        if self.capabilities().writes {
            return Ok(());
        }
        Err(self.read_only(b""))
    }
    /// Stores a small file under its final name, atomically, and checks that it is held.
    fn put<'a>(
        &'a self,
        path: &'a [u8],
        _spec: &'a FileSpec,
        _data: Vec<Bytes>,
        _sum: Checksum,
    ) -> Boxed<'a, Result<()>> {
        Box::pin(async move { Err(self.read_only(path)) })
    }
    /// Returns whether the store refuses bytes that have not the checksum they come with: it is sent
    /// some. Only then a [`Reader::checksum`] is of what lies there.
    fn refuses_damage(&self) -> Boxed<'_, bool> {
        Box::pin(async { false })
    }
    /// Starts or continues a large file.
    fn create<'a>(
        &'a self,
        path: &'a [u8],
        _spec: &'a FileSpec,
    ) -> Boxed<'a, Result<Arc<dyn Writer>>> {
        Box::pin(async move { Err(self.read_only(path)) })
    }
    /// Starts a large file of unknown length, or continues it; ignores [`FileSpec::size`]. It ends
    /// with [`Writer::finish_at`].
    fn create_open_ended<'a>(
        &'a self,
        path: &'a [u8],
        _spec: &'a FileSpec,
    ) -> Boxed<'a, Result<Arc<dyn Writer>>> {
        Box::pin(async move {
            Err(unsupported(
                "write without knowing its length",
                self.show(path),
            ))
        })
    }
    /// Adopts the note of another machine's writer of the unfinished file at `path`, so that the
    /// file can be continued here. A note on this machine takes precedence.
    fn adopt<'a>(
        &'a self,
        _path: &'a [u8],
        _spec: &'a FileSpec,
        _note: &'a str,
    ) -> Boxed<'a, Result<()>> {
        Box::pin(async { Ok(()) })
    }
    /// Writes a segment of the file at `path` that a writer elsewhere lent. Returns its checksum
    /// and a receipt, which that writer is to [`Writer::take`].
    fn write_lent<'a>(
        &'a self,
        path: &'a [u8],
        _spec: &'a FileSpec,
        _segment: &'a LentSegment,
        _body: ByteStream,
    ) -> Boxed<'a, Result<(Checksum, String)>> {
        Box::pin(async move { Err(unsupported("write beside another", self.show(path))) })
    }
    /// Makes a symbolic link, replacing an existing one.
    fn make_link<'a>(
        &'a self,
        path: &'a [u8],
        _target: &'a [u8],
        _spec: &'a FileSpec,
    ) -> Boxed<'a, Result<()>> {
        Box::pin(async move { Err(self.read_only(path)) })
    }
    /// Makes the directories above the root, if the store has any.
    fn make_parents(&self) -> Boxed<'_, Result<()>> {
        Box::pin(async move { Err(self.read_only(b"")) })
    }
    /// Makes a directory and those above it. Returns whether it is new.
    fn make_directory<'a>(&'a self, path: &'a [u8]) -> Boxed<'a, Result<bool>> {
        Box::pin(async move { Err(self.read_only(path)) })
    }
    /// Gives a directory its final attributes. Stores of prefixes leave a marker for `empty` ones.
    fn seal_directory<'a>(
        &'a self,
        path: &'a [u8],
        _entry: &'a Entry,
        _empty: bool,
    ) -> Boxed<'a, Result<()>> {
        Box::pin(async move { Err(self.read_only(path)) })
    }

    /// Keeps a new directory to its user while it is being filled, if `mode` permits others less
    /// than they may now. Without modes, nothing is kept private either.
    fn keep_private<'a>(&'a self, _path: &'a [u8], _mode: u32) -> Boxed<'a, ()> {
        Box::pin(async {})
    }

    /// Seals several directories, none of which holds another; one result each, in their order.
    /// Cheaper than as many [`Endpoint::seal_directory`] if requests travel far.
    fn seal_directories<'a>(
        &'a self,
        wanted: &'a [(Vec<u8>, Entry, bool)],
    ) -> Boxed<'a, Vec<Result<()>>> {
        Box::pin(async move {
            let mut sealed = Vec::with_capacity(wanted.len());
            for (path, entry, empty) in wanted {
                sealed.push(self.seal_directory(path, entry, *empty).await);
            }
            sealed
        })
    }

    /// Starts to list everything below the directory at `path`: names are paths relative to it, and
    /// directories precede their content. Returns `None` if each directory has to be listed alone.
    fn list_tree<'a>(&'a self, _path: &'a [u8]) -> Boxed<'a, Result<Option<Box<dyn Listing>>>> {
        Box::pin(async { Ok(None) })
    }

    /// Continues a listing of `path`, of the directory or the whole tree, from a mark it left, as
    /// if never interrupted. Entries that changed meanwhile may be reported in either state.
    fn list_on<'a>(
        &'a self,
        path: &'a [u8],
        _mark: &'a [u8],
    ) -> Boxed<'a, Result<Box<dyn Listing>>> {
        Box::pin(async move { Err(unsupported("go on listing", self.show(path))) })
    }

    /// Reads several small files; one result each, in their order. Cheaper than as many
    /// [`Endpoint::get`] if [`Capabilities::bundle_bytes_max`] is not 0.
    fn get_all<'a>(&'a self, wanted: &'a [(Vec<u8>, Entry)]) -> Boxed<'a, Vec<Result<Whole>>> {
        Box::pin(async move {
            let mut found = Vec::with_capacity(wanted.len());
            for (path, entry) in wanted {
                found.push(self.get(path, entry).await);
            }
            found
        })
    }

    /// Stores several small files; one result each, in their order. Cheaper than as many
    /// [`Endpoint::put`] if [`Capabilities::bundle_bytes_max`] is not 0.
    fn put_all(&self, parcels: Vec<Parcel>) -> Boxed<'_, Vec<Result<()>>> {
        Box::pin(async move {
            let mut stored = Vec::with_capacity(parcels.len());
            for parcel in parcels {
                let sent = self.put(&parcel.path, &parcel.spec, parcel.data, parcel.sum);
                stored.push(sent.await);
            }
            stored
        })
    }

    /// Stores a small file like [`Endpoint::put`], but only while `condition` holds, which the
    /// server checks atomically; fails with [`ErrorKind::Conflict`] if it does not.
    fn put_if<'a>(
        &'a self,
        path: &'a [u8],
        _spec: &'a FileSpec,
        _data: Vec<Bytes>,
        _sum: Checksum,
        _condition: &'a Condition,
    ) -> Boxed<'a, Result<()>> {
        Box::pin(async move { Err(unsupported("write on a condition to", self.show(path))) })
    }

    /// Removes the file or link at `path`; a missing one is no error.
    fn remove<'a>(&'a self, path: &'a [u8]) -> Boxed<'a, Result<()>> {
        Box::pin(async move { Err(unsupported("remove", self.show(path))) })
    }

    /// Returns a presigned URL: its holder may do one thing with the file at `path`, for as long as
    /// `lifetime`, at the store itself and without our credentials.
    fn pass<'a>(
        &'a self,
        path: &'a [u8],
        _errand: &'a Errand,
        _lifetime: Duration,
    ) -> Boxed<'a, Result<Pass>> {
        Box::pin(async move { Err(unsupported("hand out", self.show(path))) })
    }

    /// Returns an error about what else has the root's name, since that was found a directory.
    fn namesake(&self) -> Option<Error> {
        None
    }

    /// Counts what files arrived without so far, because it is refused here.
    fn unkept(&self) -> Unkept {
        Unkept::default()
    }

    /// Returns the round-trip time to the endpoint, once measured; `None` if it is not remote.
    fn round_trip(&self) -> Option<Duration> {
        None
    }

    /// Returns the caps on its requests and bytes, if its profile has some.
    fn limits(&self) -> Option<&Limits> {
        None
    }

    /// Names the server if it copies among its own files: an endpoint can [`Endpoint::copy_within`]
    /// a file that another with the same realm has [`Endpoint::locate`]d.
    fn realm(&self) -> Option<String> {
        None
    }

    /// Returns the location of `path` within the realm.
    fn locate(&self, path: &[u8]) -> Vec<u8> {
        path.to_vec()
    }

    /// Names the system with its files; equal ones reach each other's. `None` if it is unknown.
    fn system(&self) -> Option<String> {
        self.realm()
    }

    /// Resolves `path` in the system through links, as far as reported. Its end need not exist.
    fn real_path<'a>(&'a self, path: &'a [u8]) -> Boxed<'a, Result<Vec<u8>>> {
        Box::pin(async move { Ok(self.locate(path)) })
    }

    /// Returns the step of times kept at `path`, in nanoseconds; `None` if none can be set. A file
    /// system that decides it is probed once, by a file that is made and removed there.
    fn learn_time_step_ns<'a>(&'a self, _path: &'a [u8]) -> Boxed<'a, Result<Option<u32>>> {
        Box::pin(async { Ok(self.capabilities().mtime_step_ns) })
    }

    /// Removes the remainder of an upload from `origin` to `path` that was killed after its rename.
    fn forget_unfinished<'a>(&'a self, _path: &'a [u8], _origin: &'a str) -> Boxed<'a, ()> {
        Box::pin(async {})
    }

    /// Makes the server copy its file `from` to `path`, atomically.
    fn copy_within<'a>(
        &'a self,
        _from: &'a [u8],
        path: &'a [u8],
        _spec: &'a FileSpec,
    ) -> Boxed<'a, Result<()>> {
        Box::pin(async move { Err(unsupported("copy on the server to", self.show(path))) })
    }
}
