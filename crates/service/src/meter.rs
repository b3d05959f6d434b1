//! Measures the real intake of each depot by the sends themselves.
//!
//! Bytes count as they arrive, as the kernels at both ends of a connection know, if that is known
//! in time. Then fragments that end together, half of them just before the meter is read, cause no
//! error, and a path that slows down shows before they end.
//!
//! Otherwise bytes count when the depot has acknowledged them, and a window reaches from one
//! acknowledgement to another: as much is under way at its end as at its start. If that takes too
//! long, because fragments are large for the current rate, bytes count as they arrive until all
//! sends of that moment have ended. Through gateways the arrival can't be seen from here, only that
//! something moves. The window then stays open until an acknowledgement: all of those bytes arrived
//! in all of that time.
//!
//! A burst of sends begins with nothing under way. Bytes that arrive before its first
//! acknowledgement don't count. Bytes acknowledged until all sends from before that have ended give
//! only a lower bound (`docs/algorithms/bandwidth-forecast.md`).

use std::{
    sync::Mutex,
    time::{Duration, Instant},
};

use posthaste_types::{ByteRate, Bytes};

/// Least age at which a window closes…
const WINDOW_MIN: Duration = Duration::from_millis(900);
/// …and with this many acknowledgements, so that one fragment doesn't count as a rate…
const ACKNOWLEDGED_MIN: u32 = 3;
/// …unless the window has been open this long.
const WINDOW_MAX: Duration = Duration::from_secs(5);
/// Least busy share of a window, in per cent, for a measurement of the depot's capacity; a less
/// busy one gives a lower bound (a censored sample).
const BUSY_PERCENT_MIN: u128 = 95;
/// Shortest busy time that allows a measurement.
const BUSY_MIN: Duration = Duration::from_millis(1);
/// Shortest window in which bytes count as they arrive: a connection whose path has just slowed
/// down needs a while to find its pace…
const SEEN_MIN: Duration = Duration::from_millis(1400);
/// …and the fewest bytes that count as a rate: status calls are bytes too.
const SEEN_BYTES_MIN: u64 = 64 << 10;
/// Pause after which sends are a new burst: connections have begun to forget their speed.
const PAUSE_MIN: Duration = Duration::from_secs(1);

/// Meter of one depot.
#[derive(Debug)]
pub(crate) struct Meter {
    window: Mutex<Window>,
}

/// Progress of a burst of sends in filling the path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ramp {
    /// Nothing acknowledged yet.
    Filling,
    /// Sends still under way that began before the first acknowledgement.
    Draining(u32),
    /// Path is full: bytes arrive at the rate at which they leave.
    Over,
}

#[derive(Debug)]
struct Window {
    opened: Instant,
    /// Last look at whether anything moves, if nothing was acknowledged since the window opened.
    unheard_since: Instant,
    in_flight: u32,
    /// Number of sends that give way, and whether there were any in this window: their rate is only
    /// a lower bound.
    humble: u32,
    was_humble: bool,
    /// Number of sends by movers, which report arrivals from time to time, and whether there were
    /// any in this window.
    told: u32,
    was_told: bool,
    /// Set while some of the bytes under way use another way.
    is_turning: bool,
    busy_since: Option<Instant>,
    idle_since: Option<Instant>,
    ramp: Ramp,
    /// Time with something in flight, except the time since `busy_since`.
    busy: Duration,
    /// Time of the window's last acknowledgement, and the busy time until then.
    acknowledged_at: Option<(Instant, Duration)>,
    bytes: u64,
    acknowledged: u32,
    /// Sum over all windows.
    stored: Bytes,
    /// Network counters at the first look.
    before: Option<Look>,
    /// Number of sends that must end before bytes no longer count as they arrive.
    seen: Option<u32>,
    /// Set if bytes acknowledged since it opened were counted before, in part.
    is_counted: bool,
    latest: ByteRate,
}

