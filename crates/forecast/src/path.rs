use core::time::Duration;
use posthaste_types::{ByteRate, Timestamp, record};

use crate::{Quantiles, Series, mapping::Mapping};

/// Longest time between a probe and the first transfer after it for which both measure the same
/// path.
const PAIR_WITHIN: Duration = Duration::from_secs(600);

/// Half of the least spread of p10 to p90 that grows with age, in thousandths of p50, even on a
/// path that never varied: no knowledge lasts forever.
const SPREAD_MIN_PERMILLE: u64 = 50;

/// Thousandths in one.
const ONE: u64 = 1000;

record! {
    /// Kind of measurement of a path.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
    pub enum Measure {
        /// Transfers of real data.
        0 = Transfers,
        /// A probe, translated to the rate of a transfer.
        1 = Probe,
    }
}

record! {
    /// Accuracy of a path's forecasts: each measurement of a transfer against the forecast just
    /// before.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
    pub struct Score {
        /// Number of measurements judged.
        pub samples: u64,
        /// Sum of the measured rates, in bytes a second.
        carried: u64,
        /// Sum of the errors of p50, in bytes a second.
        erred: u64,
        /// Measurements below p10: a tenth if p10 is right.
        pub under_p10: u64,
        /// Measurements above p90: a tenth if p90 is right.
        pub over_p90: u64,
    }
}

impl Score {
    /// Returns the mean absolute error of p50, in thousandths of the mean measurement; none before
    /// the first.
    #[must_use]
    pub fn error_permille(&self) -> Option<u64> {
        let share = u128::from(self.erred) * u128::from(ONE) / u128::from(self.carried.max(1));
        (self.samples > 0).then(|| u64::try_from(share).unwrap_or(u64::MAX))
    }

    fn judge(&mut self, measured: ByteRate, believed: Quantiles) {
        self.samples += 1;
        self.carried = self.carried.saturating_add(measured.get());
        let missed_by = measured.get().abs_diff(believed.p50.get());
        self.erred = self.erred.saturating_add(missed_by);
        self.under_p10 += u64::from(measured < believed.p10);
        self.over_p90 += u64::from(measured > believed.p90);
    }
}

record! {
    /// A series of a path, its forecast and the time of its last measurement.
    #[derive(Debug, Clone, PartialEq, Eq, Default)]
    struct Source {
        series: Series,
        forecast: Option<Quantiles>,
        at: Timestamp,
    }
}

impl Source {
    /// Adds a measurement; returns false for a lower bound that adds nothing.
    fn take(&mut self, now: Timestamp, rate: ByteRate, is_bound: bool, believed: ByteRate) -> bool {
        let before = self.series.count();
        if is_bound {
            self.series.observe_censored(rate, believed);
        } else {
            self.series.observe(rate);
        }
        let is_taken = self.series.count() > before;
        if is_taken {
            self.forecast = self.series.forecast();
            self.at = now;
        }
        is_taken
    }
}

record! {
    /// Knowledge of a directed path: its transfers, and probes where there were none.
    ///
    /// The two are kept apart, because a probe is one stream for a few seconds and a transfer is
    /// many for long: a probe's forecast is translated to the rate of a transfer (Swany and Wolski,
    /// SC'02). If both exist, each counts by its precision, `1 / (s^2 (1 + age / tau))`, where s is
    /// its spread. The older a measurement, the less its weight and the wider its quantiles.
    #[derive(Debug, Clone, PartialEq, Eq, Default)]
    pub struct Path {
        transfers: Source,
        probes: Source,
        mapping: Mapping,
        /// Forecast of the probes, translated to transfers.
        mapped: Option<Quantiles>,
        /// A probe that no transfer has followed yet.
        unpaired: Option<ByteRate>,
        score: Score,
    }
}

impl Path {
    /// Adds the rate of transfers over the last seconds. A lower bound (`is_bound`: the window was
    /// short of data or throttled by ourselves) counts only if it exceeds `believed`.
    pub fn observe_transfer(
        &mut self,
        now: Timestamp,
        rate: ByteRate,
        is_bound: bool,
        believed: Quantiles,
    ) {
        if !is_bound {
            if self.is_measured() {
                self.score.judge(rate, believed);
            }
            if let Some(probe) = self.unpaired.take()
                && now.since(self.probes.at) <= PAIR_WITHIN
            {
                self.mapping.pair(probe.get(), rate.get());
                self.map_probes();
            }
        }
        self.transfers.take(now, rate, is_bound, believed.p50);
    }

