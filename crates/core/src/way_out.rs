//! The centre's way out, where what it carries is known: whether it is full.
//!
//! What shares a full way out shares it evenly, whoever is in a hurry. So whoever is not waits, and what a
//! depot took meanwhile says only what its own path carries at least.

use alloc::{
    collections::{BTreeMap, BTreeSet},
    vec::Vec,
};
use core::time::Duration;
use posthaste_types::{ByteRate, Bytes, DepotId, Timestamp, record};

use crate::Mind;

/// Full is what carries so much, in hundredths of what is known.
const FULL_PERCENT: u64 = 95;

/// What was measured longer ago says nothing of now.
const FRESH: Duration = Duration::from_secs(3);

/// Who gets so much of what the fastest gets, in hundredths, has its share of a full way out.
const SHARE_PERCENT: u64 = 80;

record! {
    /// What one depot took.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub(crate) struct Taken {
        pub(crate) at: Timestamp,
        pub(crate) depot: DepotId,
        pub(crate) bytes: Bytes,
        pub(crate) window: Duration,
        /// Nothing but its path was seen to hold it back.
        pub(crate) saturated: bool,
        /// Another way to the depot was tried then.
        pub(crate) is_trial: bool,
    }
}

impl Taken {
    pub(crate) fn rate(&self) -> ByteRate {
        ByteRate::over(self.bytes, self.window)
    }

    /// When all that was measured beside it is known: half of what it was measured over later.
    fn due(&self) -> Timestamp {
        self.at + self.window / 2
    }

    /// What was measured before a time in which nothing moved says nothing any more.
    fn is_fresh(&self, now: Timestamp) -> bool {
        self.at + self.window + FRESH >= now
    }

    /// Whether another was measured over some of the same time.
    fn overlaps(&self, other: &Self) -> bool {
        let apart = self.at.since(other.at).max(other.at.since(self.at));
        apart < self.window
    }
}

record! {
    /// What all depots together took lately.
    #[derive(Debug, Clone, PartialEq, Eq, Default)]
    pub(crate) struct WayOut {
        /// What each depot took last.
        last: BTreeMap<DepotId, Taken>,
        /// Those of them that were not judged yet, by when they are.
        waiting: BTreeSet<(Timestamp, DepotId)>,
        /// When one was judged last, what all took beside it, and the fastest of them.
        at: Timestamp,
        rate: ByteRate,
        share: ByteRate,
    }
}

impl WayOut {
    /// Takes what one depot took: what held it back is known only once all are counted. Returns what it took before, where
    /// that still waits. What is [known](Self::known) must be judged first, beside what all took then.
    pub(crate) fn observe(&mut self, taken: Taken) -> Option<Taken> {
        let before = self.last.insert(taken.depot, taken);
        let before = before.filter(|before| self.waiting.remove(&(before.due(), before.depot)));
        self.waiting.insert((taken.due(), taken.depot));
        before.filter(|before| before.is_fresh(taken.at))
    }

    /// Forgets what says nothing any more.
    pub(crate) fn forget_old(&mut self, now: Timestamp) {
        self.last.retain(|_, taken| taken.is_fresh(now));
    }

    /// What waited and can be judged.
    pub(crate) fn known(&mut self, now: Timestamp) -> Vec<Taken> {
        let mut known = Vec::new();
        while let Some((due, depot)) = self.waiting.first().copied()
            && due <= now
        {
            self.waiting.pop_first();
            let taken = self.last.get(&depot).copied();
            known.extend(taken.filter(|taken| taken.is_fresh(now)));
        }
        known
    }

    /// Counts what all took beside one.
    fn count(&mut self, now: Timestamp, taken: &Taken) {
        let beside = self.last.values().filter(|other| taken.overlaps(other));
        let rates = beside.filter(|other| other.depot != taken.depot);
        let rates = rates.map(Taken::rate).chain([taken.rate()]);
        self.rate = rates.clone().fold(ByteRate::ZERO, |sum, rate| sum + rate);
        self.share = rates.max().unwrap_or_default();
        self.at = now;
    }
}

