//! Reasons of decisions about a depot to which a request is pinned.

use alloc::string::String;
use core::fmt;
use posthaste_types::{Bytes, Code, record};

record! {
    /// Reason why a pinned depot does not hold its share, or the consequence of that.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub enum PinReason {
        /// The depot is forbidden too.
        0 = Forbidden {
            /// Name of the depot.
            name: String,
        },
        /// More depots are pinned than a chunk has fragments.
        1 = TooMany {
            /// Pinned depots.
            pinned: u32,
            /// The code.
            code: Code,
        },
        /// The depot is a destination, which gets all of it.
        2 = IsDestination {
            /// Name of the depot.
            name: String,
        },
        /// The depot does not answer.
        3 = Down {
            /// Name of the depot.
            name: String,
        },
        /// The depot has no room.
        4 = Full {
            /// Name of the depot.
            name: String,
            /// Space for what it still must receive.
            needed: Bytes,
            /// Free space.
            free: Bytes,
        },
        /// The depot is outside the hours its owner lends it.
        5 = Closed {
            /// Name of the depot.
            name: String,
        },
        /// The depot is to be switched off.
        6 = Drained {
            /// Name of the depot.
            name: String,
        },
        /// The rest of the budget does not pay for the depot.
        7 = Dear {
            /// Name of the depot.
            name: String,
        },
        /// More pinned depots share a failure domain than the parity covers.
        8 = Together {
            /// Name of one of the depots.
            name: String,
            /// Depots that fail together with it, including itself.
            depots: u32,
            /// The code.
            code: Code,
        },
        /// The machine of the depot has too much load.
        10 = Loaded {
            /// Name of the depot.
            name: String,
        },
        /// The depot's registration was removed.
        9 = Removed {
            /// Name of the depot.
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
