//! The centre's way out, where what it carries is known: whether it is full.
//!
//! What shares a full way out shares it evenly, whoever is in a hurry. So whoever is not waits, and what a
//! depot took meanwhile says only what its own path carries at least.

use alloc::vec::Vec;
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
        pub(crate) depot: DepotId,
        pub(crate) bytes: Bytes,
        pub(crate) window: Duration,
        /// Nothing but its path was seen to hold it back.
        pub(crate) saturated: bool,
    }
}

impl Taken {
    pub(crate) fn rate(&self) -> ByteRate {
        ByteRate::over(self.bytes, self.window)
    }
}

record! {
    /// What all depots together took lately.
    #[derive(Debug, Clone, PartialEq, Eq, Default)]
    pub(crate) struct WayOut {
        /// Since when measurements of one time come in, and those that came so far.
        at: Timestamp,
        coming: Vec<Taken>,
        /// What those of the time before came to, and the fastest of them.
        rate: ByteRate,
        share: ByteRate,
    }
}

impl WayOut {
    /// Takes what one depot took. Returns what all took the time before, once that is known: before all are counted nobody
    /// knows what held one back.
    pub(crate) fn observe(&mut self, now: Timestamp, taken: Taken) -> Vec<Taken> {
        let is_next = self.is_over(now, taken.window)
            || self.coming.iter().any(|other| other.depot == taken.depot);
        let before = if is_next { self.close(now) } else { Vec::new() };
        self.coming.push(taken);
        before
    }

    /// The same where no more came for long enough.
    pub(crate) fn settle(&mut self, now: Timestamp) -> Vec<Taken> {
        let window = self.coming.first().map(|taken| taken.window);
        match window {
            Some(window) if self.is_over(now, window) => self.close(now),
            Some(_) | None => Vec::new(),
        }
    }

    /// What is measured at one time comes within half of what it is measured over.
    fn is_over(&self, now: Timestamp, window: Duration) -> bool {
        now >= self.at + window / 2
    }

    fn close(&mut self, now: Timestamp) -> Vec<Taken> {
        let taken = core::mem::take(&mut self.coming);
        let rates = taken.iter().map(Taken::rate);
        self.rate = rates.clone().fold(ByteRate::ZERO, |sum, rate| sum + rate);
        self.share = rates.max().unwrap_or_default();
        self.at = now;
        taken
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

    /// Whether a depot took so much only because the way out carries no more: what is slower than the
    /// share of others is slow by itself.
    pub(crate) fn is_held_by_way_out(&self, rate: ByteRate) -> bool {
        self.is_way_out_full() && rate >= self.way_out.share.scaled(SHARE_PERCENT, 100)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW: Duration = Duration::from_secs(1);

    const fn taken(depot: u32, bytes: u64) -> Taken {
        Taken {
            depot: DepotId::new(depot),
            bytes: Bytes::new(bytes),
            window: WINDOW,
            saturated: true,
        }
    }

    const fn at(millis: u64) -> Timestamp {
        Timestamp::from_micros(millis * 1000)
    }

    #[test]
    fn what_one_depot_took_is_judged_by_what_all_took_at_that_time() {
        let mut way_out = WayOut::default();
        assert_eq!(way_out.observe(at(1000), taken(1, 17)), []);
        assert_eq!(way_out.observe(at(1001), taken(2, 14)), []);
        // Three more share it now: all of them are known before the first is judged.
        let before = way_out.observe(at(2000), taken(1, 9));
        assert_eq!(before, [taken(1, 17), taken(2, 14)]);
        assert_eq!((way_out.rate.get(), way_out.share.get()), (31, 17));
        for depot in 2..=5 {
            assert_eq!(way_out.observe(at(2000), taken(depot, 9)), []);
        }
        assert_eq!(way_out.settle(at(2300)), [], "more may come");
        assert_eq!(way_out.settle(at(2500)).len(), 5);
        assert_eq!((way_out.rate.get(), way_out.share.get()), (45, 9));
        assert_eq!(way_out.settle(at(9000)), []);
    }

    #[test]
    fn a_depot_that_is_measured_again_begins_another_time() {
        let mut way_out = WayOut::default();
        way_out.observe(at(1000), taken(1, 5));
        assert_eq!(way_out.observe(at(1100), taken(1, 6)), [taken(1, 5)]);
    }
}
