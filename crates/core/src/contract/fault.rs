use alloc::string::String;
use core::{fmt, time::Duration};

use posthaste_types::{Bytes, ChunkIndex, DepotId, record};

record! {
    /// Why something the hands tried did not work, as far as the mind decides by it.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
    pub enum Fault {
        /// No connection, or nothing moved for too long. May pass.
        0 = Unreachable,
        /// The depot has no space left for us.
        1 = Full,
        /// The depot does not accept our credential, or its key is not the pinned one.
        2 = Unauthenticated,
        /// The bytes arrived with another digest; the depot did not keep them.
        3 = Corrupt,
        /// The depot asks us to come back later.
        4 = Busy,
        /// A source file changed after the dataset was sealed.
        5 = SourceChanged,
        /// A source file vanished after the dataset was sealed.
        6 = SourceVanished,
        /// A source file can't be read.
        7 = SourceUnreadable,
        /// Anything else; treated as temporary a bounded number of times.
        8 = Other,
        /// Two sources of a stage-in do not hold the same.
        96 = SourcesDiffer,
        /// What came can't be written where it goes.
        97 = Unwritable,
        /// One of its names is taken where it goes: by another of its files that has the same one there, or by something else.
        98 = NamesMeet,
        /// A source can't be read now, for a reason that says nothing of its files: its disk or the server behind it fails, or this machine
        /// has no descriptors or memory left. May pass.
        99 = SourceStalled,
        /// A source file can't be removed.
        100 = Unremovable,
    }
}

impl Fault {
    /// Whether whoever is asked may do it another time, with nothing changed by anybody.
    #[must_use]
    pub const fn may_pass(self) -> bool {
        match self {
            Self::Unreachable | Self::Busy | Self::SourceStalled | Self::Other => true,
            Self::Full
            | Self::Unauthenticated
            | Self::Corrupt
            | Self::SourceChanged
            | Self::SourceVanished
            | Self::SourceUnreadable
            | Self::SourcesDiffer
            | Self::Unwritable
            | Self::NamesMeet
            | Self::Unremovable => false,
        }
    }

    /// Whether the source, not the depot, is at fault: no other depot can help.
    #[must_use]
    pub const fn is_of_source(self) -> bool {
        match self {
            Self::SourceChanged
            | Self::SourceVanished
            | Self::SourceUnreadable
            | Self::SourcesDiffer
            | Self::Unremovable => true,
            Self::Unreachable
            | Self::Full
            | Self::Unauthenticated
            | Self::Corrupt
            | Self::Busy
            | Self::Unwritable
            | Self::NamesMeet
            | Self::SourceStalled
            | Self::Other => false,
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unreachable => "it can't be reached",
            Self::Full => "it has no space left",
            Self::Unauthenticated => "it does not accept our credential or its key changed",
            Self::Corrupt => {
                "other bytes came than were to: damaged on the way, or changed where they are from"
            }
            Self::Busy => "it is busy",
            Self::SourceChanged => "a source file changed",
            Self::SourceVanished => "a source file vanished",
            Self::SourceUnreadable => "a source file can't be read",
            Self::Unremovable => "a source file can't be removed",
            Self::Unwritable => "it can't be written where it goes",
            Self::SourceStalled => "the source can't be read now",
            Self::NamesMeet => "one of its names is taken where it goes",
            Self::SourcesDiffer => "it holds something else than another source",
            Self::Other => "it failed",
        })
    }
}

record! {
    /// A file of a source that was left out of a dataset: it changed, vanished or could not be read while it was read.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Omission {
        /// Its place in the list of files.
        pub file: u64,
        /// Its size as it was listed.
        pub bytes: Bytes,
        /// Why.
        pub fault: Fault,
        /// What was found, with its name: for people.
        pub what: String,
    }
}

record! {
    /// A file of a source that may have to be left out.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct FileAtFault {
        /// What it would be then.
        pub omission: Omission,
        /// The first chunk that holds something of it.
        pub first: ChunkIndex,
        /// The last one.
        pub last: ChunkIndex,
        /// The request comes from a backup: what became of its source since, nobody knows.
        pub is_restored: bool,
    }
}

record! {
    /// How one depot did that sent a fragment to a destination.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct GiverEnd {
        /// The depot.
        pub depot: DepotId,
        /// Why the fragment did not come; none where it did. A fault of the source says that the depot
        /// does not hold it.
        pub fault: Option<Fault>,
        /// How long it took.
        pub span: Duration,
    }
}
