//! A rate that all its users share, which may change meanwhile.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use posthaste_types::{ByteRate, Bytes};
use tokio::{sync::watch, time::timeout};

use crate::clock;

/// Most time saved up while nothing was sent: a pause doesn't become a burst.
const SAVED_UP_MAX: Duration = Duration::from_millis(100);

/// Interval at which a waiting thread checks whether the rate has changed.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// Limit on a rate. Clones share it; without a rate it costs nothing.
#[derive(Debug, Clone)]
pub struct Throttle {
    state: Arc<State>,
}

#[derive(Debug)]
struct State {
    rate: watch::Sender<Option<ByteRate>>,
    next: Mutex<Instant>,
}

impl Default for Throttle {
    fn default() -> Self {
        Self::new(None)
    }
}

impl Throttle {
    /// Returns a throttle that starts with this rate; `None` and zero are no limit.
    #[must_use]
    pub fn new(rate: Option<ByteRate>) -> Self {
        let (rate, _) = watch::channel(rate.filter(|rate| rate.get() > 0));
        let next = Mutex::new(clock::now());
        Self {
            state: Arc::new(State { rate, next }),
        }
    }

    /// Changes the rate, for present waits too.
    pub fn set(&self, rate: Option<ByteRate>) {
        let rate = rate.filter(|rate| rate.get() > 0);
        self.state.rate.send_if_modified(|now| {
            let changed = *now != rate;
            if changed {
                *self.next() = clock::now();
                *now = rate;
            }
            changed
        });
    }

    fn next(&self) -> std::sync::MutexGuard<'_, Instant> {
        let next = self.state.next.lock();
        next.unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether the rate holds back the next bytes: more went lately than it had carried by
    /// now.
    #[must_use]
    pub fn is_in_debt(&self) -> bool {
        self.state.rate.borrow().is_some() && *self.next() > clock::now()
    }

    /// Reserves `bytes` at the current rate and returns the wait until they may go.
    fn wait_for(&self, bytes: u64) -> Duration {
        let Some(rate) = *self.state.rate.borrow() else {
            return Duration::ZERO;
        };
        let now = clock::now();
        let mut next = self.next();
        let start = (*next).max(now.checked_sub(SAVED_UP_MAX).unwrap_or(now));
        *next = start + rate.time_for(Bytes::new(bytes));
        next.saturating_duration_since(now)
    }

    /// Waits until `bytes` may go.
    pub async fn pass(&self, bytes: u64) {
        let mut rate = self.state.rate.subscribe();
        loop {
            let wait = self.wait_for(bytes);
            if wait.is_zero() || timeout(wait, rate.changed()).await.is_err() {
                return;
            }
        }
    }

    /// Waits as [`Self::pass`] does, but blocks the thread.
    pub fn pass_blocking(&self, bytes: u64) {
        let mut rate = self.state.rate.subscribe();
        loop {
            let until = clock::now() + self.wait_for(bytes);
            loop {
                let left = until.saturating_duration_since(clock::now());
                if left.is_zero() {
                    return;
                }
                if rate.has_changed().unwrap_or(true) {
                    rate.mark_unchanged();
                    break;
                }
                std::thread::sleep(left.min(LOOK_EVERY));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_wait_for_those_before_them() {
        let throttle = Throttle::new(Some(ByteRate::new(1_000_000)));
        let began = clock::now();
        let first = throttle.wait_for(500_000);
        let second = throttle.wait_for(500_000);
        assert!(first <= Duration::from_millis(500));
        let second = began.elapsed() + second;
        assert!(second > Duration::from_millis(800), "{second:?}");
        assert!(throttle.is_in_debt());
        let free = Throttle::new(None);
        assert_eq!(free.wait_for(u64::MAX), Duration::ZERO);
        assert!(!free.is_in_debt());
        throttle.set(Some(ByteRate::new(1)));
        assert!(!throttle.is_in_debt(), "nothing went at that rate yet");
    }

    #[tokio::test]
    async fn a_new_rate_ends_the_wait_for_the_old_one() {
        let throttle = Throttle::new(Some(ByteRate::new(1)));
        let changing = throttle.clone();
        let change = async {
            tokio::time::sleep(Duration::from_millis(20)).await;
            changing.set(None);
        };
        let both = async { tokio::join!(throttle.pass(1_000_000), change) };
        timeout(Duration::from_secs(120), both).await.unwrap();
        assert_eq!(throttle.wait_for(1_000_000), Duration::ZERO);
    }

    #[tokio::test]
    async fn who_waits_by_the_old_rate_waits_by_the_new_one() {
        let throttle = Throttle::new(Some(ByteRate::new(1)));
        let (began, changing) = (clock::now(), throttle.clone());
        let change = async {
            tokio::time::sleep(Duration::from_millis(20)).await;
            changing.set(Some(ByteRate::new(1_000_000)));
        };
        let on_thread = throttle.clone();
        let thread = tokio::task::spawn_blocking(move || on_thread.pass_blocking(500_000));
        let (_, (), ended) = tokio::join!(throttle.pass(500_000), change, thread);
        ended.unwrap();
        // Each pass is the first or the second half of a MB in a second.
        assert!(began.elapsed() > Duration::from_millis(800));
        let before = throttle.wait_for(1_000_000);
        throttle.set(Some(ByteRate::new(1_000_000)));
        assert!(
            throttle.wait_for(1_000_000) > before,
            "what is known is no news"
        );
    }
}
