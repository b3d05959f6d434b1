use posthaste_types::{Bytes, record};

use crate::state::Request;

record! {
    /// Quota of a request on a depot by a plan over time.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub(crate) struct Quota {
        /// Fragments, or whole chunks at the destination, that it may hold in the end.
        pub(crate) pieces: u32,
        /// True if it was fed before the plan.
        pub(crate) was_active: bool,
    }
}

impl Request {
    /// Returns the pieces that a plan in force still gives a lane beyond those held and on their
    /// way there; none without a plan.
    pub(crate) fn quota_left(&self, lane: usize) -> Option<u32> {
        let fed = &self.lanes[lane];
        let coming = fed.in_flight.saturating_add(fed.awaited);
        let has = self.replica.stored(lane).0.saturating_add(coming);
        fed.quota.map(|quota| quota.pieces.saturating_sub(has))
    }

    /// Returns that quota in bytes, including what is on its way;
    /// [`posthaste_plan::Lane::NO_QUOTA`] without a plan.
    pub(crate) fn quota_bytes(&self, lane: usize) -> Bytes {
        let Some(quota) = self.lanes[lane].quota else {
            return posthaste_plan::Lane::NO_QUOTA;
        };
        let pieces = quota.pieces.saturating_sub(self.replica.stored(lane).0);
        self.piece(lane).times(u64::from(pieces))
    }

    /// Returns the size of a lane's piece of a chunk. The only chunk of a small dataset may be
    /// smaller than others.
    pub(crate) fn piece(&self, lane: usize) -> Bytes {
        let chunk = self.spec.chunk_size.min(self.spec.bytes.max(Bytes::new(1)));
        if self.is_destination(lane) {
            chunk
        } else {
            self.spec.code.fragment_size(chunk)
        }
    }
}
