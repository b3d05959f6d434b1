//! Content and worth of a chunk: it is safe once as many of its holders may be lost as its code has
//! parity. A destination that has it whole is one of them, however much it has.

use crate::state::replica::{NOTHING, Replica, WHOLE};

/// Counted content of one chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Have {
    /// Fragments at depots, as a mask.
    pub(super) fragments: u64,
    /// True if a destination has all of it.
    pub(super) is_whole: bool,
    /// Destinations that have all of it and fail with no other holder.
    pub(super) holders: u32,
}

impl Have {
    /// Counts the holders.
    pub(super) fn count(self) -> u32 {
        self.fragments.count_ones() + self.holders
    }
}

impl Replica {
    /// Returns what counts of the chunk.
    pub(super) fn have(&self, chunk: u32) -> Have {
        let nothing = Have {
            fragments: 0,
            is_whole: false,
            holders: 0,
        };
        let live = self.columns.iter().enumerate();
        let live = live.filter(|(_, column)| column.is_live);
        live.fold(nothing, |have, (lane, column)| {
            self.with(have, lane, column.at(chunk))
        })
    }

    /// Returns that, with what a lane holds besides.
    pub(super) fn with(&self, mut have: Have, lane: usize, held: u8) -> Have {
        match held {
            NOTHING => {}
            WHOLE => {
                have.is_whole = true;
                have.holders += u32::from(self.holders >> lane & 1 == 1);
            }
            fragment => have.fragments |= 1u64.unbounded_shl(u32::from(fragment - 1)),
        }
        have
    }

    /// Returns how many losses a chunk must survive now.
    pub(super) fn losses(&self) -> u32 {
        let wanted = u32::from(self.code.total());
        let wanted = self.enough.map_or(wanted, |enough| enough.min(wanted));
        wanted.saturating_sub(u32::from(self.code.data()))
    }

    /// Returns whether one destination that has all of a chunk is enough for it, as no loss must be
    /// survived.
    pub(crate) fn is_safe_whole(&self) -> bool {
        self.losses() == 0
    }

    /// Returns the destinations that count for the safety of chunks that they have whole, as a
    /// mask.
    pub(crate) fn holders(&self) -> u64 {
        self.holders
    }

    /// Returns whether a whole chunk at the destination of this lane counts for its safety.
    pub(crate) fn is_holder(&self, lane: usize) -> bool {
        self.is_safe_whole() || self.holders >> lane & 1 == 1
    }

    /// Sets the destinations that fail with no depot and none of each other. Visits every chunk if
    /// that is new; those being sent must be taken out of `todo` again by [`Replica::open`].
    pub(crate) fn set_holders(&mut self, holders: u64) {
        let holders = holders & self.lanes();
        let is_news = core::mem::replace(&mut self.holders, holders) != holders;
        if is_news && self.columns.iter().any(|column| column.stored > 0) {
            self.recount(0, &[]);
        }
    }
}
