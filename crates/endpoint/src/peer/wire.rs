//! Wire format that both sides of the peer protocol share: operations, messages and limits.
//!
//! A request is `POST /v1/files/OPERATION` whose body starts with one message; bytes that follow
//! are followed by their BLAKE3 digest. An answer is a sequence of frames ([`super::frame`]).
//! `docs/reference/peer-protocol.md` is the protocol in prose.

mod messages;
mod refusal;

use posthaste_types::{Malformed, Record};

pub use messages::{
    Create, Fetch, Fetched, Finish, FinishOpen, Hello, List, Looked, MakeDirectories,
    MakeDirectory, MakeLink, Name, Named, Page, Read, SealDirectories, SealDirectory, Seen, Stat,
    Store, Stored, Welcome, Write, WriteOpen,
};
pub use refusal::{Refusal, kind_number, number_kind};

/// Oldest version of the protocol spoken here.
pub const VERSION_OLDEST: u32 = 1;
/// Newest version of the protocol spoken here.
pub const VERSION_NEWEST: u32 = 1;

/// Feature of a server: several segments may follow a [`Write`], each with its digest.
pub const FEATURE_RUNS: u64 = 1;

/// Feature of a server: [`Operation::FinishAhead`].
pub const FEATURE_FINISH_AHEAD: u64 = 2;

/// Feature of a server: [`Operation::RealPath`].
pub const FEATURE_REAL_PATHS: u64 = 4;

/// Feature of a server: [`Operation::TimeStep`].
pub const FEATURE_CLOCKS: u64 = 8;

/// Header of a request whose sender understands frames of the kind [`super::frame::FrameKind::Unkept`].
pub const HEARS_UNKEPT: &str = "posthaste-hears-unkept";

/// Path prefix of the operations.
pub const PREFIX: &str = "/v1/files/";

/// Longest message, in bytes: the names of a bundle of the smallest files.
pub const MESSAGE_BYTES_MAX: usize = 4 << 20;

/// Most bytes of small files in one request: either side holds them in memory.
pub const BUNDLE_BYTES_MAX: u64 = 8 << 20;

/// Most small files of one bundle: this bounds the messages about them.
pub const BUNDLE_FILES_MAX: usize = 4096;

/// Most bytes of metadata in a bundle, beside the files' content.
pub const BUNDLE_NAMES_BYTES_MAX: u64 = 2 << 20;

/// Largest segment, in bytes: more would make a crash cost more than it saves.
pub const SEGMENT_BYTES_MAX: u64 = 256 << 20;

/// Most entries on one page of a listing.
pub const PAGE_ENTRIES_MAX: usize = 1024;

/// Most directories made or sealed in one request: even with the longest paths (`PATH_MAX`) they
/// fit in a message.
pub const DIRECTORIES_MAX: usize = 1000;

/// Bytes of one frame of data that a server sends: efficient for a disk, and a small share of
/// memory.
pub const DATA_BYTES: usize = 1 << 20;

/// Interval at which a server that still works on an answer says so.
pub const WAIT_EVERY: std::time::Duration = std::time::Duration::from_secs(2);

/// Operation of the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Operation {
    /// Agree on a version; look at the root. [`Hello`], [`Welcome`].
    Hello,
    /// Look at a path. [`Stat`], [`Looked`].
    Stat,
    /// List a directory, or all below it. [`List`], rows of [`Page`].
    List,
    /// Read a range. [`Read`], the file's entry and data.
    Read,
    /// Read small files. [`Fetch`], data made of [`Fetched`].
    Fetch,
    /// Store small files. [`Store`] and data made of [`Stored`]; a list of outcomes.
    Store,
    /// Start or continue a large file. [`Create`], the segments kept.
    Create,
    /// Store a segment, or several that follow one another. [`Write`] and data.
    Write,
    /// Give a large file its name. [`Finish`].
    Finish,
    /// Give a large file its name once the segments in flight have arrived. [`Finish`].
    FinishAhead,
    /// Store a segment of a file of unknown length. [`WriteOpen`] and data.
    WriteOpen,
    /// Give a file of unknown length its name. [`FinishOpen`].
    FinishOpen,
    /// Forget an unfinished file. [`Create`].
    Discard,
    /// Make a symbolic link. [`MakeLink`].
    MakeLink,
    /// Read a symbolic link. [`Named`], a [`Name`].
    ReadLink,
    /// Make directories. [`MakeDirectories`]; a list of outcomes, `true` where one is new.
    MakeDirectories,
    /// Give directories their attributes. [`SealDirectories`]; a list of outcomes.
    SealDirectories,
    /// Remove a file or link. [`Named`].
    Remove,
    /// Resolve a path whose end need not exist yet. [`Named`], a [`Name`].
    RealPath,
    /// Report the resolution of times beside a path, in nanoseconds; nothing if none can be set.
    /// [`Named`].
    TimeStep,
}