/// Bytes that the network has carried for a depot so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Carried {
    /// Bytes handed to the network.
    pub(crate) sent: Bytes,
    /// Bytes that arrived; none if that is not visible.
    pub(crate) arrived: Option<Bytes>,
    /// Set if the depot itself holds back bytes that its kernel has received.
    pub(crate) is_held_back: bool,
}

/// Network counters at a moment.
#[derive(Debug, Clone, Copy)]
struct Look {
    carried: Carried,
    at: Instant,
    /// Busy time of the window until then.
    busy: Duration,
}

impl Window {
    fn look(&self, now: Instant, carried: Carried) -> Look {
        Look {
            carried,
            at: now,
            busy: self.busy_until(now),
        }
    }

    /// Returns whether bytes count as they arrive: arrivals are known in time, and something was
    /// acknowledged since the path was filled.
    fn sees(&self, before: Look, carried: Carried) -> bool {
        let is_told_late = carried.is_held_back || self.was_told;
        let is_seen = carried.arrived.is_some() && before.carried.arrived.is_some();
        let is_of_one_way = self.ramp != Ramp::Filling && !self.is_turning;
        self.in_flight > 0 && is_of_one_way && is_seen && !is_told_late
    }

    fn busy_until(&self, now: Instant) -> Duration {
        let since = self.busy_since.map(|since| now.duration_since(since));
        self.busy + since.unwrap_or_default()
    }

    /// Opens the next window at the end of the last, which may be after `now`, since others' sends
    /// did not wait for it.
    fn open(&mut self, at: Instant, busy_before: Duration, now: Instant) {
        self.busy = self.busy_until(now).saturating_sub(busy_before);
        self.busy_since = self.busy_since.map(|_| now);
        (self.opened, self.unheard_since) = (at, at);
        self.acknowledged_at = None;
        self.bytes = 0;
        self.acknowledged = 0;
        self.before = None;
        self.is_counted = false;
        self.was_humble = self.humble > 0;
        self.was_told = self.told > 0;
    }

    /// Closes a window in which bytes count as they arrive.
    fn see(&mut self, now: Instant, before: Look, carried: Carried) -> Option<Sample> {
        let (arrived_before, arrived) = before.carried.arrived.zip(carried.arrived)?;
        let bytes = arrived - arrived_before;
        // The amount of earlier arrivals is unknown.
        let window = self.busy_until(now).saturating_sub(before.busy);
        if window < SEEN_MIN || bytes.get() < SEEN_BYTES_MIN {
            return None;
        }
        let is_busy = is_busy(window, now.duration_since(before.at));
        self.latest = ByteRate::over(bytes, window);
        let sample = Sample {
            bytes,
            window,
            saturated: is_busy && !self.was_humble,
        };
        self.open(now, self.busy_until(now), now);
        self.before = Some(self.look(now, carried));
        Some(sample)
    }

    /// Handles a long time without acknowledgements although something was always under way: counts
    /// bytes as they arrive from now on, if that is visible. For now only the movement is known.
    fn wait(&mut self, now: Instant, before: Look, carried: Carried) -> Option<Sample> {
        let window = self.busy_until(now);
        let is_busy = is_busy(window, now.duration_since(self.opened));
        // Early in a burst, buffers absorb bytes that do not arrive.
        let sample = match self.see(now, before, carried) {
            Some(sample) if self.ramp == Ramp::Over => Some(sample),
            _ => ((carried.sent - before.carried.sent).get() >= SEEN_BYTES_MIN).then_some(Sample {
                bytes: Bytes::new(1),
                window,
                saturated: false,
            }),
        };
        if carried.arrived.is_some() {
            self.open(now, self.busy_until(now), now);
            self.seen = is_busy.then_some(self.in_flight);
        }
        // The next acknowledged bytes were under way all the time since the window opened, not only
        // from now on.
        self.unheard_since = now;
        self.before = Some(self.look(now, carried));
        sample.filter(|_| is_busy)
    }

