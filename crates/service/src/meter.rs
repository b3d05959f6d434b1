//! What each depot really takes, measured on the sends themselves.

use std::{
    sync::Mutex,
    time::{Duration, Instant},
};

use posthaste_types::{ByteRate, Bytes};

/// A window closes at the earliest after this long…
const WINDOW_MIN: Duration = Duration::from_millis(900);
/// …and with this many acknowledgements, so that one fragment isn't taken for a rate…
const ACKNOWLEDGED_MIN: u32 = 3;
/// …unless it has been open this long.
const WINDOW_MAX: Duration = Duration::from_secs(5);
/// A window busy for at least this share, in per cent, says what the depot can take; a less busy
/// one only what it took (a censored sample: `docs/algorithms/bandwidth-forecast.md`).
const BUSY_PERCENT_MIN: u128 = 95;

/// One depot's meter.
#[derive(Debug)]
pub(crate) struct Meter {
    window: Mutex<Window>,
}

#[derive(Debug)]
struct Window {
    opened: Instant,
    in_flight: u32,
    busy_since: Option<Instant>,
    busy: Duration,
    bytes: u64,
    acknowledged: u32,
    latest: ByteRate,
}

/// A closed window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sample {
    /// Bytes acknowledged.
    pub(crate) bytes: Bytes,
    /// Time with something in flight.
    pub(crate) window: Duration,
    /// Whether there was always something in flight.
    pub(crate) saturated: bool,
}

impl Meter {
    pub(crate) fn new(now: Instant) -> Self {
        Self {
            window: Mutex::new(Window {
                opened: now,
                in_flight: 0,
                busy_since: None,
                busy: Duration::ZERO,
                bytes: 0,
                acknowledged: 0,
                latest: ByteRate::ZERO,
            }),
        }
    }

    fn with<T>(&self, change: impl FnOnce(&mut Window) -> T) -> T {
        change(
            &mut self
                .window
                .lock()
                .unwrap_or_else(std::sync::PoisonError::into_inner),
        )
    }

    /// A send starts.
    pub(crate) fn on_start(&self, now: Instant) {
        self.with(|window| {
            window.in_flight += 1;
            window.busy_since.get_or_insert(now);
        });
    }

    /// A send ended, with this many bytes stored.
    pub(crate) fn on_end(&self, now: Instant, stored: Bytes) {
        self.with(|window| {
            window.in_flight = window.in_flight.saturating_sub(1);
            window.bytes += stored.get();
            window.acknowledged += u32::from(stored > Bytes::ZERO);
            if window.in_flight == 0
                && let Some(since) = window.busy_since.take()
            {
                window.busy += now.duration_since(since);
            }
        });
    }

    /// Closes the window if it is time to, and opens the next.
    pub(crate) fn sample(&self, now: Instant) -> Option<Sample> {
        self.with(|window| {
            let open_for = now.duration_since(window.opened);
            let enough = window.acknowledged >= ACKNOWLEDGED_MIN || open_for >= WINDOW_MAX;
            if open_for < WINDOW_MIN || !enough {
                return None;
            }
            let busy = window.busy
                + window
                    .busy_since
                    .map_or(Duration::ZERO, |since| now.duration_since(since));
            let sample = (window.acknowledged > 0 && !busy.is_zero()).then(|| Sample {
                bytes: Bytes::new(window.bytes),
                window: busy,
                saturated: busy.as_micros() * 100 >= open_for.as_micros() * BUSY_PERCENT_MIN,
            });
            window.latest = ByteRate::over(Bytes::new(window.bytes), open_for);
            window.opened = now;
            window.busy = Duration::ZERO;
            window.busy_since = window.busy_since.map(|_| now);
            window.bytes = 0;
            window.acknowledged = 0;
            sample
        })
    }

    /// The rate over the last closed window; zero when nothing was sent for long.
    pub(crate) fn latest(&self, now: Instant) -> ByteRate {
        self.with(|window| {
            let stale = now.duration_since(window.opened) > WINDOW_MAX + WINDOW_MIN;
            if stale { ByteRate::ZERO } else { window.latest }
        })
    }

    /// Whether nothing is on its way.
    pub(crate) fn is_idle(&self) -> bool {
        self.with(|window| window.in_flight == 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(start: Instant, millis: u64) -> Instant {
        start + Duration::from_millis(millis)
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "a test needs some moment to start from"
    )]
    fn start() -> Instant {
        Instant::now()
    }

    #[test]
    fn a_busy_second_is_a_rate() {
        let start = start();
        let meter = Meter::new(start);
        meter.on_start(start);
        for step in 1..=4 {
            meter.on_start(after(start, step * 250));
            meter.on_end(after(start, step * 250), Bytes::new(1000));
        }
        assert_eq!(
            meter.sample(after(start, 1000)),
            Some(Sample {
                bytes: Bytes::new(4000),
                window: Duration::from_secs(1),
                saturated: true
            })
        );
        assert_eq!(meter.latest(after(start, 1000)), ByteRate::new(4000));
    }

    #[test]
    fn idle_time_does_not_count_and_says_the_sample_is_a_lower_bound() {
        let start = start();
        let meter = Meter::new(start);
        for step in 0..3 {
            meter.on_start(after(start, step * 300));
            meter.on_end(after(start, step * 300 + 100), Bytes::new(500));
        }
        let sample = meter.sample(after(start, 1000)).unwrap();
        assert_eq!(
            (sample.window, sample.saturated),
            (Duration::from_millis(300), false)
        );
    }

    #[test]
    fn a_window_stays_open_until_it_says_something() {
        let start = start();
        let meter = Meter::new(start);
        meter.on_start(start);
        assert_eq!(meter.sample(after(start, 1000)), None);
        meter.on_end(after(start, 1500), Bytes::new(500));
        assert_eq!(meter.sample(after(start, 2000)), None);
        assert!(meter.sample(after(start, 5000)).is_some());
        assert_eq!(
            meter.sample(after(start, 10_001)),
            None,
            "nothing was acknowledged"
        );
    }
}
