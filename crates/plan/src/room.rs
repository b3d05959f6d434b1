//! Space for the next request. With one fragment of a chunk per depot, space on fewer depots than a
//! code has fragments is useless: the depots chosen now decide how much of the rest others can use.

use alloc::vec::Vec;
use core::cmp::Reverse;

/// Returns the size of each of `total` columns, no two fragments of a chunk on the same depot, that
/// depots with these spaces can hold. The usable space is `total` times that.
#[must_use]
pub fn column(spaces: &[u64], total: usize) -> u64 {
    let mut spaces = spaces.to_vec();
    spaces.sort_unstable_by_key(|&space| Reverse(space));
    // Depots may report unlimited space.
    let mut rest: u128 = spaces.iter().copied().map(u128::from).sum();
    // A depot with more than its share of the rest gets a fragment of every chunk.
    for (place, &space) in spaces.iter().take(total).enumerate() {
        let share = rest / (total - place) as u128;
        if u128::from(space) <= share {
            return u64::try_from(share).unwrap_or(u64::MAX);
        }
        rest -= u128::from(space);
    }
    0
}

/// Returns the spaces left after `bytes`, at most `most` per depot, fill the first `fed` depots
/// evenly, the roomiest first. If they don't fit, these depots have nothing left.
#[must_use]
pub fn level(spaces: &[u64], fed: usize, most: u64, bytes: u64) -> Vec<u64> {
    let takes = |space: u64, level: u64| space.saturating_sub(level).min(most);
    let taken = |level: u64| -> u64 {
        let fed = spaces.iter().take(fed);
        fed.fold(0, |sum, &space| sum.saturating_add(takes(space, level)))
    };
    // The highest level at which all bytes fit.
    let (mut low, mut high) = (0, spaces.iter().copied().max().unwrap_or(0));
    while low < high {
        let middle = low + (high - low).div_ceil(2);
        if taken(middle) >= bytes {
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    let left = |(place, &space): (usize, &u64)| match place < fed {
        true => space - takes(space, low),
        false => space,
    };
    spaces.iter().enumerate().map(left).collect()
}

/// Returns how many depots, at least the first `least`, must be fed so that others can use the rest
/// as well as if all were fed. Differences of a hundredth of `most` count as equal.
#[must_use]
pub fn fewest(spaces: &[u64], least: usize, most: u64, bytes: u64, total: usize) -> usize {
    let left = |fed: usize| column(&level(spaces, fed, most, bytes), total);
    let best = left(spaces.len());
    let is_enough = |fed: &usize| left(*fed) + most / 100 >= best;
    (least..spaces.len())
        .find(is_enough)
        .unwrap_or(spaces.len().max(least))
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    /// Places chunks one by one as an oracle, each on the roomiest depots, which is best
    /// (Gale-Ryser).
    fn one_by_one(spaces: &[u64], total: usize) -> u64 {
        let mut left = spaces.to_vec();
        let mut chunks = 0;
        loop {
            left.sort_unstable_by_key(|&space| Reverse(space));
            if left.len() < total || left[total - 1] == 0 {
                return chunks;
            }
            for space in &mut left[..total] {
                *space -= 1;
            }
            chunks += 1;
        }
    }

    #[test]
    fn a_column_is_as_long_as_chunks_find_places() {
        for code in 0..6u64.pow(5) {
            let spaces: Vec<u64> = (0..5).map(|place| code / 6u64.pow(place) % 6).collect();
            for total in 1..=5 {
                assert_eq!(
                    column(&spaces, total),
                    one_by_one(&spaces, total),
                    "{spaces:?}, {total}"
                );
            }
        }
        assert_eq!(column(&[9, 9], 3), 0);
        assert_eq!(column(&[u64::MAX; 6], 3), u64::MAX);
        assert_eq!(level(&[u64::MAX; 2], 2, u64::MAX, 9), [u64::MAX - 5; 2]);
    }

    #[test]
    fn depots_fill_up_evenly_from_the_roomiest_down() {
        assert_eq!(level(&[10, 6, 2, 9], 3, 100, 6), [5, 5, 2, 9]);
        assert_eq!(level(&[10, 6, 2], 3, 3, 5), [7, 4, 2]);
        assert_eq!(level(&[10, 6], 2, 100, 99), [0, 0]);
        assert_eq!(level(&[], 0, 1, 1), vec![0u64; 0]);
    }

    #[test]
    fn more_depots_are_fed_where_few_would_leave_space_that_nobody_can_use() {
        // The first four have space, but two depots alone are useless to others.
        assert_eq!(fewest(&[520, 470, 360, 310, 290, 290], 4, 560, 1500, 3), 6);
        // With ample space everywhere the fewest are enough.
        assert_eq!(fewest(&[9000; 6], 3, 560, 1500, 3), 3);
        assert_eq!(fewest(&[9000, 9000], 3, 560, 1500, 3), 3, "too few of them");
    }
}
