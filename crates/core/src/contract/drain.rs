//! What a depot does that is to be switched off, and why something is done about it.

use core::fmt;
use posthaste_types::record;

record! {
    /// Whether a depot is being drained: it is to be switched off.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
    pub enum Drain {
        /// It is not.
        #[default]
        0 = Off,
        /// Nothing new goes there; what lies there stays and is served until it expires.
        1 = Keep,
        /// The same, and what lies only there goes on to other depots.
        2 = Move,
    }
}

impl Drain {
    /// The word programs know it by.
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
    /// How far the draining of a depot is.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct DrainView {
        /// What becomes of what it holds.
        pub drain: Drain,
        /// Whether the depot itself says that it ends.
        pub is_own: bool,
        /// Fragments on their way to it.
        pub under_way: u64,
        /// Fragments that somebody may still want and that lie nowhere else, when last counted.
        pub only_there: Option<u64>,
    }
}

impl DrainView {
    /// Whether it may be switched off, and nobody misses anything.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.under_way == 0 && self.only_there == Some(0)
    }
}

record! {
    /// Why something is decided about a depot that is drained.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum DrainReason {
        /// It is to be switched off.
        0 = Begun {
            /// What becomes of what it holds.
            drain: Drain,
            /// Whether the depot itself says so.
            is_own: bool,
        },
        /// Nobody wants to switch it off any more.
        1 = Ended,
        /// What lies at such a depot goes on to others.
        2 = Leaves,
        /// Whatever lies there that anybody may want lies elsewhere too.
        3 = NothingOnlyThere,
        /// It is a destination: what is wanted there still goes there.
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
