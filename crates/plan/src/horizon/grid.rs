//! Slots: time cut into even or growing pieces.

use alloc::vec::Vec;
use core::time::Duration;
use posthaste_types::{ByteRate, Bytes, Timestamp, record};

use crate::Curve;

/// Most slots: a week of minutes. `Grid::of` cuts longer stretches there.
const SLOTS_MAX: usize = 7 * 24 * 60;

record! {
    /// Slots of a plan, from now.
    #[derive(Debug, Clone, PartialEq, Eq, Default)]
    pub struct Grid {
        /// End of each slot, ascending; the first begins now, each other at the end of the last.
        ends: Vec<Duration>,
    }
}

impl Grid {
    /// Returns `count` slots of one length.
    #[must_use]
    pub fn even(length: Duration, count: usize) -> Self {
        Self::of(&[(length, count)])
    }

    /// Returns slots that grow with their distance: 30 of a minute, 24 of five, 40 of half an hour,
    /// near 22 hours in all.
    #[must_use]
    pub fn geometric() -> Self {
        let minutes = |count: u64| Duration::from_secs(60 * count);
        Self::of(&[(minutes(1), 30), (minutes(5), 24), (minutes(30), 40)])
    }

    /// Returns stretches of equal slots, one after the other. Drops slots without length and all
    /// beyond the largest number.
    #[must_use]
    pub fn of(stretches: &[(Duration, usize)]) -> Self {
        let mut end = Duration::ZERO;
        let lengths = stretches
            .iter()
            .filter(|(length, _)| !length.is_zero())
            .flat_map(|&(length, count)| core::iter::repeat_n(length, count.min(SLOTS_MAX)));
        let ends = lengths
            .take(SLOTS_MAX)
            .map(|length| {
                end = end.saturating_add(length);
                end
            })
            .collect();
        Self { ends }
    }

    /// Returns slots of at most `step` whose boundaries include all `marks` up to `end`, in whole
    /// microseconds.
    #[must_use]
    pub fn with_marks(marks: &[Duration], step: Duration, end: Duration) -> Self {
        let mut marks: Vec<Duration> = marks.iter().copied().filter(|mark| *mark < end).collect();
        marks.push(end);
        marks.sort_unstable();
        let mut stretches = Vec::new();
        let mut from = Duration::ZERO;
        for mark in marks {
            let micros = |span: Duration| u64::try_from(span.as_micros()).unwrap_or(u64::MAX);
            let span = micros(mark.saturating_sub(from));
            let count = span.div_ceil(micros(step).max(1)).max(1);
            let length = span / count;
            // The remainder of the division goes to the last slot, so that the mark is met.
            let last = Duration::from_micros(span - length * (count - 1));
            let before = usize::try_from(count - 1).unwrap_or(usize::MAX);
            stretches.push((Duration::from_micros(length), before));
            stretches.push((last, 1));
            from = from.max(mark);
        }
        Self::of(&stretches)
    }

