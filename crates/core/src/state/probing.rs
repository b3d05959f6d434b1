//! Probe in progress.

use posthaste_types::{Bytes, DepotId, RequestId, Timestamp, record};

record! {
    /// Probe in progress.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub(crate) struct Probing {
        /// Depot that sends; none if the centre does.
        pub(crate) from: Option<DepotId>,
        /// Depot that receives it.
        pub(crate) depot: DepotId,
        pub(crate) since: Timestamp,
        /// Most that it may send.
        pub(crate) budget: Bytes,
        /// Request that pays for it; none when a person asked.
        pub(crate) request: Option<RequestId>,
    }
}
