use alloc::vec::Vec;
use core::time::Duration;
use posthaste_types::{ByteRate, Bytes};

/// First congestion window, in bytes: ten segments (RFC 6928).
const FIRST_WINDOW: u64 = 10 * 1460;
/// Shortest time over which a probe shows the rate of a path.
const AVERAGED_MIN: Duration = Duration::from_secs(1);
/// Longest averaged time of a probe, after slow start.
const AVERAGED_MAX: Duration = Duration::from_secs(3);
/// Start of the average of a probe that ended inside slow start.
const BOUND_MIN: Duration = Duration::from_millis(200);
/// Longest probe, whatever the round trip: a path still in slow start by then is slow.
const SPAN_MAX: Duration = Duration::from_secs(20);
/// Time between two marks that are kept: more of them only cost memory.
const MARK_EVERY: Duration = Duration::from_millis(20);

/// A probe under way, which decides when it has seen enough, and its result.
///
/// Probes are limited by time, not by size: on a fast path any affordable size would end inside
/// slow start. Slow start is over after `n_ss + 2` round trips, `n_ss = log2(W / IW)` with the
/// window W = rate x round trip. The bytes of the next 1 to 3 s are averaged
/// (`docs/algorithms/bandwidth-forecast.md`).
#[derive(Debug, Clone)]
pub struct Probe {
    round_trip: Duration,
    budget: Bytes,
    /// Times since the first byte, and bytes carried until then.
    marks: Vec<(Duration, Bytes)>,
}

/// Result of a probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Finding {
    /// Bytes carried in the averaged time.
    pub bytes: Bytes,
    /// Averaged time; zero if there is no result.
    pub window: Duration,
    /// The probe ended before it was averaged for a second: the path carries at least this.
    pub is_bound: bool,
}

impl Probe {
    /// Returns a probe of at most `budget` over a path with this round trip.
    #[must_use]
    pub fn new(round_trip: Duration, budget: Bytes) -> Self {
        Self {
            round_trip,
            budget,
            marks: Vec::new(),
        }
    }

    /// Records that `carried` bytes in all arrived until `after` its first byte. Only the last mark
    /// within 20 ms is kept, so that there are at most some thousand.
    pub fn mark(&mut self, after: Duration, carried: Bytes) {
        let marks = self.marks.len();
        let before = marks.checked_sub(2).map(|place| self.marks[place].0);
        let is_close = before.is_some_and(|before| after < before + MARK_EVERY);
        match self.marks.last_mut() {
            Some(last) if is_close => *last = (after, carried),
            _ => self.marks.push((after, carried)),
        }
    }

    /// Returns whether the probe should go on, `after` its first byte and with `sent` bytes sent or
    /// delivered.
    #[must_use]
    pub fn goes_on(&self, after: Duration, sent: Bytes) -> bool {
        let most = (self.slow_start() + AVERAGED_MAX).min(SPAN_MAX);
        after < most && sent < self.budget
    }

    /// Returns the time slow start takes at the rate seen so far.
    fn slow_start(&self) -> Duration {
        let rate = self
            .marks
            .last()
            .map_or(ByteRate::ZERO, |(after, carried)| {
                ByteRate::over(*carried, *after)
            });
        let windows = rate.volume(self.round_trip).get().div_ceil(FIRST_WINDOW);
        let doublings = windows.max(1).next_power_of_two().trailing_zeros();
        self.round_trip * (doublings + 2)
    }

    /// Returns the result.
    #[must_use]
    pub fn finding(&self) -> Finding {
        let (ended, carried) = self.marks.last().copied().unwrap_or_default();
        let slow_start = self.slow_start();
        let warm = self.marks.iter().find(|(after, _)| *after >= slow_start);
        let since = |(after, before): (Duration, Bytes)| (carried - before, ended - after);
        let averaged = warm.copied().map(since);
        let averaged = averaged.filter(|(_, window)| *window >= BOUND_MIN);
        let (bytes, window) = averaged.unwrap_or((carried, ended));
        Finding {
            bytes,
            window,
            is_bound: averaged.is_none_or(|(_, window)| window < AVERAGED_MIN),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Plays a probe over a path of `rate` whose window begins at ten segments and doubles each
    /// round trip; marks come every 20 ms. Returns its result, its time and the bytes it sent.
    fn play(rate: u64, round_trip_ms: u64, budget: u64) -> (Finding, Duration, Bytes) {
        let round_trip = Duration::from_millis(round_trip_ms);
        let mut probe = Probe::new(round_trip, Bytes::new(budget));
        let (mut carried, mut after_ms) = (0, 0);
        while probe.goes_on(Duration::from_millis(after_ms), Bytes::new(carried)) {
            let doublings = u32::try_from(after_ms / round_trip_ms).unwrap().min(40);
            let window = FIRST_WINDOW << doublings;
            carried += (rate / 50).min(window * 20 / round_trip_ms);
            carried = carried.min(budget);
            after_ms += 20;
            probe.mark(Duration::from_millis(after_ms), Bytes::new(carried));
        }
        let span = Duration::from_millis(after_ms);
        (probe.finding(), span, Bytes::new(carried))
    }

    fn rate(finding: Finding) -> u64 {
        ByteRate::over(finding.bytes, finding.window).get()
    }

    #[test]
    fn slow_start_is_left_out_of_what_a_probe_shows() {
        for (mebi, round_trip_ms) in [(1, 20), (12, 60), (120, 60), (1200, 60), (120, 300)] {
            let path = mebi << 20;
            let (finding, span, sent) = play(path, round_trip_ms, u64::MAX);
            let what = (mebi, round_trip_ms, finding);
            assert!(!finding.is_bound, "{what:?}");
            assert!(rate(finding).abs_diff(path) * 50 < path, "{what:?}");
            // An average that included slow start would be lower.
            assert!(ByteRate::over(sent, span) < ByteRate::new(path), "{what:?}");
            assert!(span < Duration::from_secs(9), "{what:?} took {span:?}");
        }
    }

    #[test]
    fn a_budget_that_ends_inside_slow_start_gives_a_lower_bound() {
        let path = 1200 << 20;
        let (finding, _, sent) = play(path, 60, 20 << 20);
        assert!(finding.is_bound, "{finding:?}");
        assert!(rate(finding) < path && rate(finding) > 0, "{finding:?}");
        assert_eq!(sent, Bytes::mebi(20));
    }

    #[test]
    fn a_budget_that_ends_soon_after_slow_start_gives_a_lower_bound_too() {
        let (finding, ..) = play(20 << 20, 20, 16 << 20);
        assert!(finding.is_bound && !finding.window.is_zero(), "{finding:?}");
        let (finding, ..) = play(20 << 20, 20, 40 << 20);
        assert!(!finding.is_bound, "{finding:?}");
    }

    #[test]
    fn a_probe_that_carried_nothing_shows_nothing() {
        let probe = Probe::new(Duration::from_millis(10), Bytes::mebi(1));
        assert_eq!(probe.finding().window, Duration::ZERO);
        assert!(probe.goes_on(Duration::from_secs(2), Bytes::ZERO));
        assert!(!probe.goes_on(Duration::from_secs(21), Bytes::ZERO));
    }
}
