//! The one shape of all storage: list, read ranges, write whole files, continue unfinished ones.
//!
//! What an endpoint can and can't do is data ([`Capabilities`]); copy branches on it and never on
//! the protocol. Paths are bytes, relative to the endpoint's root, `/` between components; the
//! empty path is the root itself.

use std::{cmp::Ordering, fmt, future::Future, ops::Range, pin::Pin, sync::Arc};

use bytes::Bytes;
use futures_util::Stream;

use crate::{Checksum, Result};

/// A future that a lane can own.
pub type Boxed<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// The bytes of one range, in order.
pub type ByteStream = Pin<Box<dyn Stream<Item = Result<Bytes>> + Send>>;

/// What lies at a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Bytes.
    File,
    /// A directory, or a prefix that has keys below it.
    Directory,
    /// A symbolic link.
    Link,
    /// A socket, pipe or device: nothing to copy.
    Special,
}

/// A moment of a file system: whole seconds since the Unix epoch and nanoseconds after them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct FileTime {
    /// Seconds; negative before 1970.
    pub secs: i64,
    /// Nanoseconds, below 10^9.
    pub nanos: u32,
}

impl FileTime {
    /// Whether both fall into one step of `step_ns`: stores keep different precisions.
    #[must_use]
    pub fn agrees(self, other: Self, step_ns: u32) -> bool {
        let (early, late) = match self.cmp(&other) {
            Ordering::Greater => (other, self),
            Ordering::Less | Ordering::Equal => (self, other),
        };
        let apart_ns = i128::from(late.secs - early.secs) * 1_000_000_000 + i128::from(late.nanos)
            - i128::from(early.nanos);
        apart_ns < i128::from(step_ns)
    }
}

impl fmt::Display for FileTime {
    /// Decimal seconds, as rclone keeps them in S3 metadata.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.secs < 0 && self.nanos > 0 {
            let (secs, nanos) = (-(self.secs + 1), 1_000_000_000 - self.nanos);
            return write!(f, "-{secs}.{nanos:09}");
        }
        write!(f, "{}.{:09}", self.secs, self.nanos)
    }
}

impl std::str::FromStr for FileTime {
    type Err = std::num::ParseIntError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
        let digits: String = fraction
            .chars()
            .chain("000000000".chars())
            .take(9)
            .collect();
        let secs: i64 = whole.parse()?;
        let nanos: u32 = digits.parse()?;
        if whole.starts_with('-') && nanos > 0 {
            return Ok(Self {
                secs: secs - 1,
                nanos: 1_000_000_000 - nanos,
            });
        }
        Ok(Self { secs, nanos })
    }
}

/// What an endpoint says about one path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The last component; empty for the root.
    pub name: Vec<u8>,
    /// What it is.
    pub kind: Kind,
    /// Bytes of a file.
    pub size: u64,
    /// When its content last changed, where a listing tells.
    pub mtime: Option<FileTime>,
    /// Permission bits (`07777`), where known.
    pub mode: Option<u32>,
    /// What the store itself calls this version (an ETag).
    pub version: Option<Box<str>>,
}

/// What a destination is to keep of a file beside its bytes, and whom it came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileSpec {
    /// Bytes.
    pub size: u64,
    /// Kept at the destination.
    pub mtime: Option<FileTime>,
    /// Kept at the destination: permission bits.
    pub mode: Option<u32>,
    /// The source's full address. With size, mtime and version it names what an unfinished copy
    /// is a copy of.
    pub origin: Arc<str>,
    /// The source's own version, where it has one.
    pub version: Option<Box<str>>,
}

impl FileSpec {
    /// Names exactly what is copied: another value means that an unfinished copy starts anew.
    #[must_use]
    pub fn identity(&self) -> String {
        let text = format!(
            "{}\n{}\n{}\n{}",
            self.origin,
            self.size,
            self.mtime
                .map_or_else(String::new, |mtime| mtime.to_string()),
            self.version.as_deref().unwrap_or_default()
        );
        blake3::hash(text.as_bytes()).to_hex()[..32].to_owned()
    }
}

