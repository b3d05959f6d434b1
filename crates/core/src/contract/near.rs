//! Why a stage-in waits at depots near the centre, and how people read that.

use alloc::vec::Vec;
use core::fmt;

use posthaste_types::{ChunkIndex, DepotId, SourceId, Timestamp, record};

use super::{Fault, NearDepot};

record! {
    /// What became known of depots near the centre, on which a stage-in may wait.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub enum NearNews {
        /// It may wait at these.
        0 = MayWait {
            /// Those depots, and as what they are read.
            near: Vec<NearDepot>,
        },
        /// One stored a chunk and checked its digest, which is noted.
        1 = Stored {
            /// Read from this source.
            source: SourceId,
            /// This chunk.
            chunk: ChunkIndex,
            /// At this depot.
            depot: DepotId,
        },
        /// One did not take a chunk; its source did give it.
        2 = Failed {
            /// Read from this source.
            source: SourceId,
            /// This chunk.
            chunk: ChunkIndex,
            /// At this depot.
            depot: DepotId,
            /// Why.
            fault: Fault,
        },
    }
}

record! {
    /// Why something was decided about depots near the centre on which a stage-in may wait.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum NearReason {
        /// From its sources it would have to come before it is welcome; from near depots it can come later.
        0 = ComesEarly {
            /// When it would have to begin to come from its sources.
            begin_by: Timestamp,
            /// Since when it is welcome.
            not_before: Timestamp,
        },
        /// The stage-in is over: nobody will read there what waited for it.
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
