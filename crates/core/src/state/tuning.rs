use core::time::Duration;
use posthaste_plan::tuner::{Choice, Optimizer, Probe, Setting, Stocks, Tuner, Urgency};
use posthaste_types::{Bytes, Timestamp, record};

/// Fewest rounds of all fragments in flight that are measured: those that end together count
/// together.
const ROUNDS_MIN: u32 = 2;
/// Gap after the last end beyond which a start does not count as its successor.
const GAP: Duration = Duration::from_millis(500);

record! {
    /// Record of one depot's stores of one request while its setting was unchanged.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
    struct Meter {
        /// Time at which the first fragment was stored, which does not count.
        from: Option<Timestamp>,
        /// Time at which the last fragment was stored.
        last: Timestamp,
        /// Fragments in flight.
        level: u32,
        /// Fragments stored since the first, and their bytes.
        stored: u32,
        bytes: Bytes,
        /// Time at which the last whole round of fragments was over, and the bytes until then.
        until: Timestamp,
        until_bytes: Bytes,
    }
}

record! {
    /// Optimizer at work: it sets how many fragments of one request are on their way to one depot
    /// at once.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub(crate) struct Tuning {
        tuner: Tuner,
        /// Choice in force: fragments at once, when it was made, how long it is left alone and then
        /// measured.
        at_once: u16,
        chosen: Timestamp,
        skip: Duration,
        probe: Duration,
        /// Fragments that fitted into the depot's window when this began.
        opened: u16,
        meter: Meter,
    }
}

impl Meter {
    /// Starts again with a fragment stored now.
    fn start(now: Timestamp, level: u32) -> Self {
        Self {
            from: Some(now),
            last: now,
            level,
            until: now,
            ..Self::default()
        }
    }

    /// Counts a fragment of `bytes` that was in flight since `since`, one of `level` in flight.
    fn count(&mut self, now: Timestamp, since: Timestamp, level: u32, bytes: Bytes) {
        let is_short = level * 2 < self.level;
        let is_gap = since > self.last + GAP;
        if self.from.is_none() || level > self.level || is_short || is_gap {
            *self = Self::start(now, level);
            return;
        }
        self.last = now;
        self.stored += 1;
        self.bytes += bytes;
        if self.stored.is_multiple_of(self.level.max(1)) {
            (self.until, self.until_bytes) = (now, self.bytes);
        }
    }

    /// Returns its measurement, once that covers whole rounds over `least`.
    fn probe(&self, least: Duration) -> Option<Probe> {
        let elapsed = self.until.since(self.from?);
        let rounds = self.stored / self.level.max(1);
        let concurrency = u16::try_from(self.level).unwrap_or(u16::MAX);
        (elapsed >= least && rounds >= ROUNDS_MIN).then_some(Probe {
            setting: Setting::new(concurrency, 1, 1),
            elapsed,
            bytes: self.until_bytes,
            lost_permille: None,
        })
    }
}

impl Tuning {
    /// Begins with `stocks` to send, when `opened` fragments fit into the window.
    pub(crate) fn begin(
        mut tuner: Tuner,
        stocks: &Stocks,
        opened: u16,
        now: Timestamp,
    ) -> (Self, Choice) {
        let choice = tuner.first(stocks);
        let mut tuning = Self {
            tuner,
            at_once: 0,
            chosen: now,
            skip: Duration::ZERO,
            probe: Duration::ZERO,
            opened,
            meter: Meter::default(),
        };
        tuning.take(&choice, now);
        (tuning, choice)
    }

    fn take(&mut self, choice: &Choice, now: Timestamp) {
        self.at_once = choice.setting().concurrency;
        (self.chosen, self.skip, self.probe) = (now, choice.skip, choice.probe);
        self.meter = Meter::default();
    }

    /// Returns the fragments that may be on their way at once.
    pub(crate) fn at_once(&self) -> u16 {
        self.at_once
    }

    /// Returns whether more at once than the first window had room for proved worth it, or are
    /// being tried.
    pub(crate) fn is_raised(&self) -> bool {
        self.at_once > self.opened
    }

    /// Records that a fragment of `bytes`, in flight since `since`, was stored; `level` were in
    /// flight, including it.
    pub(crate) fn on_stored(&mut self, now: Timestamp, since: Timestamp, level: u32, bytes: Bytes) {
        let is_settling = now < self.chosen + self.skip || level > u32::from(self.at_once);
        if !is_settling {
            self.meter.count(now, since, level, bytes);
        }
    }

    /// Discards the measurement, as flights were broken off.
    pub(crate) fn interrupt(&mut self) {
        self.meter = Meter::default();
    }

    /// Returns the next choice, once the period is over.
    pub(crate) fn next(
        &mut self,
        urgency: Urgency,
        stocks: &Stocks,
        now: Timestamp,
    ) -> Option<Choice> {
        self.tuner.set_urgency(urgency);
        let probe = self.meter.probe(self.probe)?;
        let choice = self.tuner.on_probe(&probe, stocks);
        self.take(&choice, now);
        Some(choice)
    }

    /// Returns the setting at which the next request to this depot begins.
    pub(crate) fn best(&self) -> Option<Setting> {
        self.tuner.best()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROUND: Duration = Duration::from_millis(800);

    fn at(millis: u64) -> Timestamp {
        Timestamp::from_micros(1_000_000_000 + millis * 1000)
    }

    /// Measures four at once that end together, every 800 ms: 4 x 1000 bytes a round.
    fn bursts(rounds: u64) -> Meter {
        let mut meter = Meter::default();
        for round in 0..rounds {
            for place in 0..4 {
                let now = at(round * 800 + place * 10);
                meter.count(now, at(0) - ROUND, 4, Bytes::new(1000));
            }
        }
        meter
    }

    #[test]
    fn fragments_that_end_together_are_measured_by_the_round() {
        let least = Duration::from_secs(2);
        assert_eq!(bursts(3).probe(least), None);
        // The first fragment opens the measurement, so a fifth round closes the fourth.
        let probe = bursts(5).probe(least).unwrap();
        assert_eq!(probe.setting.concurrency, 4);
        assert_eq!(probe.elapsed, ROUND * 4);
        assert_eq!(probe.bytes, Bytes::new(16_000));
    }

    #[test]
    fn a_pause_or_another_level_begins_anew() {
        let mut meter = bursts(5);
        meter.count(at(9000), at(8000), 4, Bytes::new(1000));
        assert_eq!(meter, Meter::start(at(9000), 4));
        let mut meter = bursts(5);
        meter.count(at(4000), at(3200), 5, Bytes::new(1000));
        assert_eq!(meter, Meter::start(at(4000), 5));
        let mut meter = bursts(5);
        meter.count(at(4000), at(3200), 1, Bytes::new(1000));
        assert_eq!(meter, Meter::start(at(4000), 1));
    }
}