    /// Advances the burst after a send ended.
    fn climb(&mut self, now: Instant, is_stored: bool) {
        if self.ramp == Ramp::Filling && is_stored {
            // Arrivals until now filled the path.
            self.before = None;
        }
        self.ramp = match self.ramp {
            Ramp::Filling if is_stored => Ramp::Draining(self.in_flight),
            Ramp::Draining(left) => Ramp::Draining(left.saturating_sub(1)),
            ramp @ (Ramp::Filling | Ramp::Over) => ramp,
        };
        if let Some(left) = &mut self.seen {
            *left = left.saturating_sub(1);
            if *left == 0 {
                // Sends under way began since: as many of their bytes have arrived as will at the
                // window's end.
                self.seen = None;
                (self.ramp, self.is_turning) = (Ramp::Over, false);
                self.open(now, self.busy_until(now), now);
            }
            return;
        }
        if self.ramp == Ramp::Draining(0) {
            (self.ramp, self.is_turning) = (Ramp::Over, false);
            self.open(now, self.busy_until(now), now);
        }
    }
}

/// Returns whether something was under way for nearly all of that time.
fn is_busy(busy: Duration, open_for: Duration) -> bool {
    busy.as_micros() * 100 >= open_for.as_micros() * BUSY_PERCENT_MIN
}

/// Closed window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sample {
    /// Bytes acknowledged, or seen to arrive.
    pub(crate) bytes: Bytes,
    /// Time with something in flight.
    pub(crate) window: Duration,
    /// Set if something was always in flight and the path was full.
    pub(crate) saturated: bool,
}

