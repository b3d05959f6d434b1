//! Messages of requests and answers.

use posthaste_types::{Malformed, Record, record};

use super::Refusal;
use crate::{
    Checksum,
    endpoint::{Entry, FileSpec, FileTime, Kind},
};

/// Path, name or link target: any bytes.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Name(pub Vec<u8>);

impl Record for Name {
    fn write(&self, out: &mut Vec<u8>) {
        (self.0.len() as u64).write(out);
        out.extend_from_slice(&self.0);
    }

    fn read(input: &mut &[u8]) -> Result<Self, Malformed> {
        let malformed = Malformed { expected: "name" };
        let length = usize::try_from(u64::read(input)?).map_err(|_| malformed)?;
        let (name, rest) = input.split_at_checked(length).ok_or(malformed)?;
        *input = rest;
        Ok(Self(name.to_vec()))
    }
}

impl Record for Kind {
    fn write(&self, out: &mut Vec<u8>) {
        out.push(match self {
            Self::File => 0,
            Self::Directory => 1,
            Self::Link => 2,
            Self::Special => 3,
        });
    }

    fn read(input: &mut &[u8]) -> Result<Self, Malformed> {
        match u8::read(input)? {
            0 => Ok(Self::File),
            1 => Ok(Self::Directory),
            2 => Ok(Self::Link),
            3 => Ok(Self::Special),
            _ => Err(Malformed { expected: "kind" }),
        }
    }
}

impl Record for FileTime {
    fn write(&self, out: &mut Vec<u8>) {
        self.secs.write(out);
        self.nanos.write(out);
    }

    fn read(input: &mut &[u8]) -> Result<Self, Malformed> {
        let time = Self {
            secs: i64::read(input)?,
            nanos: u32::read(input)?,
        };
        if time.nanos < 1_000_000_000 {
            Ok(time)
        } else {
            Err(Malformed { expected: "time" })
        }
    }
}

impl Record for Entry {
    fn write(&self, out: &mut Vec<u8>) {
        (self.name.len() as u64).write(out);
        out.extend_from_slice(&self.name);
        self.kind.write(out);
        self.size.write(out);
        self.mtime.write(out);
        self.mode.write(out);
    }

    /// Entries of a peer have no version of their own; size and mtime serve as one.
    fn read(input: &mut &[u8]) -> Result<Self, Malformed> {
        Ok(Self {
            name: Name::read(input)?.0,
            kind: Kind::read(input)?,
            size: u64::read(input)?,
            mtime: Option::read(input)?,
            stored: None,
            mode: Option::read(input)?,
            version: None,
        })
    }
}

impl Record for Checksum {
    fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.to_be_bytes());
    }

    fn read(input: &mut &[u8]) -> Result<Self, Malformed> {
        let malformed = Malformed {
            expected: "checksum",
        };
        let (bytes, rest) = input.split_first_chunk().ok_or(malformed)?;
        *input = rest;
        Ok(Self::from_be_bytes(*bytes))
    }
}

impl Record for FileSpec {
    fn write(&self, out: &mut Vec<u8>) {
        self.size.write(out);
        self.mtime.write(out);
        self.mode.write(out);
        (self.origin.len() as u64).write(out);
        out.extend_from_slice(self.origin.as_bytes());
        let version = self.version.as_deref();
        version.is_some().write(out);
        if let Some(version) = version {
            (version.len() as u64).write(out);
            out.extend_from_slice(version.as_bytes());
        }
    }

    fn read(input: &mut &[u8]) -> Result<Self, Malformed> {
        Ok(Self {
            size: u64::read(input)?,
            mtime: Option::read(input)?,
            mode: Option::read(input)?,
            origin: String::read(input)?.into(),
            version: Option::<String>::read(input)?.map(String::into_boxed_str),
        })
    }
}

record! {
    /// First message of all. Later versions may append fields, which are ignored.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Hello {
        /// Oldest version the client speaks.
        pub oldest: u32,
        /// Newest version the client speaks.
        pub newest: u32,
        /// Features of the client beyond its version, a bit each; none yet.
        pub features: u64,
        /// Path whose state the answer reports, to save a request.
        pub root: Name,
    }
}

record! {
    /// Answer to [`Hello`]. Later versions may append fields, which are ignored.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Welcome {
        /// Version that both speak from now on.
        pub version: u32,
        /// Features of the server beyond it, a bit each: [`super::FEATURE_RUNS`],
        /// [`super::FEATURE_FINISH_AHEAD`].
        pub features: u64,
        /// Release that the server runs, for people.
        pub release: String,
        /// Bytes that can still be stored, if the server knows.
        pub free_bytes: Option<u64>,
        /// Root with a final link followed.
        pub followed: Looked,
        /// Root itself.
        pub root: Looked,
    }
}

record! {
    /// Request for the entry at a path.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Stat {
        /// The path.
        pub path: Name,
        /// True to follow a final link.
        pub follow: bool,
    }
}

record! {
    /// Answer about a path.
    #[derive(Debug, Clone, PartialEq, Eq, Default)]
    pub struct Looked {
        /// Entry, with an empty name; `None` if nothing is there.
        pub entry: Option<Entry>,
        /// True if nothing unfinished lies beside it: a large file can be started without asking
        /// first.
        pub is_clean: bool,
    }
}

