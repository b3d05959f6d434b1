//! The centre's uplink, if its capacity is known: whether it is full.
//!
//! A full uplink is shared evenly, whatever the urgency. So requests that can wait do, and a
//! depot's rate meanwhile is only a lower bound of its own path.

use alloc::{
    collections::{BTreeMap, BTreeSet},
    vec::Vec,
};
use core::time::Duration;
use posthaste_types::{ByteRate, Bytes, DepotId, Timestamp, record};

use crate::state::State;

/// Share of the known capacity that counts as full, in hundredths.
const FULL_PERCENT: u64 = 95;

/// Age beyond which a measurement says nothing about the present.
const FRESH: Duration = Duration::from_secs(3);

/// Share of the fastest depot's rate, in hundredths, that counts as a fair share of a full uplink.
pub(crate) const SHARE_PERCENT: u64 = 80;

record! {
    /// Measured rate of one depot.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub(crate) struct Taken {
        pub(crate) at: Timestamp,
        pub(crate) depot: DepotId,
        pub(crate) bytes: Bytes,
        pub(crate) window: Duration,
        /// True if only its path was seen to hold it back.
        pub(crate) saturated: bool,
        /// True if another way to the depot was tried then.
        pub(crate) is_trial: bool,
    }
}

impl Taken {
    pub(crate) fn rate(&self) -> ByteRate {
        ByteRate::over(self.bytes, self.window)
    }

    /// Returns when all measurements beside it are known: half of its span later.
    pub(crate) fn due(&self) -> Timestamp {
        self.at + self.window / 2
    }

    /// Returns whether it still counts: a measurement before an idle time does not.
    pub(crate) fn is_fresh(&self, now: Timestamp) -> bool {
        self.at + self.window + FRESH >= now
    }

    /// Returns whether another was measured over some of the same time.
    pub(crate) fn overlaps(&self, other: &Self) -> bool {
        let apart = self.at.since(other.at).max(other.at.since(self.at));
        apart < self.window
    }
}

record! {
    /// Recent rates of all depots together.
    #[derive(Debug, Clone, PartialEq, Eq, Default)]
    pub(crate) struct WayOut {
        /// Last measurement of each depot.
        pub(crate) last: BTreeMap<DepotId, Taken>,
        /// Measurements not judged yet, by the time of that.
        pub(crate) waiting: BTreeSet<(Timestamp, DepotId)>,
        /// Time of the last judgement, the sum of all rates beside it, and the fastest of them.
        pub(crate) at: Timestamp,
        pub(crate) rate: ByteRate,
        pub(crate) share: ByteRate,
    }
}

impl WayOut {
    /// Records one depot's measurement: its bottleneck is known only once all are counted. Returns
    /// the one before, if that still waits. Those that are [known](Self::known) must be judged
    /// first, beside all others of that time.
    pub(crate) fn observe(&mut self, taken: Taken) -> Option<Taken> {
        let before = self.last.insert(taken.depot, taken);
        let before = before.filter(|before| self.waiting.remove(&(before.due(), before.depot)));
        self.waiting.insert((taken.due(), taken.depot));
        before.filter(|before| before.is_fresh(taken.at))
    }

    /// Forgets measurements that no longer count.
    pub(crate) fn forget_old(&mut self, now: Timestamp) {
        self.last.retain(|_, taken| taken.is_fresh(now));
    }

    /// Returns waiting measurements that can be judged.
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

    /// Sums the rates of all depots beside one.
    pub(crate) fn count(&mut self, now: Timestamp, taken: &Taken) {
        let beside = self.last.values().filter(|other| taken.overlaps(other));
        let rates = beside.filter(|other| other.depot != taken.depot);
        let rates = rates.map(Taken::rate).chain([taken.rate()]);
        self.rate = rates.clone().fold(ByteRate::ZERO, |sum, rate| sum + rate);
        self.share = rates.max().unwrap_or_default();
        self.at = now;
    }
}

/// Returns whether the uplink is known to carry no more.
pub(crate) fn is_way_out_full(state: &State) -> bool {
    let egress = state.settings.egress;
    let is_fresh = state.now.since(state.way_out.at) <= FRESH;
    is_fresh && egress.is_some_and(|egress| state.way_out.rate >= egress.scaled(FULL_PERCENT, 100))
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
        // A measurement that ended in the meantime is not beside it.
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
