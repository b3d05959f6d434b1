//! Holdings of one depot.

use posthaste_types::{ChunkIndex, FragmentIndex};

use crate::state::replica::{NOTHING, Replica, WHOLE};

impl Replica {
    /// Returns the lanes whose depots' holdings count now, as a mask.
    pub(crate) fn live(&self) -> u64 {
        let live = self.columns.iter().enumerate();
        let live = live.filter(|(_, column)| column.is_live);
        live.fold(0, |mask, (lane, _)| mask | 1 << lane)
    }

    pub(crate) fn is_damaged(&self, chunk: ChunkIndex) -> bool {
        self.damaged.contains(chunk.get())
    }

    /// Returns the fragment of the chunk that the depot has, or had when last heard of.
    pub(crate) fn fragment_at(&self, lane: usize, chunk: ChunkIndex) -> Option<FragmentIndex> {
        match self.columns[lane].at(chunk.get()) {
            NOTHING => None,
            WHOLE => Some(FragmentIndex::WHOLE),
            fragment => Some(FragmentIndex::new(fragment - 1)),
        }
    }

    /// Returns whether the depot has something of the chunk that counts now.
    pub(crate) fn counts(&self, lane: usize, chunk: ChunkIndex) -> bool {
        self.columns[lane].is_live && self.holds(lane, chunk)
    }

    /// Returns the holdings of a depot, in the order of chunks.
    pub(crate) fn held(
        &self,
        lane: usize,
    ) -> impl Iterator<Item = (ChunkIndex, FragmentIndex)> + '_ {
        (0u32..)
            .zip(&self.columns[lane].held)
            .filter(|&(_, &held)| held != NOTHING)
            .map(|(chunk, &held)| {
                let fragment = if held == WHOLE { WHOLE } else { held - 1 };
                (ChunkIndex::new(chunk), FragmentIndex::new(fragment))
            })
    }
}
