use alloc::{string::String, vec::Vec};
use posthaste_types::{Bytes, Code, DepotId, Timestamp, record};

use super::Reason;

record! {
    /// When the source may be removed from scratch.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum ReleasePolicy {
        /// Never: the user keeps it.
        0 = Never,
        /// As soon as the dataset is safe.
        1 = WhenSafe,
    }
}

record! {
    /// A user let it wait: nothing of it is begun until somebody lets it go on.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Pause {
        /// Who.
        pub by: String,
        /// Since when.
        pub since: Timestamp,
    }
}

impl Pause {
    /// The word people and programs know the state by of what would go on if nobody let it wait.
    pub const STATE: &'static str = "paused";

    /// Why what waits is late.
    pub(crate) fn late(&self, finish: Option<Timestamp>, deadline: Timestamp) -> Reason {
        Reason::PausedLate {
            by: self.by.clone(),
            since: self.since,
            finish,
            deadline,
        }
    }
}

record! {
    /// A stage-out as the mind sees it: a sealed dataset, and by when it must be safe.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct RequestSpec {
        /// Size of the dataset's byte stream.
        pub bytes: Bytes,
        /// Files in the dataset.
        pub files: u64,
        /// Size of every chunk but the last.
        pub chunk_size: Bytes,
        /// min(purge deadline, the user's, the centre's): when the dataset must be safe.
        pub deadline: Timestamp,
        /// How chunks are coded on depots; its parity is the number of depots that may be lost.
        pub code: Code,
        /// Depots that may hold fragments, in the user's order of preference.
        pub via: Vec<DepotId>,
        /// The destinations, where they are endpoints that take chunks themselves: the direct path. It is
        /// delivered when each of them has all of it.
        pub destinations: Vec<DepotId>,
        /// Whether the source is removed once safe.
        pub release: ReleasePolicy,
        /// Take the request even if the deadline can't be met, and do what can be done.
        pub best_effort: bool,
    }
}

impl RequestSpec {
    /// Number of chunks. Saturates at `u32::MAX`, which no admitted dataset reaches.
    #[must_use]
    pub fn chunks(&self) -> u32 {
        u32::try_from(self.bytes.pieces(self.chunk_size)).unwrap_or(u32::MAX)
    }

    /// Size of chunk `chunk`: the chunk size, or what is left for the last one.
    #[must_use]
    pub fn chunk_bytes(&self, chunk: u32) -> Bytes {
        let start = self.chunk_size.times(u64::from(chunk));
        (self.bytes - start).min(self.chunk_size)
    }
}
