//! Common interface of all storage: list, read ranges, write whole files, continue unfinished ones.
//!
//! Capabilities of an endpoint are data ([`Capabilities`]); copy branches on them and never on the
//! protocol. Paths are bytes, relative to the endpoint's root, `/` between components; the empty
//! path is the root itself.

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

/// Future that a lane can own. Boxing compiles it once, where it is made; an `async fn` is compiled
/// again in every crate that awaits it.
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

/// Description of one path by an endpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Last component; empty for the root.
    pub name: Vec<u8>,
    /// Kind of the entry.
    pub kind: Kind,
    /// Size of a file in bytes.
    pub size: u64,
    /// Time at which its content last changed, if listings report it.
    pub mtime: Option<FileTime>,
    /// Time at which the store received it, if a listing reports that rather than the file's own
    /// time: for people to read, never to compare files by.
    pub stored: Option<FileTime>,
    /// Permission bits (`07777`), if known.
    pub mode: Option<u32>,
    /// Store's own name of this version (an ETag).
    pub version: Option<Box<str>>,
}

impl Entry {
    /// Creates an entry with only a name and a kind.
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
    /// Entry of the file when it was read.
    pub entry: Entry,
    /// Bytes, in order.
    pub data: Vec<Bytes>,
    /// Checksum of the bytes, compared with the store's own if it has one.
    pub checksum: Checksum,
}

/// Small file being sent, whole in memory.
#[derive(Debug)]
pub struct Parcel {
    /// Destination path.
    pub path: Vec<u8>,
    /// Attributes to keep.
    pub spec: FileSpec,
    /// Bytes, in order.
    pub data: Vec<Bytes>,
    /// Checksum of the bytes.
    pub sum: Checksum,
}

/// Segment of a file that a writer in another process began, which [`Writer::lend`] lets others
/// write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LentSegment {
    /// Token from the writer. Never a secret.
    pub token: String,
    /// Index of the segment.
    pub index: u64,
    /// Range of its bytes.
    pub range: Range<u64>,
}

/// Condition on a path for a write to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Condition {
    /// Nothing is there.
    Absent,
    /// Store still reports this [`Entry::version`].
    Version(Box<str>),
}

/// Directory being listed.
pub trait Listing: Send {
    /// Returns the next entries in no particular order; empty at the end. The endpoint bounds their
    /// number. After a temporary error the call may be repeated, and fails again if it can't
    /// continue.
    fn next_page(&mut self) -> Boxed<'_, Result<Vec<Entry>>>;

    /// Returns the position after the last page, for [`Endpoint::list_on`]; `None` if a listing can
    /// only start anew.
    fn mark(&self) -> Option<Vec<u8>> {
        None
    }

    /// Returns whether the listing applies the profile's caps to its requests itself, because one
    /// page takes several of them or none.
    fn counts_itself(&self) -> bool {
        false
    }
}

/// File open for range reads.
pub trait Reader: Send + Sync {
    /// Returns its entry when it was opened.
    fn entry(&self) -> &Entry;
    /// Returns the store's checksum of the whole file.
    fn checksum(&self) -> Option<Checksum>;
    /// Returns that checksum, or one of another kind that the store keeps: for
    /// [`Compared`](crate::Compared).
    fn stored_sum(&self) -> Option<StoredSum> {
        self.checksum().map(StoredSum::Crc64)
    }
    /// Streams `range`; an empty range yields nothing. It ends with an error if fewer bytes are
    /// there.
    fn read(&self, range: Range<u64>) -> Boxed<'_, Result<ByteStream>>;
    /// Fails with [`crate::ErrorKind::Changed`] unless the file is still the one that was opened.
    fn confirm(&self) -> Boxed<'_, Result<()>>;
}

/// Large file being written in segments, visible under its final name only after `finish`.
pub trait Writer: Send + Sync {
    /// Returns the bytes of each segment but the last.
    fn segment_size(&self) -> u64;
    /// Returns the segments that an earlier run stored, checked again if that is cheaper than
    /// sending them.
    fn kept(&self) -> Vec<(u64, Checksum)>;
    /// Stores a segment, or a run of them; returns the checksum of the range that the destination
    /// then holds.
    fn write(&self, index: u64, range: Range<u64>, body: ByteStream)
    -> Boxed<'_, Result<Checksum>>;
    /// Returns the number of consecutive segments that one [`Writer::write`] may bring, by the
    /// first one's index and the range of all.
    fn run_max(&self) -> u64 {
        1
    }
    /// Gives the file its attributes and its final name; `whole` is the checksum that the
    /// destination must hold.
    fn finish(&self, whole: Checksum) -> Boxed<'_, Result<()>>;
    /// Discards the unfinished file, since its source is gone.
    fn discard(&self) -> Boxed<'_, ()>;

