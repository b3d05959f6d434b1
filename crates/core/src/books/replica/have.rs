//! What there is of a chunk, and what that is worth: a chunk is safe once any of those that hold something of it may be
//! lost, as many as its code has parity. A destination that has it whole is one of them, however much it has.

use super::{NOTHING, Replica, WHOLE};

/// What lies where it counts of one chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Have {
    /// Fragments at depots, as a mask.
    pub(super) fragments: u64,
    /// A destination has all of it.
    pub(super) is_whole: bool,
    /// Destinations that have all of it and fail with nobody else.
    pub(super) holders: u32,
}

impl Have {
    /// How many hold something of it.
    pub(super) fn count(self) -> u32 {
        self.fragments.count_ones() + self.holders
    }
}

impl Replica {
    /// What counts of the chunk.
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

    /// The same, with what a lane holds besides.
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

    /// How many losses a chunk is to survive now.
    pub(super) fn losses(&self) -> u32 {
        let wanted = u32::from(self.code.total());
        let wanted = self.enough.map_or(wanted, |enough| enough.min(wanted));
        wanted.saturating_sub(u32::from(self.code.data()))
    }

    /// Whether one destination that has all of a chunk is enough for it: where no loss is to be survived.
    pub(crate) fn is_safe_whole(&self) -> bool {
        self.losses() == 0
    }

    /// Destinations that count for the safety of what they have whole, as a mask.
    pub(crate) fn holders(&self) -> u64 {
        self.holders
    }

    /// Whether a whole chunk at the destination of this lane counts for its safety.
    pub(crate) fn is_holder(&self, lane: usize) -> bool {
        self.is_safe_whole() || self.holders >> lane & 1 == 1
    }

    /// These destinations fail with no depot and none of each other. Visits every chunk where that is news; those being sent must be
    /// taken out of `todo` again by [`Replica::open`].
    pub(crate) fn set_holders(&mut self, holders: u64) {
        let holders = holders & self.lanes();
        let is_news = core::mem::replace(&mut self.holders, holders) != holders;
        if is_news && self.columns.iter().any(|column| column.stored > 0) {
            self.recount(0, &[]);
        }
    }
}
