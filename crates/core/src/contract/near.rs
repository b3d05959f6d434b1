//! Reasons why a stage-in waits at depots near the centre, in words.

use core::fmt;

use posthaste_types::{Timestamp, record};

record! {
    /// Reason of a decision about depots near the centre on which a stage-in may wait.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum NearReason {
        /// From its sources, data would come before it is welcome; from near depots it can come
        /// later.
        0 = ComesEarly {
            /// Latest start from its sources.
            begin_by: Timestamp,
            /// Earliest welcome time.
            not_before: Timestamp,
        },
        /// The stage-in is over: nobody will read what waited at the near depots.
        1 = NotNeeded,
    }
}

impl fmt::Display for NearReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ComesEarly {
                begin_by,
                not_before,
            } => write!(
                f,
                "straight from its sources it would have to begin by {begin_by}, and it is welcome only from {not_before} on"
            ),
            Self::NotNeeded => f.write_str("the stage-in is over"),
        }
    }
}
