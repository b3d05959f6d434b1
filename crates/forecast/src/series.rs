use alloc::vec::Vec;
use posthaste_types::{ByteRate, record};

use crate::predictor::{BATTERY, Memory};

/// Residuals that a series keeps: enough for a p10 that 20 samples support, and few enough that an
/// hour-old storm is forgotten.
const RESIDUALS_MAX: usize = 200;

/// Discount of errors, 49/50 a sample, so that the last 50 samples choose the predictor.
const ERROR_KEPT: u64 = 49;
const ERROR_OF: u64 = 50;

/// Number of residuals below which the prior ones are mixed in: fewer samples can't show a tenth.
const RESIDUALS_ENOUGH: usize = 20;

/// Prior ratios, in thousandths: the spread of public WAN traces at 5 to 10 s (MAE/mean .18 to
/// .36).
const RESIDUALS_PRIOR: [u32; 3] = [700, 1000, 1400];

/// Smallest plausible ratio, in thousandths: beyond it and the largest, the measurement itself
/// paused or burst.
const RESIDUAL_MIN: u64 = 10;
const RESIDUAL_MAX: u64 = 10_000;

record! {
    /// A rate as quantiles: nine in ten measurements exceed p10.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Quantiles {
        /// Rate that nine in ten exceed, used to plan deadlines.
        pub p10: ByteRate,
        /// Median rate, shown to people.
        pub p50: ByteRate,
        /// Rate that one in ten exceeds.
        pub p90: ByteRate,
    }
}

impl Quantiles {
    /// Returns the quantiles, each at most `most`.
    #[must_use]
    pub fn capped(self, most: Option<ByteRate>) -> Self {
        let most = most.unwrap_or(ByteRate::new(u64::MAX));
        Self {
            p10: self.p10.min(most),
            p50: self.p50.min(most),
            p90: self.p90.min(most),
        }
    }
}

record! {
    /// Assumptions about an unmeasured link.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Prior {
        /// Quantiles if nothing at all is known.
        pub unknown: Quantiles,
        /// Share of an advertised rate assumed as p10, in thousandths.
        pub advert_p10_permille: u32,
        /// Share of an advertised rate assumed as p50, in thousandths.
        pub advert_p50_permille: u32,
    }
}

impl Prior {
    /// Returns the quantiles of a link whose owner lends `advert`, if the owner says so.
    #[must_use]
    pub fn quantiles(&self, advert: Option<ByteRate>) -> Quantiles {
        advert.map_or(self.unknown, |most| Quantiles {
            p10: most.scaled(u64::from(self.advert_p10_permille), 1000),
            p50: most.scaled(u64::from(self.advert_p50_permille), 1000),
            p90: most,
        })
    }
}

record! {
    /// Measurements of one link in one direction, as far as the next forecast needs them.
    ///
    /// A sample costs O(battery + window^2 / 4), about a microsecond, and the series stays under 2
    /// KiB. Selection by postcasting and multiplicative residuals: Wolski, Spring, Hayes, FGCS
    /// 15:757 (1999), with discounted sums in place of a ring of errors.
    #[derive(Debug, Clone, PartialEq, Eq, Default)]
    pub struct Series {
        memory: Memory,
        errors: Vec<u64>,
        residuals_permille: Vec<u32>,
    }
}

impl Series {
    /// Returns whether anything was measured.
    #[must_use]
    pub fn is_measured(&self) -> bool {
        self.memory.count() > 0
    }

