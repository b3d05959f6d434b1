//! Lanes that are filled even if others could carry their data.

use super::Filling;

impl Filling<'_> {
    pub(super) fn is_pinned(&self, lane: usize) -> bool {
        self.load.lanes.get(lane).is_some_and(|lane| lane.is_pinned)
    }

    /// Returns the rest that pinned lanes need not carry.
    pub(super) fn unpinned(&self) -> u64 {
        let lanes = self.load.lanes.iter().zip(&self.room);
        let pinned = lanes.filter(|(lane, _)| lane.is_pinned);
        pinned.fold(self.left, |left, (_, room)| left.saturating_sub(*room))
    }

    /// Returns the number of pinned lanes.
    pub(super) fn pinned(&self) -> u64 {
        let pinned = self.load.lanes.iter().filter(|lane| lane.is_pinned);
        pinned.count() as u64
    }

    /// Returns the rate of all lanes that are not pinned.
    pub(super) fn given_unpinned(&self) -> u64 {
        let given = self.given.iter().enumerate();
        let given = given.filter(|(lane, _)| !self.is_pinned(*lane));
        given.fold(0, |sum, (_, rate)| sum.saturating_add(*rate))
    }
}
