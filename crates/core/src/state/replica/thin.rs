//! Chunks that lack fragments and stay so, as the user wished lazy repair.

use crate::state::replica::{Have, Replica};

/// Losses that a chunk must still survive to be left alone under lazy repair. With one less it is
/// repaired (Bhagwan et al., Total Recall, NSDI 2004).
const LAZY_MARGIN: u32 = 2;

impl Replica {
    /// Repairs chunks that lost fragments only once they survive just one more loss. Every chunk
    /// must be safe.
    pub(crate) fn be_lazy(&mut self) {
        self.is_lazy = self.is_safe();
    }

    /// Returns whether some chunk may lack fragments which are not rebuilt yet.
    pub(crate) fn is_thinned(&self) -> bool {
        self.is_lazy
    }

    /// Counts chunks that lack fragments which are not rebuilt yet. Visits every chunk.
    pub(crate) fn thin(&self) -> u32 {
        let is_thin = |chunk: &u32| {
            let have = self.have(*chunk);
            !(have.is_whole && self.is_safe_whole()) && self.is_thin(*chunk, have)
        };
        let thin = (0..self.chunks).filter(|_| self.is_lazy).filter(is_thin);
        u32::try_from(thin.count()).unwrap_or(u32::MAX)
    }

    /// Returns how many depots may be lost, whichever they are, with every chunk surviving; none if
    /// some chunk can't be rebuilt at all. Visits every chunk.
    pub(crate) fn survives(&self) -> Option<u32> {
        let parity = u32::from(self.code.parity());
        let of = |chunk: u32| {
            let have = self.have(chunk);
            let spare = have.count().checked_sub(u32::from(self.code.data()));
            // One of several destinations is enough.
            let whole = have.is_whole.then(|| have.holders.saturating_sub(1));
            spare.max(whole)
        };
        (0..self.chunks)
            .map(of)
            .try_fold(parity, |least, of| Some(least.min(of?)))
    }

    /// Counts chunks that can't be rebuilt from what counts now, and that the source does not have
    /// any more: all of it `is_gone`, or some. Visits every chunk.
    pub(crate) fn out_of_reach(&self, is_gone: bool) -> u32 {
        let data = u32::from(self.code.data());
        let is_lost = |chunk: &u32| {
            let have = self.have(*chunk);
            let is_gone = is_gone || self.is_left_for_good && self.left.contains(*chunk);
            is_gone && !have.is_whole && have.fragments.count_ones() < data
        };
        let lost = (0..self.chunks).filter(is_lost).count();
        u32::try_from(lost).unwrap_or(u32::MAX)
    }

    /// Sets the fragments with which every chunk is safe for now; none for all of its code. Visits
    /// every chunk; those being sent must be taken out of `todo` again by [`Replica::open`].
    pub(crate) fn set_enough(&mut self, enough: Option<u32>) {
        if self.enough != enough {
            self.enough = enough;
            self.recount(0, &[]);
        }
    }

    /// Returns the fragments of a chunk that are enough for now, if that is not all of its code.
    pub(crate) fn enough(&self) -> Option<u32> {
        self.enough
    }

    /// Returns the fragments that a chunk with these still lacks to be safe: of its code, or on
    /// pinned depots if more lack there.
    pub(super) fn lacks(&self, chunk: u32, have: Have) -> u32 {
        let of_code = self.lacks_code(chunk, have);
        of_code.max(self.lacks_of(chunk, self.pinned))
    }

    /// Returns the fragments of its code that a chunk with these still lacks.
    pub(super) fn lacks_code(&self, chunk: u32, have: Have) -> u32 {
        let losses = self.losses();
        let is_enough = have.is_whole && losses == 0 || have.holders > losses;
        if is_enough || self.is_thin(chunk, have) {
            return 0;
        }
        (u32::from(self.code.data()) + losses).saturating_sub(have.count())
    }

    /// Returns whether a chunk with these fragments lacks some and is left so: it survives two more
    /// losses, and is not being repaired.
    pub(super) fn is_thin(&self, chunk: u32, have: Have) -> bool {
        let enough = u32::from(self.code.data()) + LAZY_MARGIN;
        self.is_lazy
            && have.count() < u32::from(self.code.total())
            && have.count() >= enough
            && !self.damaged.contains(chunk)
    }
}
