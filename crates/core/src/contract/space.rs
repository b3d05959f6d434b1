//! Space that depots reserve for datasets, in the contract.

use core::fmt;
use posthaste_types::{Bytes, Timestamp, record};

record! {
    /// Result of a reservation or release of space.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum SpaceNews {
        /// The depot reserves this space for the dataset, including what it stores of it.
        0 = Granted {
            /// Reserved space.
            bytes: Bytes,
            /// End.
            until: Timestamp,
        },
        /// The depot can't reserve that much: its reservation stays as it was.
        1 = Refused {
            /// Most space it could reserve, including what it stores of the dataset.
            most: Bytes,
        },
        /// The depot reserves nothing beyond what it stores.
        2 = Released,
        /// The depot did not answer, or failed: its reservation is as before, or as requested.
        3 = Failed,
    }
}

record! {
    /// Reason why space is reserved, or is not.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum SpaceReason {
        /// So much of the dataset is to lie there.
        0 = Needed {
            /// Space needed.
            bytes: Bytes,
        },
        /// Nothing more of the dataset goes there.
        1 = Spare,
        /// Others occupy the missing space.
        2 = Refused {
            /// Requested space.
            wanted: Bytes,
            /// Available space.
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
