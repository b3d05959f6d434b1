//! Limit on the rate of all bodies together.

use std::{
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use posthaste_types::{ByteRate, Bytes};
use tokio::time::{Instant, sleep_until};

/// Burst after a pause: enough to hide the timer's grain, too little to notice.
const BURST: Duration = Duration::from_millis(50);

/// Token bucket, kept as the moment at which everything used so far is paid for.
#[derive(Debug)]
pub(crate) struct RateLimit {
    rate: Option<ByteRate>,
    paid_at: Mutex<Instant>,
    taken_bytes: AtomicU64,
}

impl RateLimit {
    pub(crate) fn new(rate: Option<ByteRate>) -> Self {
        Self {
            rate,
            paid_at: Mutex::new(Instant::now()),
            taken_bytes: AtomicU64::new(0),
        }
    }

    pub(crate) fn rate(&self) -> Option<ByteRate> {
        self.rate
    }

    /// Returns all bytes used so far.
    pub(crate) fn taken_bytes(&self) -> u64 {
        self.taken_bytes.load(Ordering::Relaxed)
    }

    /// Returns when `bytes` more may be used. First come, first served.
    pub(crate) async fn take(&self, bytes: usize) {
        self.taken_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        let Some(rate) = self.rate else { return };
        let due = {
            let mut paid_at = self.paid_at.lock().unwrap_or_else(PoisonError::into_inner);
            let now = Instant::now();
            let start = (*paid_at).max(now.checked_sub(BURST).unwrap_or(now));
            *paid_at = start + rate.time_for(Bytes::new(bytes as u64));
            *paid_at
        };
        sleep_until(due).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn bytes_pass_at_the_rate_however_many_take_them() {
        let limit = RateLimit::new(Some(ByteRate::new(1_000_000)));
        let start = Instant::now();
        let takers = (0..4).map(|_| async {
            for _ in 0..50 {
                limit.take(10_000).await;
            }
        });
        futures_util::future::join_all(takers).await;
        let took = start.elapsed();
        assert!(
            (Duration::from_millis(1900)..Duration::from_millis(2050)).contains(&took),
            "{took:?}"
        );
    }
}
