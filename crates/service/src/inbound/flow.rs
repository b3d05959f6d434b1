//! Measures the flow of one source as its bytes arrive.

use std::{
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use posthaste_types::{ByteRate, Bytes};

use crate::monotonic;

/// Shortest window.
const WINDOW: Duration = Duration::from_millis(900);

/// Bytes that arrived in a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sample {
    pub(crate) bytes: Bytes,
    pub(crate) window: Duration,
    /// True if there was something to fetch since before the window opened, and nothing here held
    /// it back.
    pub(crate) saturated: bool,
}

#[derive(Debug, Default)]
struct Window {
    opened: Option<Instant>,
    bytes: u64,
    /// Sum over all closed windows.
    closed: u64,
    fetches: u32,
    /// Total that ever came from the source at the last look, for a source measured by its total.
    seen: Option<u64>,
    /// Nothing was asked for at some time of the window, or it was only just begun, or was held back by who asked.
    was_idle: bool,
    latest: ByteRate,
}

/// Counts the bytes from one source.
#[derive(Debug, Default)]
pub(crate) struct Flow {
    window: Mutex<Window>,
}

impl Flow {
    fn with<T>(&self, change: impl FnOnce(&mut Window) -> T) -> T {
        change(&mut self.window.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Notes a request to the source until the returned value is dropped.
    pub(crate) fn begin(&self) -> Fetching<'_> {
        let now = monotonic();
        self.with(|window| {
            window.was_idle |= window.fetches == 0;
            window.fetches += 1;
            window.opened.get_or_insert(now);
        });
        Fetching { flow: self }
    }

    pub(crate) fn add(&self, bytes: usize) {
        self.with(|window| window.bytes += bytes as u64);
    }

    /// Updates the total that ever came from the source. Bytes since the last look count while a
    /// request is open.
    pub(crate) fn catch_up(&self, total: u64) {
        self.with(|window| {
            let before = window.seen.replace(total).unwrap_or(total);
            window.bytes += total.saturating_sub(before);
        });
    }

    /// Window that its asker holds back: that it is open says only that so much may come.
    pub(crate) fn hold_back(&self) {
        self.with(|window| window.was_idle |= window.opened.is_some());
    }

    /// Returns all bytes that ever arrived from the source.
    pub(crate) fn total(&self) -> Bytes {
        self.with(|window| Bytes::new(window.closed + window.bytes))
    }

    /// Returns the recent rate of the source.
    pub(crate) fn latest(&self) -> ByteRate {
        self.with(|window| window.latest)
    }

    /// Returns the sample of the window that ends now, if it is long enough and had requests.
    pub(crate) fn sample(&self, now: Instant) -> Option<Sample> {
        self.with(|window| {
            let opened = window.opened?;
            let span = now.duration_since(opened);
            if span < WINDOW {
                return None;
            }
            let sample = Sample {
                bytes: Bytes::new(window.bytes),
                window: span,
                saturated: !window.was_idle,
            };
            window.latest = ByteRate::over(sample.bytes, span);
            window.closed += window.bytes;
            window.bytes = 0;
            window.was_idle = window.fetches == 0;
            window.opened = (window.fetches > 0).then_some(now);
            Some(sample)
        })
    }
}

/// Fetch under way.
pub(crate) struct Fetching<'a> {
    flow: &'a Flow,
}

impl Drop for Fetching<'_> {
    fn drop(&mut self) {
        self.flow.with(|window| {
            window.fetches -= 1;
            window.was_idle |= window.fetches == 0;
            if window.fetches == 0 {
                window.seen = None;
            }
            if window.fetches == 0 && window.bytes == 0 {
                (window.opened, window.latest) = (None, ByteRate::ZERO);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_says_what_came_and_whether_there_was_always_something_to_fetch() {
        let flow = Flow::default();
        let start = monotonic();
        assert_eq!(flow.sample(start + Duration::from_secs(5)), None);
        let first = flow.begin();
        flow.add(500);
        let begun = flow.sample(monotonic() + Duration::from_secs(1)).unwrap();
        assert!(begun.bytes == Bytes::new(500) && !begun.saturated);
        flow.add(700);
        let full = flow.sample(monotonic() + Duration::from_secs(2)).unwrap();
        assert!(full.bytes == Bytes::new(700) && full.saturated);
        flow.hold_back();
        flow.add(600);
        let held = flow.sample(monotonic() + Duration::from_secs(3)).unwrap();
        assert!(held.bytes == Bytes::new(600) && !held.saturated);
        flow.add(1);
        assert_eq!(flow.total(), Bytes::new(1801));
        drop(first);
        let last = flow.sample(monotonic() + Duration::from_secs(9));
        assert!(last.is_none_or(|last| !last.saturated), "{last:?}");
    }
}