    /// Adds the untranslated result of a probe. A probe that ended inside slow start is a lower
    /// bound.
    pub fn observe_probe(
        &mut self,
        now: Timestamp,
        rate: ByteRate,
        is_bound: bool,
        believed: Quantiles,
    ) {
        if self.probes.take(now, rate, is_bound, believed.p50) {
            self.unpaired = (!is_bound).then_some(rate);
            self.map_probes();
        }
    }

    /// Returns whether anything was measured.
    #[must_use]
    pub fn is_measured(&self) -> bool {
        self.transfers.series.is_measured() || self.probes.series.is_measured()
    }

    /// Returns the next measurement of a transfer as quantiles; none before the first measurement.
    ///
    /// `tau` is the age at which a measurement's variance has doubled. The cost is O(1), with
    /// probes O(pairs log pairs).
    #[must_use]
    pub fn forecast(&self, now: Timestamp, tau: Duration) -> Option<Quantiles> {
        let transfers = self.transfers.forecast.map(|forecast| {
            let age = age_permille(now, self.transfers.at, tau);
            (aged(forecast, age), weight(forecast, age))
        });
        let probes = self.mapped.map(|forecast| {
            let age = age_permille(now, self.probes.at, tau);
            (aged(forecast, age), self.probe_weight(forecast, age))
        });
        match (transfers, probes) {
            (Some((transfers, by)), Some((probes, of))) => Some(weighed(transfers, by, probes, of)),
            (one, other) => one.or(other).map(|(forecast, _)| forecast),
        }
    }

    /// Returns the precision of the probes' forecast. The rate of a transfer is a guess until there
    /// are enough pairs: until then the variance counts as if the spread were twice that of probes
    /// alone.
    fn probe_weight(&self, of: Quantiles, age_permille: u64) -> u128 {
        let doubt = if self.mapping.is_known() { 1 } else { 4 };
        weight(of, age_permille.saturating_mul(doubt))
    }

    fn map_probes(&mut self) {
        let map = |rate: ByteRate| ByteRate::new(self.mapping.map(rate.get()));
        self.mapped = self.probes.forecast.map(|probe| Quantiles {
            p10: map(probe.p10),
            p50: map(probe.p50),
            p90: map(probe.p90),
        });
    }

    /// Returns the measurement with the greatest weight in the forecast now; none before the first.
    #[must_use]
    pub fn measured_by(&self, now: Timestamp, tau: Duration) -> Option<Measure> {
        let age = |at| age_permille(now, at, tau);
        let transfers = self.transfers.forecast;
        let transfers = transfers.map(|forecast| weight(forecast, age(self.transfers.at)));
        let probes = self.mapped;
        let probes = probes.map(|forecast| self.probe_weight(forecast, age(self.probes.at)));
        match (transfers, probes) {
            (None, None) => None,
            (by, of) if of > by => Some(Measure::Probe),
            _ => Some(Measure::Transfers),
        }
    }

    /// Returns the time of the last measurement of either kind; none before the first.
    #[must_use]
    pub fn measured_at(&self) -> Option<Timestamp> {
        let at = |source: &Source| source.series.is_measured().then_some(source.at);
        at(&self.transfers).max(at(&self.probes))
    }

    /// Returns the numbers of measurements so far, of transfers and of probes.
    #[must_use]
    pub fn samples(&self) -> (u64, u64) {
        (self.transfers.series.count(), self.probes.series.count())
    }

    /// Returns the accuracy of the path's forecasts so far.
    #[must_use]
    pub fn score(&self) -> Score {
        self.score
    }
}

/// Returns `1 + age / tau`, in thousandths.
fn age_permille(now: Timestamp, at: Timestamp, tau: Duration) -> u64 {
    let aged = now.since(at).as_micros() * u128::from(ONE) / tau.as_micros().max(1);
    u64::try_from(aged).unwrap_or(u64::MAX).saturating_add(ONE)
}

