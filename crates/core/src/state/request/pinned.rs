//! Pinned depots of a request.

use alloc::vec::Vec;
use posthaste_types::{ChunkIndex, DepotId};

use crate::state::request::{Lane, Request};

impl Request {
    /// Returns the lanes to depots that must hold their share of every chunk, as a mask.
    pub(crate) fn pinned_lanes(&self) -> u64 {
        match self.uncommon.pinned.is_empty() {
            true => 0,
            false => mask(&self.lanes, &self.uncommon.pinned),
        }
    }

    /// Returns whether the depot of a lane must hold its share of every chunk.
    pub(crate) fn is_pinned(&self, lane: usize) -> bool {
        self.uncommon.pinned.contains(&self.lanes[lane].depot)
    }

    /// Removes a depot's pin. Returns whether it had one.
    pub(crate) fn unpin(&mut self, depot: DepotId) -> bool {
        let before = self.uncommon.pinned.len();
        self.uncommon.pinned.retain(|pinned| *pinned != depot);
        if self.uncommon.pinned.len() == before {
            return false;
        }
        self.uncommon.pin_trouble = None;
        let lanes = self.pinned_lanes();
        self.replica.pin(lanes);
        let open: Vec<ChunkIndex> = self.stripes.keys().copied().collect();
        open.into_iter().for_each(|chunk| self.replica.open(chunk));
        true
    }
}

/// Returns the lanes to any of these depots, as a mask.
pub(super) fn mask(lanes: &[Lane], depots: &[DepotId]) -> u64 {
    let lanes = lanes.iter().enumerate();
    let named = lanes.filter(|(_, lane)| depots.contains(&lane.depot));
    named.fold(0, |mask, (place, _)| mask | 1 << place)
}