impl Meter {
    pub(crate) fn new(now: Instant) -> Self {
        Self {
            window: Mutex::new(Window {
                opened: now,
                unheard_since: now,
                in_flight: 0,
                humble: 0,
                was_humble: false,
                told: 0,
                was_told: false,
                is_turning: false,
                busy_since: None,
                idle_since: None,
                ramp: Ramp::Filling,
                busy: Duration::ZERO,
                acknowledged_at: None,
                bytes: 0,
                acknowledged: 0,
                stored: Bytes::ZERO,
                before: None,
                seen: None,
                is_counted: false,
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

    /// Notes a send's start, and whether it gives way.
    pub(crate) fn on_start(&self, now: Instant, is_humble: bool) {
        self.with(|window| {
            let is_burst = window
                .idle_since
                .is_none_or(|since| now.duration_since(since) >= PAUSE_MIN);
            if window.in_flight == 0 && is_burst {
                window.ramp = Ramp::Filling;
                window.seen = None;
            }
            window.in_flight += 1;
            window.humble += u32::from(is_humble);
            window.was_humble |= is_humble;
            window.busy_since.get_or_insert(now);
        });
    }

    /// Notes that a mover makes a started send, until its end.
    pub(crate) fn on_told(&self, starts: bool) {
        self.with(|window| {
            window.told = match starts {
                true => window.told + 1,
                false => window.told.saturating_sub(1),
            };
            window.was_told = true;
        });
    }

    /// Notes that sends take another way from now on: until all earlier ones have ended,
    /// measurements mix both.
    pub(crate) fn turn(&self, now: Instant) {
        self.with(|window| {
            window.seen = None;
            window.is_turning = window.in_flight > 0;
            window.ramp = match window.in_flight {
                0 => Ramp::Filling,
                before => Ramp::Draining(before),
            };
            window.open(now, window.busy_until(now), now);
        });
    }

    /// Notes a send's end, with the bytes stored.
    pub(crate) fn on_end(&self, now: Instant, is_humble: bool, stored: Bytes) {
        self.with(|window| {
            let is_stored = stored > Bytes::ZERO;
            window.in_flight = window.in_flight.saturating_sub(1);
            window.humble = window.humble.saturating_sub(u32::from(is_humble));
            window.bytes += stored.get();
            window.stored += stored;
            window.acknowledged += u32::from(is_stored);
            if window.in_flight == 0 {
                window.busy = window.busy_until(now);
                window.busy_since = None;
                window.idle_since = Some(now);
            }
            if is_stored {
                window.acknowledged_at = Some((now, window.busy_until(now)));
            }
            window.climb(now, is_stored);
        });
    }

    /// Closes the window if it is time to, and opens the next. `carried` is the network's total so
    /// far.
    pub(crate) fn sample(&self, now: Instant, carried: Carried) -> Option<Sample> {
        self.with(|window| {
            let look = window.look(now, carried);
            let before = *window.before.get_or_insert(look);
            if window.seen.is_some() && window.in_flight > 0 {
                return window.see(now, before, carried);
            }
            if window.sees(before, carried) {
                let sample = window.see(now, before, carried);
                window.is_counted |= sample.is_some();
                return sample;
            }
            if window.is_counted {
                // Lasts until all sends under way have ended.
                window.open(now, window.busy_until(now), now);
                window.before = Some(window.look(now, carried));
                window.seen = (window.in_flight > 0).then_some(window.in_flight);
                return None;
            }
            let (ended, busy) = match window.acknowledged_at {
                Some(acknowledged) => acknowledged,
                None if now.duration_since(window.unheard_since) < WINDOW_MAX => return None,
                None if window.in_flight > 0 => {
                    let sample = window.wait(now, before, carried);
                    if sample.is_none() {
                        window.latest = ByteRate::ZERO;
                    }
                    return sample;
                }
                None => {
                    window.latest = ByteRate::ZERO;
                    window.open(now, window.busy_until(now), now);
                    return None;
                }
            };
            let (open_for, waited) = (
                ended.duration_since(window.opened),
                now.duration_since(window.opened),
            );
            let is_enough = open_for >= WINDOW_MIN && window.acknowledged >= ACKNOWLEDGED_MIN;
            if !is_enough && waited < WINDOW_MAX {
                return None;
            }
            let bytes = Bytes::new(window.bytes);
            let is_busy = is_busy(busy, open_for);
            let sample = Sample {
                bytes,
                window: busy,
                saturated: is_busy && window.ramp == Ramp::Over && !window.was_humble,
            };
            window.latest = ByteRate::over(bytes, open_for);
            window.open(ended, busy, now);
            (busy >= BUSY_MIN).then_some(sample)
        })
    }

    /// Returns the rate of the last closed window; zero if nothing was sent for long.
    pub(crate) fn latest(&self, now: Instant) -> ByteRate {
        self.with(|window| {
            let stale = now.duration_since(window.unheard_since) > 2 * WINDOW_MAX + WINDOW_MIN;
            if stale { ByteRate::ZERO } else { window.latest }
        })
    }

    /// Returns the bytes stored there since the service started.
    pub(crate) fn stored(&self) -> Bytes {
        self.with(|window| window.stored)
    }

    /// Returns whether there is nothing to report until a send starts.
    pub(crate) fn is_at_rest(&self) -> bool {
        self.with(|window| window.in_flight == 0 && window.acknowledged_at.is_none())
    }

    /// Returns whether nothing is under way.
    pub(crate) fn is_idle(&self) -> bool {
        self.with(|window| window.in_flight == 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Carried bytes with nothing known of the network.
    const UNSEEN: Carried = Carried {
        sent: Bytes::ZERO,
        arrived: None,
        is_held_back: false,
    };

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

    /// Runs `sends` in flight from 0 ms on, with 1000 bytes stored every `every` ms; reads the
    /// meter every 100 ms until `until`.
    fn run(meter: &Meter, start: Instant, sends: u32, every: u64, until: u64) -> Vec<Sample> {
        (0..sends).for_each(|_| meter.on_start(start, false));
        let mut samples = Vec::new();
        for now in 1..=until {
            if now % every == 0 {
                meter.on_start(after(start, now), false);
                meter.on_end(after(start, now), false, Bytes::new(1000));
            }
            if now % 100 == 0 {
                samples.extend(meter.sample(after(start, now), UNSEEN));
            }
        }
        samples
    }

    #[test]
    fn what_takes_only_what_others_leave_is_a_lower_bound() {
        let start = start();
        let meter = Meter::new(start);
        meter.on_start(start, true);
        let samples = run(&meter, start, 1, 250, 4500);
        assert!(samples.len() > 2 && samples.iter().all(|sample| !sample.saturated));
        meter.on_end(after(start, 4600), true, Bytes::new(1000));
        let mut later = Vec::new();
        for now in (4750..=9000).step_by(250) {
            meter.on_end(after(start, now), false, Bytes::new(1000));
            meter.on_start(after(start, now), false);
            later.extend(meter.sample(after(start, now), UNSEEN));
        }
        assert!(!later[0].saturated, "it was there when the window began");
        assert!(later[1..].iter().all(|sample| sample.saturated) && later.len() > 2);
    }

    #[test]
    fn a_send_that_ends_while_the_meter_is_read_counts() {
        let start = start();
        let meter = Meter::new(start);
        (0..9).for_each(|_| meter.on_start(start, false));
        for now in (1000..=8000).step_by(1000) {
            meter.on_end(after(start, now), false, Bytes::new(1000));
        }
        // The reader took the time before the last send ended.
        let sample = meter.sample(after(start, 7999), UNSEEN).unwrap();
        assert_eq!(sample.bytes, Bytes::new(8000));
        assert_eq!(sample.window, Duration::from_secs(8));
    }

    #[test]
    fn a_busy_second_is_a_rate() {
        let start = start();
        let meter = Meter::new(start);
        let samples = run(&meter, start, 1, 250, 1500);
        let sample = Sample {
            bytes: Bytes::new(4000),
            window: Duration::from_secs(1),
            saturated: true,
        };
        assert_eq!(samples, [sample]);
        assert_eq!(meter.latest(after(start, 1500)), ByteRate::new(4000));
    }

    #[test]
    fn the_ramp_of_a_burst_is_only_a_lower_bound() {
        let start = start();
        let meter = Meter::new(start);
        // Twenty are under way at once: the first second shows what filled the path.
        let samples = run(&meter, start, 20, 100, 5000);
        let saturated = samples.iter().map(|sample| sample.saturated);
        assert_eq!(
            saturated.collect::<Vec<_>>(),
            [false, false, true, true, true]
        );
        for sample in &samples[2..] {
            assert_eq!(
                ByteRate::over(sample.bytes, sample.window),
                ByteRate::new(10_000)
            );
        }
    }

    #[test]
    fn sends_that_end_together_are_not_counted_to_the_wrong_second() {
        let start = start();
        let meter = Meter::new(start);
        (0..4).for_each(|_| meter.on_start(start, false));
        let mut samples = Vec::new();
        for step in 1..=10 {
            for _ in 0..4 {
                meter.on_end(after(start, step * 1300), false, Bytes::new(1000));
                meter.on_start(after(start, step * 1300), false);
            }
            for wait in [100, 600, 1100] {
                samples.extend(meter.sample(after(start, step * 1300 + wait), UNSEEN));
            }
        }
        assert!(samples.len() >= 8, "{samples:?}");
        for sample in samples.iter().filter(|sample| sample.saturated) {
            assert_eq!(sample.window, Duration::from_millis(1300), "{sample:?}");
            assert_eq!(sample.bytes, Bytes::new(4000));
        }
        assert!(samples.iter().filter(|sample| sample.saturated).count() >= 8);
    }

    #[test]
    fn a_short_pause_is_no_new_burst_and_a_long_one_is() {
        let start = start();
        let meter = Meter::new(start);
        run(&meter, start, 1, 250, 1500);
        meter.on_end(after(start, 1510), false, Bytes::new(1000));
        let again = after(start, 2000);
        let samples = run(&meter, again, 1, 250, 1500);
        assert!(!samples.is_empty());
        meter.on_end(after(again, 1510), false, Bytes::new(1000));
        let late = after(again, 5000);
        let samples = run(&meter, late, 20, 250, 2000);
        assert!(
            samples.iter().all(|sample| !sample.saturated),
            "{samples:?}"
        );
    }

    #[test]
    fn idle_time_does_not_count_and_says_the_sample_is_a_lower_bound() {
        let start = start();
        let meter = Meter::new(start);
        for step in 0..5 {
            meter.on_start(after(start, step * 300), false);
            meter.on_end(after(start, step * 300 + 100), false, Bytes::new(500));
        }
        let sample = meter.sample(after(start, 1400), UNSEEN).unwrap();
        assert_eq!(sample.bytes, Bytes::new(2000));
        assert_eq!(
            (sample.window, sample.saturated),
            (Duration::from_millis(400), false)
        );
    }

    #[test]
    fn a_window_stays_open_until_it_says_something() {
        let start = start();
        let meter = Meter::new(start);
        meter.on_start(start, false);
        meter.on_start(start, false);
        assert_eq!(meter.sample(after(start, 1000), UNSEEN), None);
        meter.on_end(after(start, 1500), false, Bytes::new(500));
        assert_eq!(meter.sample(after(start, 2000), UNSEEN), None);
        assert!(meter.sample(after(start, 5000), UNSEEN).is_some());
        assert_eq!(
            meter.sample(after(start, 10_001), UNSEEN),
            None,
            "nothing was acknowledged"
        );
        assert_eq!(meter.latest(after(start, 10_001)), ByteRate::ZERO);
    }

    /// Runs eight sends of `size` in flight from 0 ms on over a path of `rates.0` bytes a
    /// millisecond until `turn` ms, and `rates.1` from there. They share it, and as they end others
    /// begin. Reads the meter every 500 ms until `until`.
    fn run_seen(
        meter: &Meter,
        start: Instant,
        size: u64,
        (rates, turn): ((u64, u64), u64),
        until: u64,
        is_straight: bool,
    ) -> Vec<(u64, Sample)> {
        let told = |_, arrived| Carried {
            sent: Bytes::new(arrived),
            arrived: is_straight.then(|| Bytes::new(arrived)),
            ..UNSEEN
        };
        run_told(meter, start, size, (rates, turn), until, told)
    }

    /// Runs the same with `told` returning the known arrivals at each moment.
    fn run_told(
        meter: &Meter,
        start: Instant,
        size: u64,
        (rates, turn): ((u64, u64), u64),
        until: u64,
        told: impl Fn(u64, u64) -> Carried,
    ) -> Vec<(u64, Sample)> {
        const SENDS: u64 = 8;
        (0..SENDS).for_each(|_| meter.on_start(start, false));
        let (mut arrived, mut ended, mut samples) = (0, 0, Vec::new());
        for now in 1..=until {
            arrived += if now <= turn { rates.0 } else { rates.1 };
            while (ended + 1) * size * SENDS <= arrived {
                ended += 1;
                for _ in 0..SENDS {
                    meter.on_end(after(start, now), false, Bytes::new(size));
                    meter.on_start(after(start, now), false);
                }
            }
            if now % 500 == 0 {
                let sample = meter.sample(after(start, now), told(now, arrived));
                samples.extend(sample.map(|sample| (now, sample)));
            }
        }
        samples
    }

    fn rate(sample: &Sample) -> u64 {
        ByteRate::over(sample.bytes, sample.window).get()
    }

    #[test]
    fn a_path_that_becomes_slow_shows_long_before_what_is_on_its_way_is_acknowledged() {
        let start = start();
        let meter = Meter::new(start);
        // At a tenth of the rate the 16 MB under way take 16 s.
        let rates = ((10_000, 1000), 10_400);
        let samples = run_seen(&meter, start, 2_000_000, rates, 60_000, true);
        let late = samples.iter().filter(|(at, _)| *at > 10_400);
        let late: Vec<_> = late.filter(|(_, sample)| sample.saturated).collect();
        let (first, _) = late.first().unwrap();
        assert!(*first <= 12_000, "{samples:?}");
        for (at, sample) in late.iter().filter(|(at, _)| *at > 12_000) {
            assert!(
                (900_000..1_100_000).contains(&rate(sample)),
                "{at}: {sample:?}"
            );
        }
        assert!(late.len() > 10);
    }

    /// Returns when it is certain that a path carries a tenth since 10.4 s.
    fn known_slow(meter: &Meter, start: Instant, is_held_back: bool) -> u64 {
        let told = |_, arrived| Carried {
            arrived: Some(Bytes::new(arrived)),
            is_held_back,
            ..UNSEEN
        };
        let rates = ((10_000, 1000), 10_400);
        let samples = run_told(meter, start, 2_000_000, rates, 26_000, told);
        let mut late = samples.into_iter().filter(|(at, _)| *at > 10_400);
        let is_slow = |sample: &Sample| sample.saturated && rate(sample) < 2_000_000;
        late.find(|(_, sample)| is_slow(sample)).unwrap().0
    }

    #[test]
    fn where_it_is_known_late_what_arrived_silence_is_waited_for() {
        let start = start();
        assert!(known_slow(&Meter::new(start), start, false) <= 13_500);
        assert!(known_slow(&Meter::new(start), start, true) > 14_000);
        let told = Meter::new(start);
        told.on_told(true);
        assert!(known_slow(&told, start, false) > 14_000);
        // Once no mover sends any more, arrivals are known in time.
        let free = Meter::new(start);
        free.on_told(true);
        free.on_told(false);
        assert!(known_slow(&free, start, false) <= 13_500);
    }

    #[test]
    fn what_arrives_counts_from_the_first_acknowledgement_on() {
        let start = start();
        let meter = Meter::new(start);
        // Acknowledging all of them takes 6 s.
        (0..24).for_each(|_| meter.on_start(start, false));
        let rates = ((1000, 1000), 0);
        let straight = |now: u64, arrived| Carried {
            // The kernel at the other end buffers more at first.
            arrived: Some(Bytes::new(arrived + 4000 * now.min(1000))),
            ..UNSEEN
        };
        let samples = run_told(&meter, start, 250_000, rates, 20_000, straight);
        let full: Vec<_> = samples
            .iter()
            .filter(|(_, sample)| sample.saturated)
            .collect();
        assert!((3500..=4500).contains(&full[0].0), "{samples:?}");
        assert!(full.len() > 8);
        for (_, sample) in full {
            assert_eq!(rate(sample), 1_000_000);
        }
    }

    #[test]
    fn half_of_those_that_end_together_do_no_harm_to_what_is_measured() {
        let start = start();
        let meter = Meter::new(start);
        (0..8).for_each(|_| meter.on_start(start, false));
        let mut samples = Vec::new();
        for now in (100..=40_000).step_by(100) {
            // Every 1.6 s four end just before the meter is read, and four just after.
            if [0, 1400].contains(&(now % 1600)) {
                (0..4).for_each(|_| meter.on_end(after(start, now), false, Bytes::new(1_000_000)));
                (0..4).for_each(|_| meter.on_start(after(start, now), false));
            }
            if now % 500 == 0 {
                let carried = Carried {
                    arrived: Some(Bytes::new(now * 5000)),
                    ..UNSEEN
                };
                samples.extend(meter.sample(after(start, now), carried));
            }
        }
        let full: Vec<_> = samples.iter().filter(|sample| sample.saturated).collect();
        assert!(full.len() > 20);
        for sample in full {
            assert_eq!(rate(sample), 5_000_000);
        }
    }

    #[test]
    fn what_was_counted_as_it_arrived_is_not_counted_again_when_it_is_acknowledged() {
        let start = start();
        let meter = Meter::new(start);
        let rates = ((1000, 1000), 0);
        let straight = |_, arrived| Carried {
            arrived: Some(Bytes::new(arrived)),
            ..UNSEEN
        };
        run_told(&meter, start, 1_000_000, rates, 20_000, straight);
        // Sends go through gateways from now on.
        let later = after(start, 20_000);
        for now in (500..=60_000).step_by(500) {
            if now % 8000 == 0 {
                (0..8).for_each(|_| meter.on_end(after(later, now), false, Bytes::new(1_000_000)));
                (0..8).for_each(|_| meter.on_start(after(later, now), false));
            }
            let sample = meter.sample(after(later, now), UNSEEN);
            assert!(
                sample.is_none_or(|sample| rate(&sample) <= 1_010_000),
                "{now}: {sample:?}"
            );
        }
    }

    #[test]
    fn what_arrived_before_the_first_look_lowers_no_rate() {
        let start = start();
        let meter = Meter::new(start);
        // A window opens as the path slows down, and is read 400 ms later.
        let rates = ((10_000, 1000), 9600);
        let samples = run_seen(&meter, start, 2_000_000, rates, 16_000, true);
        let mut late = samples.iter().filter(|(at, _)| *at > 11_500);
        let (_, first) = late.find(|(_, sample)| sample.saturated).unwrap();
        assert!((990_000..=1_010_000).contains(&rate(first)), "{samples:?}");
    }

    #[test]
    fn through_gateways_it_is_only_seen_that_something_moves() {
        let start = start();
        let meter = Meter::new(start);
        let rates = ((1000, 1000), 0);
        let samples = run_seen(&meter, start, 8_000_000, rates, 60_000, false);
        let before_any_ended = samples.iter().filter(|(at, _)| *at < 64_000);
        for (at, sample) in before_any_ended {
            assert_eq!(
                (sample.bytes, sample.saturated),
                (Bytes::new(1), false),
                "{at}"
            );
        }
        assert!(samples.len() >= 10);
    }

    #[test]
    fn large_fragments_that_end_together_behind_a_gateway_show_what_it_carries() {
        let start = start();
        let meter = Meter::new(start);
        // Eight sends of 2 MB take 16 s, and no report comes meanwhile.
        let rates = ((1000, 1000), 0);
        let samples = run_seen(&meter, start, 2_000_000, rates, 100_000, false);
        let full = samples.iter().filter(|(_, sample)| sample.saturated);
        let full: Vec<_> = full.map(|(_, sample)| rate(sample)).collect();
        assert!(full.len() >= 4, "{samples:?}");
        for rate in full {
            assert!((990_000..=1_010_000).contains(&rate), "{samples:?}");
        }
    }

    #[test]
    fn a_path_on_which_nothing_arrives_has_no_rate_and_does_not_move() {
        let start = start();
        let meter = Meter::new(start);
        let rates = ((10_000, 0), 10_000);
        let samples = run_seen(&meter, start, 2_000_000, rates, 60_000, true);
        assert!(samples.iter().all(|(at, _)| *at < 16_000), "{samples:?}");
        assert_eq!(meter.latest(after(start, 60_000)), ByteRate::ZERO);
    }

    #[test]
    fn what_arrives_and_what_is_acknowledged_come_to_the_same() {
        let start = start();
        for is_straight in [true, false] {
            let meter = Meter::new(start);
            let rates = ((1000, 1000), 0);
            let samples = run_seen(&meter, start, 100_000, rates, 20_000, is_straight);
            let full = samples.iter().filter(|(_, sample)| sample.saturated);
            let full: Vec<_> = full.map(|(_, sample)| rate(sample)).collect();
            assert!(full.len() > 10);
            let is_right = |rate: &u64| (990_000..=1_010_000).contains(rate);
            assert!(full.iter().all(is_right), "{full:?}");
        }
    }

    #[test]
    fn questions_how_a_depot_is_are_no_rate() {
        let start = start();
        let meter = Meter::new(start);
        meter.on_start(start, false);
        for now in (500..=60_000).step_by(500) {
            let carried = Carried {
                sent: Bytes::new(now / 2),
                arrived: Some(Bytes::new(now / 2)),
                ..UNSEEN
            };
            let sample = meter.sample(after(start, now), carried);
            assert_eq!(sample, None);
        }
    }
}
