use posthaste_types::{RequestId, Timestamp, record};

use crate::state::Release;

record! {
    /// Export: from scratch, or from depots, to an address elsewhere.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub(crate) struct Outward {
        /// True if its source should be removed once all of it has arrived.
        pub(crate) releases: bool,
        pub(crate) release: Release,
        /// Time at which a failed release is tried again.
        pub(crate) release_at: Option<Timestamp>,
        pub(crate) failures: u32,
        /// Request from whose depots it is read, if it is not on scratch.
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

    /// Returns whether its source is still to be removed.
    pub(crate) fn waits(&self) -> bool {
        self.releases && matches!(self.release, Release::Pending | Release::Commanded)
    }
}