    /// Returns whether the slots follow each other: a grid read from outside may not.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        self.slots() <= SLOTS_MAX && self.ends.is_sorted()
    }

    /// Returns the number of slots.
    #[must_use]
    pub fn slots(&self) -> usize {
        self.ends.len()
    }

    /// Returns the start of a slot; after the last one, its end.
    #[must_use]
    pub fn start(&self, slot: usize) -> Duration {
        match slot.min(self.ends.len()).checked_sub(1) {
            Some(before) => self.ends[before],
            None => Duration::ZERO,
        }
    }

    /// Returns the length of a slot; zero after the last one.
    #[must_use]
    pub fn length(&self, slot: usize) -> Duration {
        self.start(slot + 1) - self.start(slot)
    }

    /// Returns the number of slots that have ended at `moment`.
    #[must_use]
    pub fn ended_by(&self, moment: Duration) -> usize {
        self.ends.partition_point(|&end| end <= moment)
    }

    /// Returns the first slot that begins at `moment` or after it; the number of slots if none
    /// does.
    #[must_use]
    pub fn first_from(&self, moment: Duration) -> usize {
        if moment.is_zero() {
            0
        } else {
            (self.ends.partition_point(|&end| end < moment) + 1).min(self.ends.len())
        }
    }

    /// Returns the bytes a curve carries in each slot, if the first one begins at `now`.
    #[must_use]
    pub fn carried(&self, curve: &Curve, now: Timestamp) -> Vec<Bytes> {
        (0..self.slots())
            .map(|slot| curve.volume(now + self.start(slot), now + self.start(slot + 1)))
            .collect()
    }

    /// Returns the bytes a rate carries in each slot.
    #[must_use]
    pub fn volumes(&self, rate: ByteRate) -> Vec<Bytes> {
        (0..self.slots())
            .map(|slot| rate.volume(self.length(slot)))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const fn secs(secs: u64) -> Duration {
        Duration::from_secs(secs)
    }

    #[test]
    fn growing_slots_reach_far() {
        let grid = Grid::geometric();
        assert_eq!(grid.slots(), 94);
        assert_eq!(grid.length(29), secs(60));
        assert_eq!(grid.length(30), secs(300));
        assert_eq!(grid.start(94), secs(30 * 60 + 24 * 300 + 40 * 1800));
        assert_eq!(
            grid.volumes(ByteRate::new(10))[93],
            Bytes::new(18_000),
            "half an hour at 10 B/s"
        );
    }

    #[test]
    fn a_deadline_counts_whole_slots_and_a_release_waits_for_the_next() {
        let grid = Grid::even(secs(10), 3);
        let by = [(0, 0), (9, 0), (10, 1), (29, 2), (30, 3), (99, 3)];
        for (moment, slots) in by {
            assert_eq!(grid.ended_by(secs(moment)), slots, "{moment} s");
        }
        let from = [(0, 0), (1, 1), (10, 1), (11, 2), (20, 2), (21, 3), (99, 3)];
        for (moment, slot) in from {
            assert_eq!(grid.first_from(secs(moment)), slot, "{moment} s");
        }
    }

    #[test]
    fn slots_end_at_every_mark() {
        let grid = Grid::with_marks(&[secs(7), secs(31), secs(7), secs(99)], secs(10), secs(60));
        for mark in [7, 31, 60] {
            assert_eq!(grid.start(grid.ended_by(secs(mark))), secs(mark));
        }
        assert!((0..grid.slots()).all(|slot| grid.length(slot) <= secs(10)));
        assert_eq!(grid.start(grid.slots()), secs(60));
    }

    #[test]
    fn a_curve_is_summed_by_slot() {
        let now = Timestamp::from_secs(1000);
        let mut curve = Curve::constant(ByteRate::new(10));
        curve.close(now + secs(3), now + secs(12));
        let carried = Grid::even(secs(5), 3).carried(&curve, now);
        assert_eq!(carried, [30, 0, 30].map(Bytes::new));
    }

    #[test]
    fn slots_that_end_before_they_begin_are_not_sound() {
        let back = Grid {
            ends: alloc::vec![secs(2), secs(1)],
        };
        assert!(!back.is_sound() && Grid::geometric().is_sound());
    }

    proptest! {
        #[test]
        fn slots_follow_each_other_without_a_gap(
            stretches in proptest::collection::vec((0u64..100, 0usize..20), 0..5),
            moment in 0u64..5000,
        ) {
            let stretches: Vec<(Duration, usize)> =
                stretches.iter().map(|&(length, count)| (secs(length), count)).collect();
            let grid = Grid::of(&stretches);
            let moment = secs(moment);
            let all: Duration = (0..grid.slots()).map(|slot| grid.length(slot)).sum();
            prop_assert_eq!(all, grid.start(grid.slots()));
            let ended = grid.ended_by(moment);
            prop_assert!(grid.start(ended) <= moment);
            prop_assert!(ended == grid.slots() || grid.start(ended + 1) > moment);
            let first = grid.first_from(moment);
            prop_assert!(first == grid.slots() || grid.start(first) >= moment);
            prop_assert!(first == 0 || grid.start(first - 1) < moment);
        }
    }
}