impl Operation {
    /// All operations.
    pub const ALL: [Self; 20] = [
        Self::Hello,
        Self::Stat,
        Self::List,
        Self::Read,
        Self::Fetch,
        Self::Store,
        Self::Create,
        Self::Write,
        Self::Finish,
        Self::FinishAhead,
        Self::WriteOpen,
        Self::FinishOpen,
        Self::Discard,
        Self::MakeLink,
        Self::ReadLink,
        Self::MakeDirectories,
        Self::SealDirectories,
        Self::Remove,
        Self::RealPath,
        Self::TimeStep,
    ];

    /// Returns its name in the path of a request.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Hello => "hello",
            Self::Stat => "stat",
            Self::List => "list",
            Self::Read => "read",
            Self::Fetch => "fetch",
            Self::Store => "store",
            Self::Create => "create",
            Self::Write => "write",
            Self::Finish => "finish",
            Self::FinishAhead => "finish-ahead",
            Self::WriteOpen => "write-open",
            Self::FinishOpen => "finish-open",
            Self::Discard => "discard",
            Self::MakeLink => "make-link",
            Self::ReadLink => "read-link",
            Self::MakeDirectories => "make-directories",
            Self::SealDirectories => "seal-directories",
            Self::Remove => "remove",
            Self::RealPath => "real-path",
            Self::TimeStep => "time-step",
        }
    }

    /// Returns the operation that a request's path names.
    #[must_use]
    pub fn parse(path: &str) -> Option<Self> {
        let name = path.strip_prefix(PREFIX)?;
        Self::ALL
            .into_iter()
            .find(|operation| operation.name() == name)
    }

    /// Returns the path that names it.
    #[must_use]
    pub fn path(self) -> String {
        format!("{PREFIX}{}", self.name())
    }

    /// Returns whether it changes anything.
    #[must_use]
    pub const fn writes(self) -> bool {
        match self {
            Self::Hello
            | Self::Stat
            | Self::List
            | Self::Read
            | Self::Fetch
            | Self::ReadLink
            | Self::RealPath => false,
            Self::Store
            | Self::Create
            | Self::Write
            | Self::Finish
            | Self::FinishAhead
            | Self::WriteOpen
            | Self::FinishOpen
            | Self::Discard
            | Self::MakeLink
            | Self::MakeDirectories
            | Self::SealDirectories
            | Self::Remove
            | Self::TimeStep => true,
        }
    }

    /// Returns its action for messages: a verb before a path.
    #[must_use]
    pub const fn verb(self) -> &'static str {
        match self {
            Self::Hello => "connect to",
            Self::Stat | Self::RealPath => "look at",
            Self::List => "list",
            Self::Read | Self::Fetch => "read",
            Self::Store
            | Self::Create
            | Self::Write
            | Self::Finish
            | Self::FinishAhead
            | Self::WriteOpen
            | Self::FinishOpen
            | Self::Discard => "write",
            Self::MakeLink => "make link",
            Self::ReadLink => "read link",
            Self::MakeDirectories => "make directory",
            Self::SealDirectories => "set the attributes of",
            Self::Remove => "remove",
            Self::TimeStep => "learn the clock at",
        }
    }
}

