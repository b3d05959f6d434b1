use core::time::Duration;
use posthaste_types::{ByteRate, Bytes, Timestamp, record};

/// Shortest interval between looks at fragments that may start, if a chunk is large enough for
/// that: each look costs a step.
const LOOK_EVERY: Duration = Duration::from_millis(50);

record! {
    /// Throttle of one request's sends: a token bucket in the form of the generic cell rate
    /// algorithm (ITU-T I.371, Annex A). Its state is one moment, and no rounding favours either
    /// side.
    ///
    /// A fragment may start once all before it are paid for. So in any span no more starts than the
    /// rate carries in it, and one fragment, and what [`Throttle::slack`] lets run ahead.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
    pub(crate) struct Throttle {
        rate: Option<ByteRate>,
        /// Time at which everything that has started is paid for.
        paid_at: Timestamp,
    }
}

impl Throttle {
    /// Throttle without a limit.
    pub(crate) const FREE: Self = Self {
        rate: None,
        paid_at: Timestamp::from_micros(0),
    };

    pub(crate) fn new(rate: Option<ByteRate>) -> Self {
        Self {
            rate,
            paid_at: Timestamp::default(),
        }
    }

    /// Returns whether anything may start now.
    pub(crate) fn is_open(&self, now: Timestamp) -> bool {
        match self.rate {
            None => true,
            Some(rate) => rate > ByteRate::ZERO && self.paid_at <= now,
        }
    }

    /// Returns when to look again, while nothing may start: a little later than it might, so that
    /// several start at one look. None if waiting won't help.
    pub(crate) fn opens_at(&self, now: Timestamp, spare: Bytes) -> Option<Timestamp> {
        let is_waiting = !self.is_open(now) && self.rate? > ByteRate::ZERO;
        is_waiting.then(|| self.paid_at + self.slack(spare))
    }

    /// Counts a fragment that starts. With it `spare` more may start at one moment.
    pub(crate) fn take(&mut self, now: Timestamp, bytes: Bytes, spare: Bytes) {
        if let Some(rate) = self.rate {
            let since = self.paid_at.max(now - self.slack(spare));
            self.paid_at = since + rate.time_for(bytes) + Duration::from_micros(1);
        }
    }

    /// Sets another rate: unpaid starts are paid at that one.
    pub(crate) fn set_rate(&mut self, now: Timestamp, rate: Option<ByteRate>) {
        let before = core::mem::replace(&mut self.rate, rate);
        let owed = before.map_or(Bytes::ZERO, |before| {
            before.volume(self.paid_at.since(now)) + Bytes::new(1)
        });
        self.paid_at = match rate {
            Some(rate) if rate > ByteRate::ZERO && self.paid_at > now => now + rate.time_for(owed),
            Some(_) | None => self.paid_at.min(now),
        };
    }

    /// Returns how far starts may run ahead of the rate.
    fn slack(&self, spare: Bytes) -> Duration {
        let ahead = self
            .rate
            .map_or(Duration::ZERO, |rate| rate.time_for(spare));
        ahead.min(LOOK_EVERY)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    const NOW: Timestamp = Timestamp::from_secs(1000);

    proptest! {
        /// Checks that frequent looks never start more in a span than the rate carries and a chunk.
        /// Looks at the given times must lose nothing of the rate.
        #[test]
        fn no_span_carries_more_than_the_rate_and_a_chunk(
            rate in 1000u64..10_000_000,
            fragment in 1u64..200_000,
            fragments in 1u64..6,
            idle in proptest::collection::vec(0u64..3_000_000, 0..6),
        ) {
            let chunk = fragment * fragments;
            let spare = Bytes::new(chunk - fragment);
            let mut throttle = Throttle::new(Some(ByteRate::new(rate)));
            let (mut now, mut starts) = (NOW, Vec::new());
            let mut idle = idle.into_iter();
            for turn in 0..300 {
                while throttle.is_open(now) {
                    throttle.take(now, Bytes::new(fragment), spare);
                    starts.push(now);
                }
                let next = throttle.opens_at(now, spare).unwrap();
                prop_assert!(next > now);
                now = next;
                if turn % 50 == 0 {
                    now = now + Duration::from_micros(idle.next().unwrap_or(0));
                }
            }
            for (first, &from) in starts.iter().enumerate() {
                for (last, &to) in starts.iter().enumerate().skip(first) {
                    let carried = fragment * (last - first + 1) as u64;
                    let most = ByteRate::new(rate).volume(to.since(from)).get() + chunk;
                    prop_assert!(carried <= most, "{carried} of {most} from {from} to {to}");
                }
            }
        }

        #[test]
        fn looking_when_told_to_loses_nothing_of_the_rate(
            rate in 1000u64..1_000_000, fragment in 1000u64..200_000, spare in 0u64..500_000,
        ) {
            let mut throttle = Throttle::new(Some(ByteRate::new(rate)));
            let (mut now, mut sent) = (NOW, 0);
            while now < NOW + Duration::from_secs(100) {
                while throttle.is_open(now) {
                    throttle.take(now, Bytes::new(fragment), Bytes::new(spare));
                    sent += fragment;
                }
                now = throttle.opens_at(now, Bytes::new(spare)).unwrap();
            }
            prop_assert!(sent + fragment + sent / 500 >= rate * 100, "{sent} of {}", rate * 100);
        }
    }

    #[test]
    fn without_a_rate_all_may_start_and_with_none_nothing() {
        let mut free = Throttle::new(None);
        free.take(NOW, Bytes::mebi(1), Bytes::ZERO);
        assert!(free.is_open(NOW) && free.opens_at(NOW, Bytes::ZERO).is_none());
        let shut = Throttle::new(Some(ByteRate::ZERO));
        assert!(!shut.is_open(NOW) && shut.opens_at(NOW, Bytes::ZERO).is_none());
    }

    #[test]
    fn what_is_owed_is_paid_at_the_new_rate() {
        let mut throttle = Throttle::new(Some(ByteRate::new(1000)));
        throttle.take(NOW, Bytes::new(10_000), Bytes::ZERO);
        throttle.set_rate(NOW + Duration::from_secs(5), Some(ByteRate::new(5000)));
        assert!(!throttle.is_open(NOW + Duration::from_millis(5990)));
        assert!(throttle.is_open(NOW + Duration::from_millis(6010)));
        throttle.set_rate(NOW + Duration::from_secs(5), None);
        assert!(throttle.is_open(NOW + Duration::from_secs(5)));
    }
}