    /// Returns the number of measurements so far.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.memory.count()
    }

    /// Adds a measurement of a link that was never short of data.
    pub fn observe(&mut self, rate: ByteRate) {
        let value = rate.get();
        if self.is_measured() {
            let best = self.best();
            self.score(value);
            let ratio = (u128::from(value) * 1000) / u128::from(best.max(1));
            let ratio = u64::try_from(ratio).unwrap_or(RESIDUAL_MAX);
            let ratio = ratio.clamp(RESIDUAL_MIN, RESIDUAL_MAX);
            push_bounded(
                &mut self.residuals_permille,
                u32::try_from(ratio).unwrap_or(u32::MAX),
                RESIDUALS_MAX,
            );
        } else {
            self.errors = alloc::vec![0; BATTERY.len()];
        }
        self.memory.take(value);
    }

    /// Adds a measurement that our own lack of data may have limited: a lower bound. It counts only
    /// if it exceeds the forecast (`believed` before the first measurement).
    pub fn observe_censored(&mut self, rate: ByteRate, believed: ByteRate) {
        let forecast = if self.is_measured() {
            ByteRate::new(self.best())
        } else {
            believed
        };
        if rate > forecast {
            self.observe(rate);
        }
    }

    /// Returns the next measurement as quantiles; none before the first one.
    #[must_use]
    pub fn forecast(&self) -> Option<Quantiles> {
        if !self.is_measured() {
            return None;
        }
        let mut residuals = self.residuals_permille.clone();
        if residuals.len() < RESIDUALS_ENOUGH {
            residuals.extend(RESIDUALS_PRIOR);
        }
        let last = residuals.len() - 1;
        let best = ByteRate::new(self.best());
        let mut at = |place: usize| {
            let (_, ratio, _) = residuals.select_nth_unstable(place.min(last));
            best.scaled(u64::from(*ratio), 1000)
        };
        Some(Quantiles {
            p10: at(last / 10),
            p50: at(last / 2),
            p90: at((last * 9).div_ceil(10)),
        })
    }

    /// Returns the forecast of the predictor with the smallest recent error.
    fn best(&self) -> u64 {
        let best = self.errors.iter().zip(self.memory.guesses());
        best.min_by_key(|(error, _)| **error)
            .map_or(0, |(_, guess)| *guess)
    }

    /// Adds each predictor's current error to its discounted sum.
    fn score(&mut self, value: u64) {
        for (error, guess) in self.errors.iter_mut().zip(self.memory.guesses()) {
            *error = (*error / ERROR_OF).saturating_mul(ERROR_KEPT)
                + (*error % ERROR_OF) * ERROR_KEPT / ERROR_OF;
            *error = error.saturating_add(guess.abs_diff(value));
        }
    }
}

/// Appends `value` and forgets the oldest beyond `most`.
fn push_bounded<T>(values: &mut Vec<T>, value: T, most: usize) {
    if values.len() >= most {
        values.remove(0);
    }
    values.push(value);
}

#[cfg(test)]
mod tests {
    use super::*;
    use posthaste_types::Record;

    fn measured(values: impl IntoIterator<Item = u64>) -> Series {
        let mut series = Series::default();
        values
            .into_iter()
            .for_each(|value| series.observe(ByteRate::new(value)));
        series
    }

    #[test]
    fn nothing_is_forecast_before_the_first_measurement() {
        assert_eq!(Series::default().forecast(), None);
    }

    #[test]
    fn a_steady_link_is_forecast_exactly_once_enough_was_seen() {
        let forecast = measured([1_000_000; 30]).forecast().unwrap();
        let rate = ByteRate::new(1_000_000);
        assert_eq!(
            forecast,
            Quantiles {
                p10: rate,
                p50: rate,
                p90: rate
            }
        );
    }

    #[test]
    fn one_measurement_leaves_a_wide_spread() {
        let forecast = measured([1_000_000]).forecast().unwrap();
        assert_eq!(forecast.p10.get(), 700_000);
        assert_eq!(forecast.p50.get(), 1_000_000);
        assert_eq!(forecast.p90.get(), 1_400_000);
    }

    #[test]
    fn a_link_that_falls_to_a_tenth_is_believed_within_five_samples() {
        let series = measured([10_000_000; 40].into_iter().chain([1_000_000; 5]));
        let forecast = series.forecast().unwrap();
        assert!(forecast.p50.get() < 2_000_000, "{forecast:?}");
    }

    #[test]
    fn a_censored_sample_only_raises() {
        let mut series = measured([1_000_000; 10]);
        let before = series.clone();
        series.observe_censored(ByteRate::new(200_000), ByteRate::ZERO);
        assert_eq!(series, before);
        series.observe_censored(ByteRate::new(3_000_000), ByteRate::ZERO);
        assert_ne!(series, before);
    }

