//! Depots that must hold their share of every chunk, whatever the others hold.

use posthaste_types::ChunkIndex;

use crate::state::replica::{Replica, WHOLE, lowest};

impl Replica {
    /// Sets the lanes that must hold something of every chunk from now on. Returns how many chunks
    /// lost their safety by that. Visits every chunk; those being sent must be taken out of `todo`
    /// again by [`Replica::open`].
    pub(crate) fn pin(&mut self, lanes: u64) -> u32 {
        if self.pinned == lanes {
            return 0;
        }
        let safe = self.safe;
        self.pinned = lanes & self.lanes();
        self.recount(0, &[]);
        safe.saturating_sub(self.safe)
    }

    /// Returns the lanes that must hold something of every chunk, as a mask.
    pub(crate) fn pinned(&self) -> u64 {
        self.pinned
    }

    /// Returns whether a destination has all of the chunk, so that only depots may lack anything of
    /// it.
    pub(super) fn is_for_copies(&self, chunk: u32) -> bool {
        let mut ends = self.columns.iter().filter(|column| column.is_destination);
        ends.any(|column| column.is_live && column.at(chunk) == WHOLE)
    }

    /// Returns all lanes, as a mask.
    pub(super) fn lanes(&self) -> u64 {
        let count = u32::try_from(self.columns.len()).unwrap_or(64).min(64);
        u64::MAX.checked_shr(64 - count).unwrap_or(0)
    }

    /// Counts these lanes that hold nothing of the chunk that counts.
    pub(super) fn lacks_of(&self, chunk: u32, lanes: u64) -> u32 {
        self.without(ChunkIndex::new(chunk), lanes).count_ones()
    }

    /// Returns these lanes that hold nothing of the chunk that counts, as a mask.
    pub(crate) fn without(&self, chunk: ChunkIndex, lanes: u64) -> u64 {
        if lanes == 0 {
            return 0;
        }
        let holds = |lane: &usize| lanes >> lane & 1 == 1 && self.counts(*lane, chunk);
        let holding = (0..self.columns.len()).filter(holds);
        holding.fold(lanes, |left, lane| left & !(1 << lane))
    }

    /// Returns so many fragments of a chunk for pinned depots, beside those given as a mask: those
    /// that lie nowhere come first.
    pub(crate) fn copies(&self, chunk: ChunkIndex, beside: u64, count: u32) -> u64 {
        if count == 0 {
            return 0;
        }
        let have = self.have(chunk.get()).fragments;
        let (lost, held) = (self.all() & !have & !beside, self.all() & have & !beside);
        let of_lost = count.min(lost.count_ones());
        lowest(lost, of_lost) | lowest(held, count - of_lost)
    }
}
