//! Space that depots keep for datasets, as the contract tells it.

use core::fmt;
use posthaste_types::{Bytes, Timestamp, record};

record! {
    /// What became of space that was asked for or given back.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum SpaceNews {
        /// The depot keeps so much for the dataset, what it stores of it included.
        0 = Granted {
            /// How much.
            bytes: Bytes,
            /// Until when.
            until: Timestamp,
        },
        /// It can't keep so much: it keeps what it kept before.
        1 = Refused {
            /// What it could keep, what it stores of the dataset included.
            most: Bytes,
        },
        /// It keeps nothing any more but what it stores.
        2 = Released,
        /// It did not answer, or could not do it: what it keeps is as before, or as asked for.
        3 = Failed,
    }
}

record! {
    /// Why space is reserved, or is not.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum SpaceReason {
        /// So much of the dataset is to lie there.
        0 = Needed {
            /// How much.
            bytes: Bytes,
        },
        /// Nothing more of it goes there.
        1 = Spare,
        /// Others have what is missing.
        2 = Refused {
            /// What was asked for.
            wanted: Bytes,
            /// What there is.
            most: Bytes,
        },
    }
}

impl fmt::Display for SpaceReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Needed { bytes } => write!(f, "{bytes} of it are to lie there"),
            Self::Spare => f.write_str("nothing more of it goes there"),
            Self::Refused { wanted, most } => {
                write!(f, "{wanted} are needed, and what others have leaves {most}")
            }
        }
    }
}
