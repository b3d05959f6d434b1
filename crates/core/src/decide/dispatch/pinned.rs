//! Depots that must hold their share of every chunk: a fragment is kept for each of them that can
//! take one. If one can't, others get what the code needs, and it gets a copy later.

use alloc::vec::Vec;
use posthaste_types::{ChunkIndex, FragmentIndex};

use crate::decide::dispatch::placing::Placing;

impl Placing<'_> {
    /// Returns the wanted fragments that no live depot holds.
    pub(super) fn lost(&self, chunk: ChunkIndex, wanted: u64) -> u64 {
        if self.request.uncommon.pinned.is_empty() {
            return wanted;
        }
        let is_whole = |lane: usize| {
            let depot = self.request.lanes[lane].depot;
            self.transfers.get(depot, self.id, chunk).is_some()
                || self.pushes.get(depot, self.id, chunk).is_some()
        };
        match self.request.destinations().any(is_whole) {
            // All of it is coming.
            true => 0,
            false => wanted & self.request.replica.lost(chunk),
        }
    }

    /// Returns the fragments among which the next to send is: those that lie nowhere come first.
    pub(super) fn next_wanted(&self, chunk: ChunkIndex, wanted: u64) -> u64 {
        match self.lost(chunk, wanted) {
            0 => wanted,
            lost => lost,
        }
    }

    /// Returns copies that pinned depots lack beyond the fragments that are wanted anyway. The mask
    /// `coming` holds the lanes to which a fragment is on its way.
    pub(super) fn for_pinned(&self, chunk: ChunkIndex, wanted: u64, coming: u64) -> u64 {
        let replica = &self.request.replica;
        let without = replica.without(chunk, replica.pinned() & !coming);
        let more = without.count_ones().saturating_sub(wanted.count_ones());
        replica.copies(chunk, wanted, more)
    }

    /// Returns the lanes that may get a fragment of this chunk, of which so many are wanted.
    pub(super) fn free(&self, chunk: ChunkIndex, wanted: u64, taken: u64) -> Vec<usize> {
        let pinned = self.request.pinned_lanes();
        let open = self.open_pinned(chunk, taken);
        let is_kept_free = self.is_kept_free(chunk, wanted, taken);
        let among = self.among(chunk);
        let lanes = self.request.depot_lanes();
        let may = |&lane: &usize| match pinned >> lane & 1 == 1 {
            true => taken >> lane & 1 == 0,
            false => !is_kept_free && self.is_free(chunk, taken | open, lane, among),
        };
        lanes.filter(may).collect()
    }

    /// Returns whether pinned depots get all wanted fragments of the chunk.
    pub(super) fn is_kept_free(&self, chunk: ChunkIndex, wanted: u64, taken: u64) -> bool {
        let lost = self.lost(chunk, wanted).count_ones();
        lost <= self.open_pinned(chunk, taken).count_ones()
    }

    /// Returns the pinned lanes that have nothing of the chunk and could take something, as a mask.
    pub(super) fn open_pinned(&self, chunk: ChunkIndex, taken: u64) -> u64 {
        let pinned = self.request.pinned_lanes();
        if pinned == 0 {
            return 0;
        }
        let bytes = self.request.replica.bytes_of(chunk, FragmentIndex::new(0));
        let may = |lane: &usize| {
            let is_missing = pinned & !taken & 1 << lane != 0;
            is_missing && self.is_fed(*lane, bytes)
        };
        let open = (0..self.request.lanes.len()).filter(may);
        open.fold(0, |mask, lane| mask | 1 << lane)
    }
}
