//! Chunks that lack fragments and are left so, where the user wished repair to be lazy.

use super::{Have, Replica};

/// Losses that a chunk must still survive to be left as it is, where repair is lazy: with one less it
/// is made whole (Bhagwan et al., Total Recall, NSDI 2004).
const LAZY_MARGIN: u32 = 2;

impl Replica {
    /// From now on chunks that lost fragments are made whole again only when one more loss is all they
    /// survive. Every chunk must be safe.
    pub(crate) fn be_lazy(&mut self) {
        self.is_lazy = self.is_safe();
    }

    /// Whether some chunk may lack fragments which are not made again yet.
    pub(crate) fn is_thinned(&self) -> bool {
        self.is_lazy
    }

    /// Chunks that lack fragments which are not made again yet. Visits every chunk.
    pub(crate) fn thin(&self) -> u32 {
        let is_thin = |chunk: &u32| {
            let have = self.have(*chunk);
            !(have.is_whole && self.is_safe_whole()) && self.is_thin(*chunk, have)
        };
        let thin = (0..self.chunks).filter(|_| self.is_lazy).filter(is_thin);
        u32::try_from(thin.count()).unwrap_or(u32::MAX)
    }

    /// How many depots every chunk survives the loss of, whichever they are; none where some chunk can't be
    /// rebuilt at all. Visits every chunk.
    pub(crate) fn survives(&self) -> Option<u32> {
        let parity = u32::from(self.code.parity());
        let of = |chunk: u32| {
            let have = self.have(chunk);
            let spare = have.count().checked_sub(u32::from(self.code.data()));
            // Of several destinations one is enough.
            let whole = have.is_whole.then(|| have.holders.saturating_sub(1));
            spare.max(whole)
        };
        (0..self.chunks)
            .map(of)
            .try_fold(parity, |least, of| Some(least.min(of?)))
    }

    /// Chunks that can't be rebuilt from what counts now. Visits every chunk.
    pub(crate) fn out_of_reach(&self) -> u32 {
        let data = u32::from(self.code.data());
        let is_lost = |chunk: &u32| {
            let have = self.have(*chunk);
            !have.is_whole && have.fragments.count_ones() < data
        };
        let lost = (0..self.chunks).filter(is_lost).count();
        u32::try_from(lost).unwrap_or(u32::MAX)
    }

    /// Every chunk is safe for now with so many fragments, or with all of its code. Visits every chunk; those
    /// being sent must be taken out of `todo` again by [`Replica::open`].
    pub(crate) fn set_enough(&mut self, enough: Option<u32>) {
        if self.enough != enough {
            self.enough = enough;
            self.recount(0, &[]);
        }
    }

    /// Fragments of a chunk that are enough for now, where that is not all of its code.
    pub(crate) fn enough(&self) -> Option<u32> {
        self.enough
    }

    /// Fragments that a chunk with these still lacks to be safe: of its code, or on pinned depots where more lack there.
    pub(super) fn lacks(&self, chunk: u32, have: Have) -> u32 {
        let of_code = self.lacks_code(chunk, have);
        of_code.max(self.lacks_of(chunk, self.pinned))
    }

    /// Fragments of its code that a chunk with these still lacks.
    pub(super) fn lacks_code(&self, chunk: u32, have: Have) -> u32 {
        let losses = self.losses();
        let is_enough = have.is_whole && losses == 0 || have.holders > losses;
        if is_enough || self.is_thin(chunk, have) {
            return 0;
        }
        (u32::from(self.code.data()) + losses).saturating_sub(have.count())
    }

    /// Whether a chunk that has these fragments lacks some and is left so: it survives two losses more,
    /// and is not being made whole.
    pub(super) fn is_thin(&self, chunk: u32, have: Have) -> bool {
        let enough = u32::from(self.code.data()) + LAZY_MARGIN;
        self.is_lazy
            && have.count() < u32::from(self.code.total())
            && have.count() >= enough
            && !self.damaged.contains(chunk)
    }
}