record! {
    /// Request for a directory's entries.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct List {
        /// The directory.
        pub path: Name,
        /// True to follow links.
        pub follow: bool,
        /// True to list everything below, with names as paths relative to it.
        pub tree: bool,
    }
}

record! {
    /// Some entries of a directory; none at the end.
    #[derive(Debug, Clone, PartialEq, Eq, Default)]
    pub struct Page {
        /// Entries of the page.
        pub entries: Vec<Entry>,
    }
}

record! {
    /// State of a file when it was last seen.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Seen {
        /// Size in bytes.
        pub size: u64,
        /// Modification time.
        pub mtime: Option<FileTime>,
    }
}

record! {
    /// Request for a range of a file.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Read {
        /// The file.
        pub path: Name,
        /// State that the file must still have; `None` if it is being opened.
        pub seen: Option<Seen>,
        /// First byte.
        pub start: u64,
        /// End of the range, exclusive.
        pub end: u64,
    }
}

record! {
    /// Request for small files.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Fetch {
        /// Paths, at most [`super::BUNDLE_FILES_MAX`].
        pub paths: Vec<Name>,
    }
}

record! {
    /// Record before the bytes of one file of a bundle being read, prefixed with its length in four
    /// bytes, little-endian.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub enum Fetched {
        /// File as it was when opened. Its bytes follow, and after them another record:
        /// [`Fetched::Confirmed`] or [`Fetched::Refused`].
        0 = Head {
            /// Entry of the file.
            entry: Entry
        },
        /// Confirmation that the bytes are those of the file.
        1 = Confirmed,
        /// Failure to read the file.
        2 = Refused {
            /// Reason.
            refusal: Refusal
        },
    }
}

record! {
    /// Header of small files that follow.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Store {
        /// Number of files, at most [`super::BUNDLE_FILES_MAX`].
        pub count: u32,
        /// Bytes of all of them with their [`Stored`], at most [`super::BUNDLE_BYTES_MAX`] and
        /// [`super::BUNDLE_NAMES_BYTES_MAX`] together.
        pub bytes: u64,
        /// True to flush them to the disk before they count.
        pub flush: bool,
    }
}

record! {
    /// Record before the bytes of one file of a bundle being stored, prefixed with its length in
    /// four bytes, little-endian.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Stored {
        /// Path of the file. Missing parent directories are made.
        pub path: Name,
        /// Attributes to keep; as many bytes as its size follow.
        pub spec: FileSpec,
        /// Checksum of the bytes, as their reader computed it.
        pub sum: Checksum,
    }
}

record! {
    /// Identity of an unfinished large file.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Create {
        /// Path of the file. Missing parent directories are made.
        pub path: Name,
        /// Attributes to keep. A size of 0 means unknown: such a file is written by [`WriteOpen`]
        /// and ends with [`FinishOpen`].
        pub spec: FileSpec,
        /// Bytes of each segment but the last.
        pub segment_size: u64,
    }
}

record! {
    /// Header of a segment and, from clients of a server with [`super::FEATURE_RUNS`], perhaps of
    /// the ones after it.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Write {
        /// File to which it belongs, started or continued by its first message.
        pub file: Create,
        /// Index of the segment; the first of a run.
        pub index: u64,
    }
}

record! {
    /// Request to finish a file whose segments are all there.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Finish {
        /// The file.
        pub file: Create,
        /// Checksum that the file must have.
        pub whole: Checksum,
        /// True to flush it to the disk before it counts.
        pub flush: bool,
    }
}

record! {
    /// Header of a segment of a file of unknown length.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct WriteOpen {
        /// File to which it belongs.
        pub file: Create,
        /// Index of the segment.
        pub index: u64,
        /// Bytes of the segment: fewer than a full one only at the end.
        pub bytes: u64,
        /// True to flush it to the disk before it counts.
        pub flush: bool,
    }
}

record! {
    /// Request to finish a file of unknown length whose segments are all there.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct FinishOpen {
        /// The file.
        pub file: Create,
        /// Length of the file. Bytes written beyond it are cut off.
        pub size: u64,
        /// Checksum that the file must have.
        pub whole: Checksum,
        /// True to flush it to the disk before it counts.
        pub flush: bool,
    }
}

record! {
    /// Request for a symbolic link.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct MakeLink {
        /// Path of the link. Missing parent directories are made.
        pub path: Name,
        /// Target of the link.
        pub target: Name,
        /// Attributes to keep.
        pub spec: FileSpec,
    }
}

record! {
    /// Message that is only a path.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Named {
        /// Path.
        pub path: Name,
    }
}

record! {
    /// Directory to make, with its parents.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct MakeDirectory {
        /// The directory.
        pub path: Name,
        /// True to accept a link that leads to a directory.
        pub follow: bool,
    }
}

record! {
    /// Request for directories.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct MakeDirectories {
        /// Directories, at most [`super::DIRECTORIES_MAX`].
        pub directories: Vec<MakeDirectory>,
    }
}

record! {
    /// Attributes of a directory.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct SealDirectory {
        /// Path of the directory, which is made if missing.
        pub path: Name,
        /// Permission bits.
        pub mode: Option<u32>,
        /// Modification time.
        pub mtime: Option<FileTime>,
    }
}

record! {
    /// Request to set attributes of directories, in this order.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct SealDirectories {
        /// Directories, at most [`super::DIRECTORIES_MAX`].
        pub directories: Vec<SealDirectory>,
    }
}
