use posthaste_types::{RequestId, Timestamp, record};

use super::Release;

record! {
    /// A stage-in that goes the other way: from scratch, or from depots, to an address elsewhere.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub(crate) struct Outward {
        /// Whether its source is to be removed once all of it is there.
        pub(crate) releases: bool,
        pub(crate) release: Release,
        /// When a release that failed is tried again.
        pub(crate) release_at: Option<Timestamp>,
        pub(crate) failures: u32,
        /// The request from whose depots it is read, where it is not on scratch.
        pub(crate) of: Option<RequestId>,
    }
}

impl Outward {
    pub(crate) fn new(releases: bool) -> Self {
        Self {
            releases,
            release: Release::Pending,
            release_at: None,
            failures: 0,
            of: None,
        }
    }

    /// Whether its source is still to be removed.
    pub(crate) fn waits(&self) -> bool {
        self.releases && matches!(self.release, Release::Pending | Release::Commanded)
    }
}
