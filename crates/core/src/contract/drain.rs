//! Draining of depots that are to be switched off, and its reasons.

use core::fmt;
use posthaste_types::record;

record! {
    /// Draining of a depot that is to be switched off.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
    pub enum Drain {
        /// Not drained.
        #[default]
        0 = Off,
        /// Nothing new goes there; stored data stays and is served until it expires.
        1 = Keep,
        /// Like `Keep`, and data that lies only there moves to other depots.
        2 = Move,
    }
}

impl Drain {
    /// Returns the name used in the API and in logs.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Keep => "keep",
            Self::Move => "move",
        }
    }
}

record! {
    /// Progress of a depot's draining.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct DrainView {
        /// Treatment of stored data.
        pub drain: Drain,
        /// True if the depot itself announces its end.
        pub is_own: bool,
        /// Fragments in flight to the depot.
        pub under_way: u64,
        /// Fragments still of use that lie nowhere else, at the last count.
        pub only_there: Option<u64>,
    }
}

impl DrainView {
    /// Returns whether the depot may be switched off without loss.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.under_way == 0 && self.only_there == Some(0)
    }
}

record! {
    /// Reason of a decision about a drained depot.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum DrainReason {
        /// The depot is to be switched off.
        0 = Begun {
            /// Treatment of stored data.
            drain: Drain,
            /// True if the depot itself announces it.
            is_own: bool,
        },
        /// Nobody wants to switch the depot off any more.
        1 = Ended,
        /// Data at the drained depot moves to others.
        2 = Leaves,
        /// All data of use at the depot lies elsewhere too.
        3 = NothingOnlyThere,
        /// The depot is a destination: its requested data still goes there.
        4 = IsDestination,
    }
}

impl fmt::Display for DrainReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (who, then) = match self {
            Self::Begun { drain, is_own } => (
                if *is_own {
                    "it says that it ends"
                } else {
                    "it is to be switched off"
                },
                match drain {
                    Drain::Off | Drain::Keep => {
                        ": nothing new goes there, and what it holds stays until it expires"
                    }
                    Drain::Move => {
                        ": nothing new goes there, and what lies only there goes on to others"
                    }
                },
            ),
            Self::Ended => ("it is no longer to be switched off", ""),
            Self::Leaves => ("the depot where it lies is to be switched off", ""),
            Self::NothingOnlyThere => ("whatever it holds lies elsewhere too", ""),
            Self::IsDestination => (
                "it is to be switched off",
                ", but this is wanted there and still goes there",
            ),
        };
        write!(f, "{who}{then}")
    }
}