/// What an endpoint can do, as far as copy decides by it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capabilities {
    /// The scheme of its addresses, `file` for local paths.
    pub scheme: &'static str,
    /// Names may be any bytes but `/` and NUL; otherwise they must be UTF-8.
    pub byte_names: bool,
    /// The smallest step in which mtimes are kept, in nanoseconds.
    pub mtime_step_ns: u32,
    /// A listing already tells mtimes; otherwise each file has to be asked.
    pub mtimes_listed: bool,
    /// Directories have modes and mtimes that can be set.
    pub directory_attributes: bool,
    /// The store computes and keeps CRC-64/NVME itself.
    pub stores_checksum: bool,
    /// Files up to this size travel in one piece; larger ones in segments of this size or more.
    pub segment_size_min: u64,
    /// How many files to move at once when nobody says.
    pub transfers_auto: usize,
}

/// A small file, read whole.
#[derive(Debug)]
pub struct Whole {
    /// As it was when read.
    pub entry: Entry,
    /// Its bytes, in order.
    pub data: Vec<Bytes>,
    /// Their checksum, compared with the store's own where it has one.
    pub checksum: Checksum,
}

/// A directory being listed.
pub trait Listing: Send {
    /// The next entries in no particular order; empty at the end. Bounded by the endpoint.
    fn next_page(&mut self) -> Boxed<'_, Result<Vec<Entry>>>;
}

/// A file open for ranged reads.
pub trait Reader: Send + Sync {
    /// As it was when opened.
    fn entry(&self) -> &Entry;
    /// What the store says the whole file's checksum is.
    fn checksum(&self) -> Option<Checksum>;
    /// Streams `range`. It ends with an error if fewer bytes are there.
    fn read(&self, range: Range<u64>) -> Boxed<'_, Result<ByteStream>>;
    /// Fails with [`crate::ErrorKind::Changed`] unless the file still is what was opened.
    fn confirm(&self) -> Boxed<'_, Result<()>>;
}

/// A large file being written in segments, visible under its final name only after `finish`.
pub trait Writer: Send + Sync {
    /// Bytes of each segment but the last.
    fn segment_size(&self) -> u64;
    /// Segments an earlier run stored, checked again where that is cheaper than to send again.
    fn kept(&self) -> Vec<(u64, Checksum)>;
    /// Stores one segment and returns its checksum once the destination was found to hold it.
    fn write(&self, index: u64, range: Range<u64>, body: ByteStream)
    -> Boxed<'_, Result<Checksum>>;
    /// Gives the file its attributes and its final name; `whole` is what the destination must hold.
    fn finish(&self, whole: Checksum) -> Boxed<'_, Result<()>>;
    /// Forgets the unfinished file: what it is a copy of is gone.
    fn discard(&self) -> Boxed<'_, ()>;
}

/// A protocol, a root and the credentials to reach it.
pub trait Endpoint: Send + Sync {
    /// What it can do.
    fn capabilities(&self) -> Capabilities;
    /// The address of `path` for people. Never a secret.
    fn show(&self, path: &[u8]) -> String;
    /// What lies at `path`; `None` when nothing does. A final symbolic link is followed if asked.
    fn stat<'a>(&'a self, path: &'a [u8], follow: bool) -> Boxed<'a, Result<Option<Entry>>>;
    /// Starts to list the directory at `path`.
    fn list<'a>(&'a self, path: &'a [u8], follow: bool) -> Boxed<'a, Result<Box<dyn Listing>>>;
    /// Reads a file of at most [`Capabilities::segment_size_min`] bytes whole and unchanged.
    fn get<'a>(&'a self, path: &'a [u8], entry: &'a Entry) -> Boxed<'a, Result<Whole>>;
    /// Opens a file for ranged reads.
    fn open<'a>(&'a self, path: &'a [u8], entry: &'a Entry) -> Boxed<'a, Result<Arc<dyn Reader>>>;
    /// Where the symbolic link at `path` points.
    fn read_link<'a>(&'a self, path: &'a [u8]) -> Boxed<'a, Result<Vec<u8>>>;
    /// Stores a small file under its final name, all or nothing, and checks it is held.
    fn put<'a>(
        &'a self,
        path: &'a [u8],
        spec: &'a FileSpec,
        data: Vec<Bytes>,
        sum: Checksum,
    ) -> Boxed<'a, Result<()>>;
    /// Starts a large file or continues it.
    fn create<'a>(
        &'a self,
        path: &'a [u8],
        spec: &'a FileSpec,
    ) -> Boxed<'a, Result<Arc<dyn Writer>>>;
    /// Makes a symbolic link, replacing one that is there.
    fn make_link<'a>(
        &'a self,
        path: &'a [u8],
        target: &'a [u8],
        spec: &'a FileSpec,
    ) -> Boxed<'a, Result<()>>;
    /// Makes the directories above the root, where the store has any.
    fn make_parents(&self) -> Boxed<'_, Result<()>>;
    /// Makes a directory and those above it; says whether it is new.
    fn make_directory<'a>(&'a self, path: &'a [u8]) -> Boxed<'a, Result<bool>>;
    /// Gives a directory its final attributes. `empty` directories of stores that only know
    /// prefixes leave a marker.
    fn seal_directory<'a>(
        &'a self,
        path: &'a [u8],
        entry: &'a Entry,
        empty: bool,
    ) -> Boxed<'a, Result<()>>;
}