    #[test]
    fn an_advert_bounds_what_is_believed_and_nothing_known_stays_wide() {
        let unknown = Quantiles {
            p10: ByteRate::new(1),
            p50: ByteRate::new(10),
            p90: ByteRate::new(100),
        };
        let prior = Prior {
            unknown,
            advert_p10_permille: 600,
            advert_p50_permille: 900,
        };
        assert_eq!(prior.quantiles(None), unknown);
        let told = prior.quantiles(Some(ByteRate::new(1000)));
        assert_eq!(
            (told.p10.get(), told.p50.get(), told.p90.get()),
            (600, 900, 1000)
        );
    }

    #[test]
    fn a_series_comes_back_as_it_was_written() {
        let series = measured((0..300).map(|n| 1000 + n % 7));
        assert_eq!(Series::from_bytes(&series.to_bytes()), Ok(series));
    }

    /// Checks acceptance target 10 of the algorithm notes: the ensemble comes within 5 % of the
    /// best single predictor, here on a seeded walk with steps and noise.
    #[test]
    fn the_ensemble_errs_hardly_more_than_its_best_member() {
        let mut state = 7u64;
        let mut noise = || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (state >> 33) % 200_000
        };
        let values: Vec<u64> = (0..600u64)
            .map(|n| 1_000_000 + (n / 120) * 300_000 + noise())
            .collect();
        let mut series = Series::default();
        let (mut ensemble, mut single) = (0u64, [0u64; BATTERY.len()]);
        for (n, &value) in values.iter().enumerate() {
            if n > 20 {
                ensemble += series.best().abs_diff(value);
                for (sum, guess) in single.iter_mut().zip(series.memory.guesses()) {
                    *sum += guess.abs_diff(value);
                }
            }
            series.observe(ByteRate::new(value));
        }
        let best = single.iter().copied().min().unwrap();
        assert!(
            ensemble * 100 <= best * 105,
            "ensemble {ensemble}, best {best}"
        );
    }

    /// Reads a trace set: for each trace the bytes a second of each step.
    fn traces(text: &str) -> Vec<Vec<u64>> {
        let of = |line: &str| -> Vec<u64> {
            let (_, values) = line.split_once(": ").unwrap();
            let kbit = values.split(' ').map(|value| value.parse::<u64>().unwrap());
            kbit.map(|kbit| kbit * 125).collect()
        };
        text.lines().map(of).collect()
    }

    /// Returns mean absolute errors as millionths of the trace's mean, averaged over a set: the
    /// ensemble's and each predictor's.
    fn errors(set: &[Vec<u64>]) -> (u64, [u64; BATTERY.len()]) {
        let (mut ensemble, mut single) = (0, [0; BATTERY.len()]);
        for trace in set {
            let mut series = Series::default();
            let (mut erred, mut each) = (0, [0; BATTERY.len()]);
            for &value in trace {
                if series.is_measured() {
                    erred += series.best().abs_diff(value);
                    for (sum, guess) in each.iter_mut().zip(series.memory.guesses()) {
                        *sum += guess.abs_diff(value);
                    }
                }
                series.observe(ByteRate::new(value));
            }
            let carried: u64 = trace.iter().skip(1).sum();
            let share = |erred: u64| erred * 1_000_000 / carried / set.len() as u64;
            ensemble += share(erred);
            for (sum, erred) in single.iter_mut().zip(each) {
                *sum += share(erred);
            }
        }
        (ensemble, single)
    }

    /// Checks acceptance target 10 of the algorithm notes on real traces: within 5 % of the best
    /// single predictor there, and at least 30 % better than the mean of all.
    #[test]
    fn on_real_traces_the_ensemble_errs_hardly_more_than_the_best_predictor_alone() {
        for (name, text) in [
            ("Oboe", include_str!("../tests/data/oboe.txt")),
            ("3G", include_str!("../tests/data/3g-5s.txt")),
            ("FCC", include_str!("../tests/data/fcc-5s.txt")),
        ] {
            let (ensemble, single) = errors(&traces(text));
            let best = single.iter().min().unwrap();
            let of_all = BATTERY.iter().zip(single);
            let mut of_all =
                of_all.filter(|(one, _)| **one == crate::predictor::Predictor::MeanOfAll);
            let (_, mean) = of_all.next().unwrap();
            let said = std::format!("{name}: {ensemble}, best {best}, mean {mean}: {single:?}");
            std::println!("{said}");
            assert!(ensemble * 100 <= best * 105, "{said}");
            assert!(ensemble * 100 <= mean * 70, "{said}");
        }
    }
}
