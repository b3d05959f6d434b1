//! Why something is decided about a depot that a request is pinned to.

use alloc::string::String;
use core::fmt;
use posthaste_types::{Bytes, Code, record};

record! {
    /// Why a depot that must hold its share of a dataset does not, or what follows from that.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub enum PinReason {
        /// It was forbidden too.
        0 = Forbidden {
            /// Its name.
            name: String,
        },
        /// There are more such depots than fragments of a chunk.
        1 = TooMany {
            /// How many.
            pinned: u32,
            /// The code.
            code: Code,
        },
        /// It is a destination, which gets all of it.
        2 = IsDestination {
            /// Its name.
            name: String,
        },
        /// It does not answer.
        3 = Down {
            /// Its name.
            name: String,
        },
        /// It has no room.
        4 = Full {
            /// Its name.
            name: String,
            /// What it still has to take.
            needed: Bytes,
            /// What it has room for.
            free: Bytes,
        },
        /// It is outside the hours its owner lends it.
        5 = Closed {
            /// Its name.
            name: String,
        },
        /// It is to be switched off.
        6 = Drained {
            /// Its name.
            name: String,
        },
        /// What is left of the budget does not pay it.
        7 = Dear {
            /// Its name.
            name: String,
        },
        /// Such depots fail together, and more of them than the parity covers.
        8 = Together {
            /// The name of one of them.
            name: String,
            /// How many fail together with it, itself among them.
            depots: u32,
            /// The code.
            code: Code,
        },
        /// Its machine has too much to do.
        10 = Loaded {
            /// Its name.
            name: String,
        },
        /// It was removed from the books.
        9 = Removed {
            /// Its name.
            name: String,
        },
    }
}

impl fmt::Display for PinReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Forbidden { name } => {
                write!(f, "depot {name} is pinned and may hold none of it at once")
            }
            Self::TooMany { pinned, code } => write!(
                f,
                "{pinned} depots are pinned and code {code} makes {} fragments, one for each depot",
                code.total()
            ),
            Self::IsDestination { name } => write!(
                f,
                "depot {name} is pinned and a destination, which gets all of it anyway"
            ),
            Self::Down { name } => write!(f, "depot {name} is pinned and does not answer"),
            Self::Full { name, needed, free } => write!(
                f,
                "depot {name} is pinned and has {free} free for the {needed} it must take"
            ),
            Self::Closed { name } => write!(
                f,
                "depot {name} is pinned and outside the hours its owner lends it"
            ),
            Self::Loaded { name } => {
                write!(
                    f,
                    "depot {name} is pinned and its machine has too much to do"
                )
            }
            Self::Drained { name } => {
                write!(f, "depot {name} is pinned and is to be switched off")
            }
            Self::Dear { name } => {
                write!(f, "depot {name} is pinned and the budget does not pay it")
            }
            Self::Together { name, depots, code } => write!(
                f,
                "depot {name} and the others of its site that are pinned fail together, and with code {code} \
                 the loss of {depots} could lose data"
            ),
            Self::Removed { name } => write!(
                f,
                "depot {name} was pinned and is no longer in the books: the others hold the data now"
            ),
        }
    }
}
