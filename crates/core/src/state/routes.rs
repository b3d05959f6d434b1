//! Way to a depot that is being tried.

use posthaste_types::{DepotId, RequestId, Timestamp, record};

record! {
    /// Way being tried.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub(crate) struct Trial {
        pub(crate) depot: DepotId,
        /// Place among the ways.
        pub(crate) way: usize,
        /// Time at which it ends, whatever its result.
        pub(crate) until: Timestamp,
        pub(crate) samples: u32,
        /// Request with whose data it is tried.
        pub(crate) request: RequestId,
    }
}
