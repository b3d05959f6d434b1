use alloc::{string::String, vec::Vec};
use posthaste_types::{Bytes, Code, DepotId, Timestamp, record};

use crate::contract::Reason;

record! {
    /// Rule for removing the source from scratch.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum ReleasePolicy {
        /// Never: the user keeps it.
        0 = Never,
        /// Once the dataset is safe.
        1 = WhenSafe,
    }
}

record! {
    /// A pause by a user: nothing of the request is begun until a user resumes it.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Pause {
        /// Name of the user.
        pub by: String,
        /// Start of the pause.
        pub since: Timestamp,
    }
}

impl Pause {
    /// Name of the state of a paused request, for people and programs.
    pub const STATE: &'static str = "paused";

    /// Returns the reason why a paused request is late.
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
    /// Specification of a stage-out: a sealed dataset and its deadline.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct RequestSpec {
        /// Size of the dataset's byte stream.
        pub bytes: Bytes,
        /// Files in the dataset.
        pub files: u64,
        /// Size of every chunk but the last.
        pub chunk_size: Bytes,
        /// Deadline for safety: the earliest of the purge, the user's and the centre's.
        pub deadline: Timestamp,
        /// Code of the chunks on depots; its parity is the number of depots that may be lost.
        pub code: Code,
        /// Depots that may hold fragments, in the user's order of preference.
        pub via: Vec<DepotId>,
        /// Destinations that take chunks themselves: the direct path. The request is delivered when
        /// each of them has all of it.
        pub destinations: Vec<DepotId>,
        /// Rule for removing the source once safe.
        pub release: ReleasePolicy,
        /// Accepts the request even if the deadline can't be met, and does what is possible.
        pub best_effort: bool,
    }
}

impl RequestSpec {
    /// Returns the number of chunks. Saturates at `u32::MAX`, which no accepted dataset reaches.
    #[must_use]
    pub fn chunks(&self) -> u32 {
        u32::try_from(self.bytes.pieces(self.chunk_size)).unwrap_or(u32::MAX)
    }

    /// Returns the size of chunk `chunk`: the chunk size, or the remainder for the last one.
    #[must_use]
    pub fn chunk_bytes(&self, chunk: u32) -> Bytes {
        let start = self.chunk_size.times(u64::from(chunk));
        (self.bytes - start).min(self.chunk_size)
    }
}
