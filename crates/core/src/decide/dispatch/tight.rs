//! Tight space: the fastest may not take what only others can complete. With one fragment of a
//! chunk a depot, space on too few depots is of no use.

use alloc::vec::Vec;
use posthaste_types::{Bytes, ChunkIndex};

use crate::decide::dispatch::placing::Placing;

/// Multiple of the wanted space below which space counts as tight.
const AMPLE: u64 = 2;

/// Space left on depots, in fragments, and what has to find a place there.
#[derive(Clone)]
pub(super) struct Tight {
    /// Space by lane; none if it is not fed.
    spaces: Vec<u64>,
    /// Chunks that were not begun and will be coded: each may get a fragment on every lane.
    not_begun: u64,
    /// Fragments of those.
    wanted: u64,
    /// Chunks that may get a fragment there, by lane: these, and begun ones except the one in
    /// question.
    chunks: Vec<u64>,
    /// Fragments that these lack.
    others: u64,
}

impl Placing<'_> {
    /// Returns how tight space is for a fragment of the chunk; none if it is ample.
    pub(super) fn tight(&self, chunk: ChunkIndex, bytes: Bytes) -> Option<Tight> {
        let replica = &self.request.replica;
        let left = u64::from(replica.chunks() - replica.safe());
        let spaces = self.spaces(bytes);
        let is_bound = |space: &u64| (1..left).contains(space);
        if !spaces.iter().any(is_bound) {
            return None;
        }
        let total = u64::from(self.request.spec.code.total());
        let unopened = left.saturating_sub(self.request.stripes.len() as u64);
        let whole = self.request.lead();
        let whole = whole.map_or(0, |lane| u64::from(self.request.lanes[lane].kept));
        let coded = unopened.saturating_sub(whole);
        let mut tight = Tight {
            spaces,
            not_begun: coded,
            wanted: coded * total,
            chunks: self.request.lanes.iter().map(|_| coded).collect(),
            others: coded * total,
        };
        for (other, stripe) in self.request.stripes.iter() {
            if *other == chunk || stripe.wanted == 0 {
                continue;
            }
            tight.others += u64::from(stripe.wanted.count_ones());
            for (lane, chunks) in tight.chunks.iter_mut().enumerate() {
                *chunks += u64::from(stripe.taken >> lane & 1 == 0);
            }
        }
        let all = tight.others + total;
        (tight.takes() < AMPLE * all).then_some(tight)
    }

    /// Returns the fragments of `bytes` for which each lane has space.
    fn spaces(&self, bytes: Bytes) -> Vec<u64> {
        let mut spaces: Vec<u64> = self.request.lanes.iter().map(|_| 0).collect();
        for lane in self.request.depot_lanes() {
            if self.is_fed(lane, bytes) {
                spaces[lane] = self.space(lane).get() / bytes.get().max(1);
            }
        }
        spaces
    }
}

impl Tight {
    /// Returns what all lanes together can take of the chunks not begun.
    fn takes_new(&self) -> u64 {
        let spaces = self.spaces.iter();
        spaces.map(|&space| space.min(self.not_begun)).sum()
    }

    /// Returns what they can take of all others.
    fn takes(&self) -> u64 {
        let lanes = self.spaces.iter().zip(&self.chunks);
        lanes.map(|(&space, &chunks)| space.min(chunks)).sum()
    }

    /// Returns how many fragments of other chunks still find their places after this lane took one
    /// of the chunk. The `more` that it still lacks go to the roomiest `free` lanes.
    fn leaves(&self, lane: usize, free: &[usize], more: u32) -> u64 {
        let mut left = self.clone();
        let mut others: Vec<usize> = free
            .iter()
            .copied()
            .filter(|&other| other != lane)
            .collect();
        others.sort_by_key(|&other| core::cmp::Reverse(left.spaces[other]));
        for &taker in [lane].iter().chain(others.iter().take(more as usize)) {
            left.spaces[taker] = left.spaces[taker].saturating_sub(1);
        }
        left.takes().min(left.others) + left.takes_new().min(left.wanted)
    }

    /// Returns the `free` lanes that have space and leave the most places to others, for a chunk
    /// that lacks `more` beside this fragment.
    pub(super) fn best(&self, free: &[usize], more: u32) -> Vec<usize> {
        let free = free.iter().copied().filter(|&lane| self.spaces[lane] > 0);
        let free: &[usize] = &free.collect::<Vec<usize>>();
        let leaves = |&lane: &usize| self.leaves(lane, free, more);
        let most = free.iter().map(leaves).max();
        let best = free.iter().filter(|lane| Some(leaves(lane)) == most);
        best.copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    /// Builds two depots with little space and two with plenty, for `chunks` more as 2+1.
    fn tight(chunks: u64, spaces: &[u64]) -> Tight {
        Tight {
            spaces: spaces.to_vec(),
            not_begun: chunks,
            wanted: 3 * chunks,
            chunks: vec![chunks; spaces.len()],
            others: 3 * chunks,
        }
    }

    #[test]
    fn one_chunk_does_not_take_both_of_the_small_where_each_needs_one() {
        // Eight more chunks each need one of the nine places on the small depots.
        assert_eq!(
            tight(8, &[5, 4, 20, 20]).best(&[0, 1, 2, 3], 2),
            [0, 1, 2, 3]
        );
        let none_to_spare = tight(8, &[4, 4, 20, 20]);
        assert_eq!(none_to_spare.best(&[1, 2, 3], 1), [2, 3], "it has one");
        let one_to_spare = tight(8, &[5, 4, 20, 20]);
        assert_eq!(one_to_spare.best(&[1, 2, 3], 1), [1, 2, 3]);
    }

    #[test]
    fn nobody_waits_for_a_lane_that_is_full_or_not_fed() {
        // It would leave the others all their places, and take nothing.
        let full = tight(8, &[5, 0, 4, 4]);
        assert_eq!(full.best(&[1, 2, 3], 0), [2, 3]);
        assert_eq!(full.best(&[1], 0), Vec::<usize>::new());
    }

    #[test]
    fn who_leaves_most_is_best_where_no_lane_leaves_enough() {
        let hopeless = tight(8, &[2, 2, 20, 20]);
        assert_eq!(hopeless.best(&[0, 1, 2, 3], 1), [2, 3]);
    }
}
