//! Chunks that their source can no longer give unchanged.

use posthaste_types::ChunkIndex;

use crate::state::replica::{NOTHING, Replica};

impl Replica {
    /// Returns whether depots have enough of the chunk to rebuild it without its source.
    fn has_enough(&self, chunk: ChunkIndex) -> bool {
        self.have(chunk.get()).fragments.count_ones() >= u32::from(self.code.data())
    }

    /// Returns whether depots can rebuild what the chunk lacks. The giving lanes must hold enough
    /// of it, and enough empty lanes must take the rebuilt fragments.
    pub(crate) fn is_rebuildable(&self, chunk: ChunkIndex, givers: u64, takers: u64) -> bool {
        let lanes = (0..self.columns.len()).filter(|&lane| !self.columns[lane].is_destination);
        let (mut given, mut empty) = (0u64, 0u64);
        for lane in lanes {
            let fragment = self.fragment_at(lane, chunk);
            let fragment = fragment.filter(|_| self.columns[lane].is_live);
            if let Some(fragment) = fragment.filter(|_| givers >> lane & 1 == 1) {
                given |= 1u64.unbounded_shl(u32::from(fragment.get()));
            }
            empty |= u64::from(!self.holds(lane, chunk)) << lane;
        }
        let (lacking, places) = (self.lacking(chunk).count_ones(), empty.count_ones());
        // Only the centre sends to a destination that stands in for a depot before all is safe.
        if lacking > places && self.columns.iter().any(|column| column.is_destination) {
            return false;
        }
        // If all depots together are too few, others may come.
        let wanted = lacking.min(places);
        given.count_ones() >= u32::from(self.code.data()) && (empty & takers).count_ones() >= wanted
    }

    /// Leaves the chunk to the depots, as long as they can rebuild it: it waits for no send.
    /// Returns whether that is new.
    pub(crate) fn leave(&mut self, chunk: ChunkIndex) -> bool {
        let is_news = !self.left.contains(chunk.get());
        self.left.insert(chunk.get());
        self.open(chunk);
        is_news
    }

    /// Returns the chunk to the centre, which reads it as its source is now: no depot rebuilds its
    /// earlier content.
    pub(crate) fn take_back(&mut self, chunk: ChunkIndex) {
        self.left.remove(chunk.get());
    }

    /// Leaves the chunk to the depots for good, with all that were left to them before: some of it
    /// was removed from its source. Returns whether that is new.
    pub(crate) fn lose_at_source(&mut self, chunk: ChunkIndex) -> bool {
        self.is_left_for_good = true;
        self.leave(chunk)
    }

    /// Returns whether the chunk is left to the depots.
    pub(crate) fn is_left(&self, chunk: ChunkIndex) -> bool {
        let is_left = self.left.contains(chunk.get());
        is_left && (self.is_left_for_good || self.has_enough(chunk))
    }

    /// Returns whether some chunk was left to the depots.
    pub(crate) fn has_left(&self) -> bool {
        self.left.len() > 0
    }

    /// Discards what is stored of the chunk, as its content changed.
    pub(crate) fn renew(&mut self, chunk: ChunkIndex) {
        let at = chunk.get();
        self.left.remove(at);
        let lacked = self.lacks(at, self.have(at));
        let mut was_held = false;
        for lane in 0..self.columns.len() {
            let Some(fragment) = self.fragment_at(lane, chunk) else {
                continue;
            };
            let bytes = self.bytes_of(chunk, fragment);
            let column = &mut self.columns[lane];
            column.held[at as usize] = NOTHING;
            column.stored -= 1;
            column.stored_bytes -= bytes;
            column.held_unsafe -= u32::from(lacked > 0);
            was_held = true;
        }
        if was_held {
            self.damaged.insert(at);
        }
        let lacks = self.lacks(at, self.have(at));
        self.safe -= u32::from(lacked == 0);
        self.safe += u32::from(lacks == 0);
        self.missing = self.missing + u64::from(lacks) - u64::from(lacked);
        self.put_back(chunk);
    }
}