impl Mind {
    /// Whether the way out is known to carry no more.
    pub(crate) fn is_way_out_full(&self) -> bool {
        let egress = self.settings.egress;
        let is_fresh = self.now.since(self.way_out.at) <= FRESH;
        is_fresh
            && egress.is_some_and(|egress| self.way_out.rate >= egress.scaled(FULL_PERCENT, 100))
    }

    /// Whether a depot took so much only because the way out carried no more: what is slower than the
    /// share of others is slow by itself.
    pub(crate) fn is_held_by_way_out(&mut self, taken: &Taken) -> bool {
        if self.settings.egress.is_none() {
            return false;
        }
        self.way_out.count(self.now, taken);
        let share = self.way_out.share.scaled(SHARE_PERCENT, 100);
        self.is_way_out_full() && taken.rate() >= share
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW: Duration = Duration::from_secs(1);

    const fn taken(millis: u64, depot: u32, bytes: u64) -> Taken {
        Taken {
            at: at(millis),
            depot: DepotId::new(depot),
            bytes: Bytes::new(bytes),
            window: WINDOW,
            saturated: true,
            is_trial: false,
        }
    }

    const fn at(millis: u64) -> Timestamp {
        Timestamp::from_micros(millis * 1000)
    }

    fn sums(way_out: &mut WayOut, millis: u64, taken: &Taken) -> (u64, u64) {
        way_out.count(at(millis), taken);
        (way_out.rate.get(), way_out.share.get())
    }

    #[test]
    fn what_one_depot_took_is_judged_by_what_all_took_at_that_time() {
        let mut way_out = WayOut::default();
        assert_eq!(way_out.observe(taken(1000, 1, 17)), None);
        assert_eq!(way_out.observe(taken(1001, 2, 14)), None);
        assert_eq!(way_out.known(at(1400)), [], "more may come");
        let due = way_out.known(at(1501));
        assert_eq!(due, [taken(1000, 1, 17), taken(1001, 2, 14)]);
        assert_eq!(sums(&mut way_out, 1501, &due[0]), (31, 17));
        // Three more share it now, and all of them are known before the first is judged.
        for depot in 1..=5 {
            assert_eq!(way_out.observe(taken(2001, depot, 9)), None);
        }
        let due = way_out.known(at(2600));
        assert_eq!(due.len(), 5);
        assert_eq!(sums(&mut way_out, 2600, &due[0]), (45, 9));
        assert_eq!(way_out.known(at(2700)), []);
    }

    #[test]
    fn depots_that_are_measured_at_other_times_are_counted_too() {
        let mut way_out = WayOut::default();
        way_out.observe(taken(1000, 1, 30));
        assert_eq!(way_out.observe(taken(1500, 2, 30)), None);
        assert_eq!(way_out.known(at(1500)), [taken(1000, 1, 30)]);
        assert_eq!(sums(&mut way_out, 1500, &taken(1000, 1, 30)), (60, 30));
        // What ended in the meantime is not beside it.
        assert_eq!(way_out.known(at(2500)), [taken(1500, 2, 30)]);
        assert_eq!(way_out.observe(taken(2500, 1, 50)), None);
        assert_eq!(sums(&mut way_out, 3000, &taken(2500, 1, 50)), (50, 50));
    }

    #[test]
    fn what_was_measured_before_nothing_moved_for_long_is_not_learned() {
        let mut way_out = WayOut::default();
        way_out.observe(taken(1000, 1, 30));
        assert_eq!(way_out.known(at(3_600_000)), []);
        way_out.observe(taken(3_600_000, 1, 30));
        let soon = way_out.observe(taken(3_600_100, 1, 20));
        assert_eq!(
            soon,
            Some(taken(3_600_000, 1, 30)),
            "measured again at once"
        );
    }
}
