//! Ranges of a stream's bytes with their checksums, neighbours joined.

use std::{collections::BTreeMap, ops::Range};

use posthaste_endpoint::Checksum;

/// Byte ranges that don't overlap, each with the checksum of its bytes. Ranges that touch become
/// one, so that a stream that arrives nearly in order takes no room however long it is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Runs(BTreeMap<u64, (u64, Checksum)>);

impl Runs {
    /// Adds a range. Rejects an empty one, and one that overlaps an existing one. Returns whether
    /// it was added.
    pub fn add(&mut self, range: Range<u64>, sum: Checksum) -> bool {
        if range.is_empty() || self.overlaps(&range) {
            return false;
        }
        let Range { mut start, mut end } = range;
        let mut sum = sum;
        if let Some((&before, &(touches, first))) = self.0.range(..start).next_back()
            && touches == start
        {
            sum = first.then(sum, end - start);
            self.0.remove(&before);
            start = before;
        }
        if let Some((after_end, after)) = self.0.remove(&end) {
            sum = sum.then(after, after_end - end);
            end = after_end;
        }
        self.0.insert(start, (end, sum));
        true
    }

    fn overlaps(&self, range: &Range<u64>) -> bool {
        let before = self.0.range(..range.end).next_back();
        before.is_some_and(|(_, &(end, _))| end > range.start)
    }

    /// Returns the ranges in order, each with its checksum.
    pub fn iter(&self) -> impl Iterator<Item = (Range<u64>, Checksum)> + '_ {
        self.0.iter().map(|(&start, &(end, sum))| (start..end, sum))
    }

    /// Returns the bytes of all ranges together.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.iter().map(|(range, _)| range.end - range.start).sum()
    }

    /// Returns the checksum of the first `size` bytes, if they are there and nothing else is.
    #[must_use]
    pub fn whole(&self, size: u64) -> Option<Checksum> {
        match (self.0.len(), self.0.get(&0)) {
            (0, None) if size == 0 => Some(Checksum::EMPTY),
            (1, Some(&(end, sum))) if end == size => Some(sum),
            _ => None,
        }
    }

    /// Returns the gaps in `range`, in order.
    #[must_use]
    pub fn missing(&self, range: Range<u64>) -> Vec<Range<u64>> {
        let mut missing = Vec::new();
        let mut at = range.start;
        for (there, _) in self.iter() {
            if there.end <= at {
                continue;
            }
            if there.start >= range.end {
                break;
            }
            if there.start > at {
                missing.push(at..there.start);
            }
            at = there.end;
        }
        if at < range.end {
            missing.push(at..range.end);
        }
        missing
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn text() -> Vec<u8> {
        (0..200u8).collect()
    }

    fn sum(range: Range<usize>) -> Checksum {
        Checksum::of(&text()[range])
    }

    #[test]
    fn what_touches_becomes_one_and_what_overlaps_is_not_taken() {
        let mut runs = Runs::default();
        assert!(runs.add(0..10, sum(0..10)));
        assert!(runs.add(20..30, sum(20..30)));
        assert!(!runs.add(5..25, sum(5..25)));
        assert!(!runs.add(7..7, Checksum::EMPTY));
        assert_eq!(runs.whole(30), None);
        assert_eq!(runs.missing(5..40), [10..20, 30..40]);
        assert!(runs.add(10..20, sum(10..20)));
        assert_eq!(runs.iter().collect::<Vec<_>>(), [(0..30, sum(0..30))]);
        assert_eq!((runs.whole(30), runs.bytes()), (Some(sum(0..30)), 30));
        assert_eq!(Runs::default().whole(0), Some(Checksum::EMPTY));
    }

    proptest! {
        #[test]
        fn pieces_in_any_order_add_up(cuts in proptest::collection::btree_set(1usize..199, 0..20), seed in any::<u64>()) {
            let mut bounds: Vec<usize> = [0].into_iter().chain(cuts).chain([200]).collect();
            bounds.dedup();
            let mut pieces: Vec<Range<usize>> = bounds.windows(2).map(|pair| pair[0]..pair[1]).collect();
            pieces.sort_by_key(|piece| (piece.start as u64 + 1).wrapping_mul(seed | 1));
            let mut runs = Runs::default();
            let mut bytes = 0;
            for piece in pieces {
                let range = piece.start as u64..piece.end as u64;
                prop_assert_eq!(runs.missing(range.clone()), vec![range.clone()]);
                prop_assert!(runs.add(range.clone(), sum(piece.clone())));
                prop_assert!(runs.missing(range).is_empty());
                bytes += piece.len() as u64;
                prop_assert_eq!(runs.bytes(), bytes);
                let missing: u64 = runs.missing(0..200).iter().map(|gap| gap.end - gap.start).sum();
                prop_assert_eq!(missing, 200 - bytes);
            }
            prop_assert_eq!(runs.whole(200), Some(sum(0..200)));
        }
    }
}
