//! What is said in requests and answers.

use posthaste_types::{Malformed, Record, record};

use super::Refusal;
use crate::{
    Checksum,
    endpoint::{Entry, FileSpec, FileTime, Kind},
};

/// A path, a name or a link's target: any bytes.
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

    /// A peer's entries have no version of their own: size and mtime are it.
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
    /// The first message of all. Later versions may add to its end: what follows is ignored.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Hello {
        /// The oldest version the client speaks.
        pub oldest: u32,
        /// The newest version the client speaks.
        pub newest: u32,
        /// What the client can do beyond its version, a bit each; none yet.
        pub features: u64,
        /// The path whose state the answer tells, so that nobody has to ask again.
        pub root: Name,
    }
}

record! {
    /// The answer to [`Hello`]. Later versions may add to its end: what follows is ignored.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Welcome {
        /// The version both speak from now on.
        pub version: u32,
        /// What the server can do beyond it, a bit each: [`super::FEATURE_RUNS`],
        /// [`super::FEATURE_FINISH_AHEAD`].
        pub features: u64,
        /// The release the server runs, for people.
        pub release: String,
        /// Bytes that can still be stored, where the server knows.
        pub free_bytes: Option<u64>,
        /// The root, a final link followed.
        pub followed: Looked,
        /// The root itself.
        pub root: Looked,
    }
}

record! {
    /// Asks what lies at a path.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Stat {
        /// The path.
        pub path: Name,
        /// Whether a final link is followed.
        pub follow: bool,
    }
}

record! {
    /// What lies at a path.
    #[derive(Debug, Clone, PartialEq, Eq, Default)]
    pub struct Looked {
        /// It, with an empty name; `None` when nothing does.
        pub entry: Option<Entry>,
        /// Nothing unfinished lies beside it: a large file can be started without asking first.
        pub is_clean: bool,
    }
}

record! {
    /// Asks for a directory's entries.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct List {
        /// The directory.
        pub path: Name,
        /// Whether links are followed.
        pub follow: bool,
        /// Everything below, names being paths relative to it.
        pub tree: bool,
    }
}

record! {
    /// Some entries of a directory; none when all were told.
    #[derive(Debug, Clone, PartialEq, Eq, Default)]
    pub struct Page {
        /// They.
        pub entries: Vec<Entry>,
    }
}

record! {
    /// What a file was when somebody last looked.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Seen {
        /// Bytes.
        pub size: u64,
        /// Modification time.
        pub mtime: Option<FileTime>,
    }
}

record! {
    /// Asks for a range of a file.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Read {
        /// The file.
        pub path: Name,
        /// It must still be this; `None` when it is being opened.
        pub seen: Option<Seen>,
        /// First byte.
        pub start: u64,
        /// The byte after the last.
        pub end: u64,
    }
}

record! {
    /// Asks for small files.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Fetch {
        /// They, at most [`super::BUNDLE_FILES_MAX`].
        pub paths: Vec<Name>,
    }
}

record! {
    /// What precedes the bytes of one file of a bundle that is read, with its length in front as
    /// four bytes, little-endian.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub enum Fetched {
        /// The file as it was when opened; as many bytes follow, and after them another such
        /// record: [`Fetched::Confirmed`] or [`Fetched::Refused`].
        0 = Head {
            /// It.
            entry: Entry
        },
        /// The bytes are those of the file.
        1 = Confirmed,
        /// It can't be had.
        2 = Refused {
            /// Why.
            refusal: Refusal
        },
    }
}

record! {
    /// Small files follow.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Store {
        /// How many, at most [`super::BUNDLE_FILES_MAX`].
        pub count: u32,
        /// Bytes of all of them with their [`Stored`], at most [`super::BUNDLE_BYTES_MAX`] and
        /// [`super::BUNDLE_NAMES_BYTES_MAX`] together.
        pub bytes: u64,
        /// Whether they are flushed to the disk before they count.
        pub flush: bool,
    }
}

record! {
    /// What precedes the bytes of one file of a bundle that is stored, with its length in front as
    /// four bytes, little-endian.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Stored {
        /// Where it goes. Missing directories above it are made.
        pub path: Name,
        /// What is kept of it; as many bytes as its size follow.
        pub spec: FileSpec,
        /// Their checksum, as whoever read them computed it.
        pub sum: Checksum,
    }
}

record! {
    /// Names an unfinished large file.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Create {
        /// Where it goes. Missing directories above it are made.
        pub path: Name,
        /// What is kept of it. A size of 0 is one nobody knows yet: such a file is written by
        /// [`WriteOpen`] and ends with [`FinishOpen`].
        pub spec: FileSpec,
        /// Bytes of each segment but the last.
        pub segment_size: u64,
    }
}

record! {
    /// A segment follows and, from clients of a server with [`super::FEATURE_RUNS`], perhaps the
    /// ones after it.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Write {
        /// The file it belongs to; started or continued if this is the first that is heard of it.
        pub file: Create,
        /// Which segment; the first of a run.
        pub index: u64,
    }
}

record! {
    /// All segments are there.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Finish {
        /// The file.
        pub file: Create,
        /// The checksum it must have.
        pub whole: Checksum,
        /// Whether it is flushed to the disk before it counts.
        pub flush: bool,
    }
}

record! {
    /// A segment of a file of unknown length follows.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct WriteOpen {
        /// The file it belongs to.
        pub file: Create,
        /// Which segment.
        pub index: u64,
        /// Its bytes: less than a segment's only in the last one.
        pub bytes: u64,
        /// Whether it is flushed to the disk before it counts.
        pub flush: bool,
    }
}

record! {
    /// All segments of a file of unknown length are there.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct FinishOpen {
        /// The file.
        pub file: Create,
        /// Its length. What was written beyond is cut off.
        pub size: u64,
        /// The checksum it must have.
        pub whole: Checksum,
        /// Whether it is flushed to the disk before it counts.
        pub flush: bool,
    }
}

record! {
    /// Asks for a link.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct MakeLink {
        /// Where. Missing directories above it are made.
        pub path: Name,
        /// Where it points.
        pub target: Name,
        /// What is kept of it.
        pub spec: FileSpec,
    }
}

record! {
    /// A path and nothing else.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Named {
        /// It.
        pub path: Name,
    }
}

record! {
    /// A directory to make, and those above it.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct MakeDirectory {
        /// The directory.
        pub path: Name,
        /// Whether a link that leads to a directory will do.
        pub follow: bool,
    }
}

record! {
    /// Asks for directories.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct MakeDirectories {
        /// They, at most [`super::DIRECTORIES_MAX`].
        pub directories: Vec<MakeDirectory>,
    }
}

record! {
    /// A directory's attributes.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct SealDirectory {
        /// The directory; made when it isn't there.
        pub path: Name,
        /// Permission bits.
        pub mode: Option<u32>,
        /// Modification time.
        pub mtime: Option<FileTime>,
    }
}

record! {
    /// Sets attributes of directories, in this order.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct SealDirectories {
        /// They, at most [`super::DIRECTORIES_MAX`].
        pub directories: Vec<SealDirectory>,
    }
}
