//! What comes to a lane from depots that code.

use posthaste_types::{ChunkIndex, DepotId};

use super::{Lane, Request};

impl Lane {
    /// A depot that nothing was sent to yet, at this place among the lanes.
    pub(super) fn new(depot: DepotId, place: usize) -> Self {
        Self {
            depot,
            is_active: false,
            is_used: false,
            asked_at: None,
            in_flight: 0,
            awaited: 0,
            kin: 1 << place,
            kept: 0,
            quota: None,
            tuning: None,
        }
    }
}

impl Request {
    /// A fragment of the chunk will come to the lane from a depot that codes.
    pub(crate) fn await_piece(&mut self, lane: usize, chunk: ChunkIndex) {
        let fed = &mut self.lanes[lane];
        fed.awaited += 1;
        fed.kept = fed.kept.saturating_sub(1);
        fed.is_used = true;
        *self.flying.entry(chunk).or_default() += 1;
    }

    /// It came, or will not.
    pub(crate) fn end_piece(&mut self, lane: usize, chunk: ChunkIndex) {
        self.lanes[lane].awaited -= 1;
        self.end_one(chunk);
    }
}