    /// Waits until all segments are in flight, for [`Writer::finish_ahead`]. Returns the whole's
    /// checksum; `None` if that gains nothing.
    fn all_sent(&self) -> Boxed<'_, Option<Checksum>> {
        Box::pin(async { None })
    }

    /// Finishes like [`Writer::finish`], but waits for segments in flight. After a failure it may
    /// be finished later.
    fn finish_ahead(&self, whole: Checksum) -> Boxed<'_, Result<()>> {
        self.finish(whole)
    }

    /// Returns the start of segment `index`. Files of unknown length may be cut into growing
    /// segments, so that few of them reach far. No segment is smaller than [`Writer::segment_size`]
    /// but the last.
    fn segment_start(&self, index: u64) -> u64 {
        index.saturating_mul(self.segment_size())
    }

    /// Finishes a file of [`Endpoint::create_open_ended`] at `size` bytes: all segments below are
    /// there, bytes beyond are cut off.
    fn finish_at(&self, _size: u64, _whole: Checksum) -> Boxed<'_, Result<()>> {
        Box::pin(async {
            Err(
                Error::new(ErrorKind::Unsupported, "finish", "a file of unknown length")
                    .cause("its length was known when it was begun"),
            )
        })
    }

    /// Makes the segments written so far survive a crash of the machine that holds them, and
    /// returns whether they do now. A store that only vouches for what it keeps has nothing to do.
    fn settle(&self) -> Boxed<'_, Result<bool>> {
        Box::pin(async { Ok(false) })
    }

    /// Returns the token that other processes with the same credentials need to write segments of
    /// this file by [`Endpoint::write_lent`]. Never a secret. `None` if none can.
    fn lend(&self) -> Option<String> {
        None
    }

    /// Accepts a segment that another process wrote, with its checksum and receipt.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] for an invalid receipt, [`ErrorKind::Unsupported`] if nothing is
    /// lent; the operating system's errors.
    fn take(&self, _index: u64, _sum: Checksum, _receipt: &str) -> Result<()> {
        Err(Error::new(ErrorKind::Unsupported, "take", "a segment")
            .cause("it was not lent to anybody"))
    }

    /// Returns the note that another machine needs to continue the unfinished file, for
    /// [`Endpoint::adopt`]. Never a secret. `None` if nothing is kept on this one.
    fn note(&self) -> Option<String> {
        None
    }
}

