use posthaste_types::{RequestId, record};

use crate::contract::ArrivalSpec;

record! {
    /// Onward copy of a request from its depots to an address.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub(crate) struct Onward {
        /// Number of the copy.
        pub(crate) id: RequestId,
        /// Specification, until both are answered together.
        pub(crate) spec: Option<ArrivalSpec>,
    }
}