/// Encodes an answer: 0 and the value, or 1 and the refusal.
#[must_use]
pub fn write_answer<T: Record>(answer: &Result<T, Refusal>) -> Vec<u8> {
    let mut out = Vec::new();
    write_outcome(answer, &mut out);
    out
}

/// Appends one outcome of a list.
pub fn write_outcome<T: Record>(answer: &Result<T, Refusal>, out: &mut Vec<u8>) {
    match answer {
        Ok(value) => {
            out.push(0);
            value.write(out);
        }
        Err(refusal) => {
            out.push(1);
            refusal.write(out);
        }
    }
}

/// Reads an outcome that [`write_outcome`] wrote.
///
/// # Errors
/// [`Malformed`] if the bytes are not such an answer.
pub fn read_outcome<T: Record>(input: &mut &[u8]) -> Result<Result<T, Refusal>, Malformed> {
    match u8::read(input)? {
        0 => T::read(input).map(Ok),
        1 => Refusal::read(input).map(Err),
        _ => Err(Malformed { expected: "answer" }),
    }
}

/// Empty answer that only confirms.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Done;

impl Record for Done {
    fn write(&self, _out: &mut Vec<u8>) {}

    fn read(_input: &mut &[u8]) -> Result<Self, Malformed> {
        Ok(Self)
    }
}

/// List of outcomes, one for each item of the request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcomes<T>(pub Vec<Result<T, Refusal>>);

impl<T: Record> Record for Outcomes<T> {
    fn write(&self, out: &mut Vec<u8>) {
        (self.0.len() as u64).write(out);
        self.0
            .iter()
            .for_each(|outcome| write_outcome(outcome, out));
    }

    fn read(input: &mut &[u8]) -> Result<Self, Malformed> {
        let count = u64::read(input)?;
        if count > BUNDLE_FILES_MAX.max(DIRECTORIES_MAX) as u64 {
            return Err(Malformed {
                expected: "outcomes",
            });
        }
        (0..count)
            .map(|_| read_outcome(input))
            .collect::<Result<_, _>>()
            .map(Self)
    }
}

/// Returns the version that two sides speak, or the line that says why there is none.
///
/// # Errors
/// The line.
pub fn agree(oldest: u32, newest: u32, release: &str) -> Result<u32, String> {
    let version = newest.min(VERSION_NEWEST);
    if version >= oldest.max(VERSION_OLDEST) {
        return Ok(version);
    }
    let behind = if newest < VERSION_OLDEST {
        "the other end is too old"
    } else {
        "this end is too old"
    };
    Err(format!(
        "it speaks protocol {oldest} to {newest} (release {release}), we {VERSION_OLDEST} to {VERSION_NEWEST}: {behind}"
    ))
}

/// Reads a message as every possible type, for [`crate::fuzzing`]. A message that was read can be
/// written and read again.
pub(crate) fn try_message(message: &[u8]) {
    fn read<T: Record + PartialEq + std::fmt::Debug>(message: &[u8]) {
        if let Ok(found) = T::from_bytes(message) {
            let again = T::from_bytes(&found.to_bytes());
            assert_eq!(again.ok(), Some(found), "it is not what was written");
        }
        let _ = read_outcome::<T>(&mut &message[..]);
    }
    read::<Hello>(message);
    read::<Welcome>(message);
    read::<Stat>(message);
    read::<Looked>(message);
    read::<List>(message);
    read::<Page>(message);
    read::<Read>(message);
    read::<Fetch>(message);
    read::<Fetched>(message);
    read::<Store>(message);
    read::<Outcomes<Stored>>(message);
    read::<Create>(message);
    read::<Write>(message);
    read::<Finish>(message);
    read::<MakeLink>(message);
    read::<Named>(message);
    read::<MakeDirectories>(message);
    read::<SealDirectories>(message);
    read::<Outcomes<Done>>(message);
    if let Ok(path) = std::str::from_utf8(message)
        && let Some(operation) = Operation::parse(path)
    {
        assert_eq!(operation.path(), path);
    }
}