/// Returns quantiles whose spread grew by `sqrt(1 + age / tau)`: upwards as a difference, downwards
/// as a ratio, so that none falls below zero.
fn aged(of: Quantiles, age_permille: u64) -> Quantiles {
    let grown = age_permille.saturating_mul(ONE).isqrt().saturating_sub(ONE);
    let [p10, p50, p90] = [of.p10, of.p50, of.p90].map(|rate| u128::from(rate.get()));
    let (one, grown) = (u128::from(ONE), u128::from(grown));
    let least = u128::from(SPREAD_MIN_PERMILLE);
    // p50 / (1 + d k) with d = p50 / p10 - 1, where p10 = p50 / (1 + d).
    let ratio = p50 * one / p10.max(1);
    let below = ratio.saturating_sub(one).max(least);
    let slower = p50 * one / (ratio + below * grown / one).max(1);
    let above = (p90.saturating_sub(p50)).max(p50 * least / one);
    let rate = |bytes: u128| ByteRate::new(u64::try_from(bytes).unwrap_or(u64::MAX));
    Quantiles {
        p10: rate(slower.min(p10)),
        p50: of.p50,
        p90: rate(p90 + above * grown / one),
    }
}

/// Returns the precision of a forecast: the inverse of its relative variance.
fn weight(of: Quantiles, age_permille: u64) -> u128 {
    let spread = of.p90.get().saturating_sub(of.p10.get());
    let spread = u128::from(spread) * u128::from(ONE) / (2 * u128::from(of.p50.get().max(1)));
    let spread = spread.clamp(
        u128::from(SPREAD_MIN_PERMILLE),
        u128::from(ONE) * u128::from(ONE),
    );
    1_000_000_000_000_000_000 / (spread * spread * u128::from(age_permille)).max(1)
}

