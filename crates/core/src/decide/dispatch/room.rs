//! Placement by space: if space is scarce and there is time, fragments go where they leave others
//! the most usable space.

use alloc::vec::Vec;
use core::cmp::Reverse;
use posthaste_plan::room;
use posthaste_types::Bytes;

use crate::decide::dispatch::placing::Placing;
use crate::{
    decide::room::{is_scarce, lacks},
    state::Depot,
};

/// Share of the time left within which a request must be forecast to end for there to be time: one
/// part in so many.
const EARLY: u32 = 3;

impl Placing<'_> {
    /// Returns the `free` lanes that leave others the most; all if space is ample or time short.
    /// They are for a fragment of `bytes` of a chunk that has some at the lanes `taken` and lacks
    /// `more` beside it.
    pub(super) fn leaving_room(
        &self,
        free: Vec<usize>,
        taken: u64,
        more: u32,
        bytes: Bytes,
    ) -> Vec<usize> {
        let aim = self.request.aim();
        let has_time = self.request.finish.is_some_and(|finish| {
            finish.p90.since(self.now).saturating_mul(EARLY) <= aim.since(self.now)
        });
        if !has_time {
            return free;
        }
        let spaces = self.left_on_all();
        if !is_scarce(&spaces, self.request, lacks(self.request)) {
            return free;
        }
        // Failure domains and levels come before space.
        let rank = |&lane: &usize| (self.request.crowds(taken, lane), self.level(lane));
        let least = free.iter().map(rank).min();
        let fed = free.into_iter().filter(|lane| Some(rank(lane)) == least);
        let fed: Vec<usize> = fed.collect();
        let total = usize::from(self.request.spec.code.total());
        let leaves = |lane: usize| {
            let mut left = spaces.clone();
            let mut others: Vec<usize> = fed.iter().copied().filter(|&it| it != lane).collect();
            others.sort_by_key(|&other| Reverse(left[other]));
            for &taker in [lane].iter().chain(others.iter().take(more as usize)) {
                left[taker] = left[taker].saturating_sub(bytes.get());
            }
            room::column(&left, total)
        };
        let left: Vec<u64> = fed.iter().map(|&lane| leaves(lane)).collect();
        let most = left.iter().max();
        let best = fed
            .iter()
            .zip(&left)
            .filter(|(_, left)| Some(*left) == most);
        best.map(|(lane, _)| *lane).collect()
    }

    /// Returns by lane the space left on its depot, whether it is fed or not; nothing if none is
    /// up.
    fn left_on_all(&self) -> Vec<u64> {
        let left = |lane: usize| {
            let depot = self.depots.get(&self.request.lanes[lane].depot);
            let counts = !self.request.is_destination(lane)
                && !self.request.is_barred(lane)
                && depot.is_some_and(Depot::is_up);
            if counts { self.space(lane).get() } else { 0 }
        };
        (0..self.request.lanes.len()).map(left).collect()
    }
}
