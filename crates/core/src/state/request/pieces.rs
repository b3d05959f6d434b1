//! Pieces that come to a lane from coding depots.

use posthaste_types::{ChunkIndex, DepotId};

use crate::state::request::{Lane, Request};

impl Lane {
    /// Returns a lane to a depot at this place, to which nothing was sent yet.
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
    /// Expects a fragment of the chunk at the lane from a coding depot.
    pub(crate) fn await_piece(&mut self, lane: usize, chunk: ChunkIndex) {
        let fed = &mut self.lanes[lane];
        fed.awaited += 1;
        fed.kept = fed.kept.saturating_sub(1);
        fed.is_used = true;
        *self.flying.entry(chunk).or_default() += 1;
    }

    /// Ends the wait for such a fragment, which came or will not.
    pub(crate) fn end_piece(&mut self, lane: usize, chunk: ChunkIndex) {
        self.lanes[lane].awaited -= 1;
        self.end_one(chunk);
    }
}