/// Returns the weighted mean of two forecasts, quantile by quantile.
fn weighed(one: Quantiles, by: u128, other: Quantiles, of: u128) -> Quantiles {
    let all = (by + of).max(1);
    let mean = |one: ByteRate, other: ByteRate| {
        let sum = u128::from(one.get()) * by + u128::from(other.get()) * of;
        ByteRate::new(u64::try_from(sum / all).unwrap_or(u64::MAX))
    };
    Quantiles {
        p10: mean(one.p10, other.p10),
        p50: mean(one.p50, other.p50),
        p90: mean(one.p90, other.p90),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use posthaste_types::Record;

    const TAU: Duration = Duration::from_secs(600);

    fn at(secs: u64) -> Timestamp {
        Timestamp::from_secs(1_000_000 + secs)
    }

    fn all(rate: u64) -> Quantiles {
        let rate = ByteRate::new(rate);
        Quantiles {
            p10: rate,
            p50: rate,
            p90: rate,
        }
    }

    /// Returns a path on which transfers showed `rates`, one a second until second 0.
    fn carried(rates: &[u64]) -> Path {
        let mut path = Path::default();
        for (left, &rate) in (0..rates.len() as u64).rev().zip(rates) {
            let now = Timestamp::from_secs(1_000_000 - left);
            let believed = path.forecast(now, TAU).unwrap_or(all(rate));
            path.observe_transfer(now, ByteRate::new(rate), false, believed);
        }
        path
    }

    #[test]
    fn nothing_is_forecast_before_the_first_measurement() {
        let path = Path::default();
        assert_eq!(path.forecast(at(0), TAU), None);
        assert_eq!(
            (path.measured_at(), path.measured_by(at(0), TAU)),
            (None, None)
        );
        assert_eq!(path.score().error_permille(), None);
    }

    #[test]
    fn quantiles_widen_with_age_around_the_same_middle() {
        let path = carried(&[700, 1000, 1400, 900, 1000, 1100].repeat(10));
        let fresh = path.forecast(at(0), TAU).unwrap();
        let hour = path.forecast(at(3600), TAU).unwrap();
        let year = path.forecast(at(31_536_000), TAU).unwrap();
        assert!(fresh.p10 > hour.p10 && hour.p10 > year.p10 && year.p10 > ByteRate::ZERO);
        assert!(fresh.p90 < hour.p90 && hour.p90 < year.p90);
        assert_eq!((fresh.p50, fresh.p50), (hour.p50, year.p50));
        // 1 + 3600 / 600 = 7 times the variance: sqrt(7) = 2.65 times the distance upwards.
        let up = |of: Quantiles| of.p90.get() - of.p50.get();
        assert_eq!(up(hour) * 1000 / up(fresh) / 10, 264);
    }

    #[test]
    fn a_path_that_never_strayed_is_known_exactly_and_not_for_ever() {
        let path = carried(&[1_000_000; 40]);
        assert_eq!(path.forecast(at(0), TAU), Some(all(1_000_000)));
        let later = path.forecast(at(1800), TAU).unwrap();
        assert_eq!(later.p10, ByteRate::new(952_380));
        assert_eq!(later.p90, ByteRate::new(1_050_000));
    }

    #[test]
    fn a_fresh_probe_outweighs_old_transfers_and_old_probes_fresh_transfers() {
        let mut path = carried(&[900, 1000, 1100].repeat(10));
        let two_days = 2 * 86_400;
        assert_eq!(path.measured_by(at(0), TAU), Some(Measure::Transfers));
        path.observe_probe(at(two_days), ByteRate::new(4000), false, all(1000));
        assert_eq!(path.measured_by(at(two_days), TAU), Some(Measure::Probe));
        let middle = path.forecast(at(two_days), TAU).unwrap().p50.get();
        assert!((3500..4000).contains(&middle), "{middle}");
        for second in 0..30 {
            let rate = ByteRate::new([900, 1000, 1100][second % 3]);
            path.observe_transfer(at(two_days + 700 + second as u64), rate, false, all(1000));
        }
        let now = at(two_days + 730);
        assert_eq!(path.measured_by(now, TAU), Some(Measure::Transfers));
        let middle = path.forecast(now, TAU).unwrap().p50.get();
        assert!((900..1600).contains(&middle), "{middle}");
    }

    #[test]
    fn a_few_transfers_tell_more_than_a_probe_as_fresh() {
        let mut path = Path::default();
        path.observe_probe(at(0), ByteRate::new(1000), false, all(1000));
        for (second, rate) in (1..).zip([1300, 900, 1500, 1100, 1400]) {
            path.observe_transfer(at(second), ByteRate::new(rate), false, all(1000));
        }
        assert_eq!(path.measured_by(at(5), TAU), Some(Measure::Transfers));
        assert_eq!(path.measured_by(at(600), TAU), Some(Measure::Transfers));
    }

    #[test]
    fn a_transfer_soon_after_a_probe_tells_what_probes_are_worth() {
        let mut path = Path::default();
        for hour in 0..5 {
            let now = hour * 3600;
            path.observe_probe(at(now), ByteRate::new(1000), false, all(1000));
            path.observe_transfer(at(now + 60), ByteRate::new(3000), false, all(1000));
        }
        // (1 + 5 x 3) / 6 = 2.67 times: each hour showed the same ratio, and the prior is one.
        path.observe_probe(at(864_000), ByteRate::new(1000), false, all(3000));
        let middle = path.forecast(at(864_000), TAU).unwrap().p50.get();
        assert!((2600..3000).contains(&middle), "{middle}");
    }

    #[test]
    fn a_transfer_long_after_a_probe_tells_nothing_of_probes() {
        let mut path = Path::default();
        path.observe_probe(at(0), ByteRate::new(1000), false, all(1000));
        path.observe_transfer(at(601), ByteRate::new(3000), false, all(1000));
        path.observe_transfer(at(602), ByteRate::new(3000), false, all(1000));
        assert_eq!(path.mapping, Mapping::default());
    }

    #[test]
    fn a_lower_bound_only_raises_and_never_freshens_what_it_does_not_change() {
        let mut path = carried(&[1_000_000; 10]);
        let before = path.clone();
        path.observe_transfer(at(9), ByteRate::new(200_000), true, all(1_000_000));
        path.observe_probe(at(9), ByteRate::new(200_000), true, all(1_000_000));
        assert_eq!(path, before);
        path.observe_transfer(at(9), ByteRate::new(3_000_000), true, all(1_000_000));
        assert_eq!(path.measured_at(), Some(at(9)));
        assert_eq!(path.score(), before.score(), "bounds judge no forecast");
    }

    #[test]
    fn the_score_counts_how_far_and_how_often_the_forecast_was_off() {
        let mut path = carried(&[1000]);
        for rate in [500, 1500, 1000, 1000] {
            let believed = Quantiles {
                p10: ByteRate::new(800),
                p50: ByteRate::new(1000),
                p90: ByteRate::new(1200),
            };
            path.observe_transfer(at(1), ByteRate::new(rate), false, believed);
        }
        let score = path.score();
        assert_eq!((score.samples, score.under_p10, score.over_p90), (4, 1, 1));
        assert_eq!(score.error_permille(), Some(250));
    }

    #[test]
    fn a_path_comes_back_as_it_was_written() {
        let mut path = carried(&[900, 1000, 1100].repeat(70));
        path.observe_probe(at(1), ByteRate::new(500), false, all(1000));
        assert_eq!(Path::from_bytes(&path.to_bytes()), Ok(path));
    }
}
