//! One rate for all lanes of a copy.

use std::{
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use posthaste_types::{ByteRate, Bytes};

use super::clock;

/// Most time saved up while nothing was sent: a pause doesn't become a burst.
const SAVED_UP_MAX: Duration = Duration::from_millis(100);

/// Hands out moments at which bytes may go. Without a rate it costs nothing.
#[derive(Debug)]
pub(super) struct Throttle {
    rate: Option<ByteRate>,
    next: Mutex<Instant>,
}

impl Throttle {
    pub(super) fn new(rate: Option<ByteRate>) -> Self {
        Self {
            rate: rate.filter(|rate| rate.get() > 0),
            next: Mutex::new(clock::now()),
        }
    }

    /// How long to wait before `bytes` go.
    pub(super) fn wait_for(&self, bytes: u64) -> Duration {
        let Some(rate) = self.rate else {
            return Duration::ZERO;
        };
        let now = clock::now();
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        let start = (*next).max(now.checked_sub(SAVED_UP_MAX).unwrap_or(now));
        *next = start + rate.time_for(Bytes::new(bytes));
        next.saturating_duration_since(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_wait_for_those_before_them() {
        let throttle = Throttle::new(Some(ByteRate::new(1_000_000)));
        let first = throttle.wait_for(500_000);
        let second = throttle.wait_for(500_000);
        assert!(first <= Duration::from_millis(500));
        assert!(second > Duration::from_millis(800), "{second:?}");
        assert_eq!(Throttle::new(None).wait_for(u64::MAX), Duration::ZERO);
    }
}