/// Protocol, root and the credentials to reach it.
pub trait Endpoint: Send + Sync {
    /// Returns its capabilities.
    fn capabilities(&self) -> Capabilities;
    /// Returns the address of `path` for messages. Never a secret.
    fn show(&self, path: &[u8]) -> String;
    /// Returns the entry at `path`; `None` if nothing is there. A final symbolic link is followed
    /// if requested.
    fn stat<'a>(&'a self, path: &'a [u8], follow: bool) -> Boxed<'a, Result<Option<Entry>>>;
    /// Starts to list the directory at `path`.
    fn list<'a>(&'a self, path: &'a [u8], follow: bool) -> Boxed<'a, Result<Box<dyn Listing>>>;
    /// Reads a whole, unchanged file of at most [`Capabilities::segment_size_min`] bytes.
    fn get<'a>(&'a self, path: &'a [u8], entry: &'a Entry) -> Boxed<'a, Result<Whole>>;
    /// Opens a file for range reads.
    fn open<'a>(&'a self, path: &'a [u8], entry: &'a Entry) -> Boxed<'a, Result<Arc<dyn Reader>>>;
    /// Returns the target of the symbolic link at `path`.
    fn read_link<'a>(&'a self, path: &'a [u8]) -> Boxed<'a, Result<Vec<u8>>>;
    /// Returns the error for a write to a read-only endpoint.
    fn read_only(&self, path: &[u8]) -> Error {
        unsupported("write", self.show(path)).at(Locus::Destination)
    }
    /// Fails if the endpoint is read-only. Callers check this first, so that the error is not
    /// repeated for each file.
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
    /// Starts or continues a large file.
    fn create<'a>(
        &'a self,
        path: &'a [u8],
        _spec: &'a FileSpec,
    ) -> Boxed<'a, Result<Arc<dyn Writer>>> {
        Box::pin(async move { Err(self.read_only(path)) })
    }
    /// Starts or continues a large file of unknown length; [`FileSpec::size`] is ignored. It ends
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
    /// Adopts another machine's note about the unfinished file at `path`, so that it is found when
    /// the file is continued here. An existing note here wins.
    fn adopt<'a>(
        &'a self,
        _path: &'a [u8],
        _spec: &'a FileSpec,
        _note: &'a str,
    ) -> Boxed<'a, Result<()>> {
        Box::pin(async { Ok(()) })
    }
    /// Writes a segment of the file at `path` that a writer elsewhere lent. Returns its checksum
    /// and a receipt for that writer to [`Writer::take`].
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
    /// Makes a directory and its parents; returns whether it is new.
    fn make_directory<'a>(&'a self, path: &'a [u8]) -> Boxed<'a, Result<bool>> {
        Box::pin(async move { Err(self.read_only(path)) })
    }
    /// Gives a directory its final attributes. Stores that only know prefixes leave a marker for
    /// `empty` directories.
    fn seal_directory<'a>(
        &'a self,
        path: &'a [u8],
        _entry: &'a Entry,
        _empty: bool,
    ) -> Boxed<'a, Result<()>> {
        Box::pin(async move { Err(self.read_only(path)) })
    }

    /// Restricts a new directory to its user while files are written into it, if `mode` will grant
    /// others less than they have now. Stores that keep no modes keep nothing private either.
    fn keep_private<'a>(&'a self, _path: &'a [u8], _mode: u32) -> Boxed<'a, ()> {
        Box::pin(async {})
    }

    /// Seals several directories, none of which holds another; one result each, in order. Faster
    /// than as many [`Endpoint::seal_directory`] over long distances.
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

    /// Starts to list everything below the directory at `path` at once, with names as paths
    /// relative to it and directories before their content. `None` if directories must be listed
    /// one at a time.
    fn list_tree<'a>(&'a self, _path: &'a [u8]) -> Boxed<'a, Result<Option<Box<dyn Listing>>>> {
        Box::pin(async { Ok(None) })
    }

    /// Continues a listing of `path`, of the directory or the whole tree, from a mark it left, as
    /// if it had never been interrupted. Entries changed meanwhile may be reported in either state.
    fn list_on<'a>(
        &'a self,
        path: &'a [u8],
        _mark: &'a [u8],
    ) -> Boxed<'a, Result<Box<dyn Listing>>> {
        Box::pin(async move { Err(unsupported("go on listing", self.show(path))) })
    }

    /// Reads several small files; one result each, in order. Faster than as many [`Endpoint::get`]
    /// if [`Capabilities::bundle_bytes_max`] is not 0.
    fn get_all<'a>(&'a self, wanted: &'a [(Vec<u8>, Entry)]) -> Boxed<'a, Vec<Result<Whole>>> {
        Box::pin(async move {
            let mut found = Vec::with_capacity(wanted.len());
            for (path, entry) in wanted {
                found.push(self.get(path, entry).await);
            }
            found
        })
    }

    /// Stores several small files; one result each, in order. Faster than as many [`Endpoint::put`]
    /// if [`Capabilities::bundle_bytes_max`] is not 0.
    fn put_all(&self, parcels: Vec<Parcel>) -> Boxed<'_, Vec<Result<()>>> {
        Box::pin(async move {
            let mut stored = Vec::with_capacity(parcels.len());
            for parcel in parcels {
                let Parcel {
                    path,
                    spec,
                    data,
                    sum,
                } = parcel;
                stored.push(self.put(&path, &spec, data, sum).await);
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

    /// Presigns a URL for one operation on the file at `path`, for `lifetime`, at the store itself
    /// and without our credentials.
    fn pass<'a>(
        &'a self,
        path: &'a [u8],
        _errand: &'a Errand,
        _lifetime: Duration,
    ) -> Boxed<'a, Result<Pass>> {
        Box::pin(async move { Err(unsupported("hand out", self.show(path))) })
    }

    /// Returns the attributes that files arrived without so far, because the endpoint refuses them.
    fn unkept(&self) -> Unkept {
        Unkept::default()
    }

    /// Returns the round trip time to the endpoint, once something measured it; `None` if it is not
    /// remote.
    fn round_trip(&self) -> Option<Duration> {
        None
    }

    /// Returns the caps on its requests and bytes, if its profile has some.
    fn limits(&self) -> Option<&Limits> {
        None
    }

    /// Returns the name of the server if it copies among its own files: an endpoint can
    /// [`Endpoint::copy_within`] a file that another with the same realm has [`Endpoint::locate`]d.
    fn realm(&self) -> Option<String> {
        None
    }

    /// Returns the place of `path` within the realm.
    fn locate(&self, path: &[u8]) -> Vec<u8> {
        path.to_vec()
    }

    /// Returns the name of the system of its files: endpoints with the same name reach each other's
    /// files. `None` if unknown.
    fn system(&self) -> Option<String> {
        self.realm()
    }

    /// Returns the place of `path` in the system with all links resolved, as far as the other side
    /// reports. Its end need not exist yet.
    fn real_path<'a>(&'a self, path: &'a [u8]) -> Boxed<'a, Result<Vec<u8>>> {
        Box::pin(async move { Ok(self.locate(path)) })
    }

    /// Returns the resolution of times at `path`, in nanoseconds; `None` if none can be set. If the
    /// file system behind decides that, it is probed once for each, with a temporary file.
    fn learn_time_step_ns<'a>(&'a self, _path: &'a [u8]) -> Boxed<'a, Result<Option<u32>>> {
        Box::pin(async { Ok(self.capabilities().mtime_step_ns) })
    }

    /// Removes the leftovers of an upload from `origin` to `path` that was killed after the file
    /// had its name.
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
