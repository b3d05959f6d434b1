use alloc::string::String;
use core::{fmt, time::Duration};

use posthaste_types::{Bytes, ChunkIndex, DepotId, record};

record! {
    /// Reason for a failure in the hands, as far as the mind decides by it.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
    pub enum Fault {
        /// No connection, or no progress for too long. May pass.
        0 = Unreachable,
        /// The depot has no space left for us.
        1 = Full,
        /// The depot rejects our credential, or its key is not the pinned one.
        2 = Unauthenticated,
        /// The bytes arrived with another digest; the depot discarded them.
        3 = Corrupt,
        /// The depot asks us to come back later.
        4 = Busy,
        /// A source file changed after the dataset was sealed.
        5 = SourceChanged,
        /// A source file vanished after the dataset was sealed.
        6 = SourceVanished,
        /// A source file can't be read.
        7 = SourceUnreadable,
        /// Any other failure; treated as temporary a bounded number of times.
        8 = Other,
        /// Two sources of a stage-in differ in content.
        96 = SourcesDiffer,
        /// The destination can't be written.
        97 = Unwritable,
        /// A name is occupied at the destination, by another of its files or by something else.
        98 = NamesMeet,
        /// A source can't be read now, for a reason that says nothing of its files: its disk or the
        /// server behind it fails, or this machine has no descriptors or memory left. May pass.
        99 = SourceStalled,
        /// A source file can't be removed, and won't be until somebody changes its rights.
        100 = Unremovable,
        /// A source file can't be removed now: it is open for writing elsewhere, or its disk fails.
        /// May pass.
        101 = SourceBusy,
    }
}

impl Fault {
    /// Returns whether a retry may succeed with nothing changed by anybody.
    #[must_use]
    pub const fn may_pass(self) -> bool {
        match self {
            Self::Unreachable
            | Self::Busy
            | Self::SourceStalled
            | Self::SourceBusy
            | Self::Other => true,
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

    /// Returns whether the source, not the depot, is at fault: no other depot can help.
    #[must_use]
    pub const fn is_of_source(self) -> bool {
        match self {
            Self::SourceChanged
            | Self::SourceVanished
            | Self::SourceUnreadable
            | Self::SourcesDiffer
            | Self::Unremovable
            | Self::SourceBusy => true,
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
            Self::SourceBusy => "a source file can't be removed now",
            Self::Unwritable => "it can't be written where it goes",
            Self::SourceStalled => "the source can't be read now",
            Self::NamesMeet => "one of its names is taken where it goes",
            Self::SourcesDiffer => "it holds something else than another source",
            Self::Other => "the log says what failed",
        })
    }
}

record! {
    /// A source file that was left out of a dataset: it changed, vanished or became unreadable
    /// during the read.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Omission {
        /// Place in the list of files.
        pub file: u64,
        /// Size in the listing.
        pub bytes: Bytes,
        /// Reason.
        pub fault: Fault,
        /// Description with the file's name, for people.
        pub what: String,
    }
}

record! {
    /// A source file that may have to be left out.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct FileAtFault {
        /// Omission that would result.
        pub omission: Omission,
        /// First chunk with bytes of the file.
        pub first: ChunkIndex,
        /// Last chunk with bytes of the file.
        pub last: ChunkIndex,
        /// True if the request comes from a backup: the fate of its source since then is unknown.
        pub is_restored: bool,
    }
}

record! {
    /// Result of one depot that sent a fragment to a destination.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct GiverEnd {
        /// The depot.
        pub depot: DepotId,
        /// Reason why the fragment did not come; none on success. A fault of the source means that
        /// the depot does not hold it.
        pub fault: Option<Fault>,
        /// Duration.
        pub span: Duration,
    }
}
