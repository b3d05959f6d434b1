use posthaste_types::{RequestId, record};

use crate::contract::ArrivalSpec;

record! {
    /// As what a request goes on from its depots to an address.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub(crate) struct Onward {
        /// The number of that.
        pub(crate) id: RequestId,
        /// What is wanted of it, until both are answered together.
        pub(crate) spec: Option<ArrivalSpec>,
    }
}