/// Appends `name` to a relative path.
#[must_use]
pub fn join(path: &[u8], name: &[u8]) -> Vec<u8> {
    if path.is_empty() {
        return name.to_vec();
    }
    if name.is_empty() {
        return path.to_vec();
    }
    [path, b"/", name].concat()
}

/// The last component of a path.
#[must_use]
pub fn base_name(path: &[u8]) -> &[u8] {
    path.rsplit(|&byte| byte == b'/').next().unwrap_or_default()
}

/// The hidden suffixes of unfinished copies; a tree copy leaves such names out.
pub(crate) const PARTIAL_SUFFIX: &str = ".posthaste-partial";
pub(crate) const LEDGER_SUFFIX: &str = ".posthaste-progress";

/// Whether a name is that of an unfinished copy of ours.
#[must_use]
pub fn is_unfinished(name: &[u8]) -> bool {
    name.starts_with(b".")
        && (name.ends_with(PARTIAL_SUFFIX.as_bytes()) || name.ends_with(LEDGER_SUFFIX.as_bytes()))
}

/// The name of the unfinished copy of `name`: hidden, beside it, the same in every run, different
/// for every origin.
#[must_use]
pub(crate) fn partial_name(name: &[u8], origin: &str) -> Vec<u8> {
    /// Longest piece of the final name kept, so that the whole stays under the 255 bytes of
    /// `NAME_MAX`.
    const KEPT_BYTES_MAX: usize = 200;
    let mut hasher = blake3::Hasher::new();
    hasher.update(name);
    hasher.update(origin.as_bytes());
    let hash = &hasher.finalize().to_hex()[..12];
    let kept = &name[..name.len().min(KEPT_BYTES_MAX)];
    [b".", kept, b".", hash.as_bytes(), PARTIAL_SUFFIX.as_bytes()].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_as_they_are_shown() {
        for (secs, nanos) in [
            (0, 0),
            (1_700_000_000, 123_456_789),
            (-1, 500_000_000),
            (-5, 0),
        ] {
            let time = FileTime { secs, nanos };
            assert_eq!(time.to_string().parse(), Ok(time), "{time}");
        }
        assert_eq!(
            "12.5".parse(),
            Ok(FileTime {
                secs: 12,
                nanos: 500_000_000
            })
        );
    }

    #[test]
    fn times_agree_within_the_coarser_step() {
        let fine = FileTime {
            secs: 7,
            nanos: 900_000_000,
        };
        let coarse = FileTime { secs: 7, nanos: 0 };
        assert!(fine.agrees(coarse, 1_000_000_000));
        assert!(coarse.agrees(fine, 1_000_000_000));
        assert!(!fine.agrees(coarse, 1_000_000));
        assert!(!fine.agrees(FileTime { secs: 9, nanos: 0 }, 1_000_000_000));
    }

    #[test]
    fn unfinished_names_fit_and_are_told_apart() {
        let long = vec![b'x'; 255];
        let name = partial_name(&long, "file:/a");
        assert!(name.len() <= 255 && is_unfinished(&name));
        assert_ne!(name, partial_name(&long, "file:/b"));
        assert!(!is_unfinished(b"results.posthaste-partial"));
    }
}
