//! Streams from a model of the rate of `n` streams, fitted to a few samples.
//!
//! All three models have the form `Th(n) = n / sqrt(d(n))` (see [`curve`]) and differ in `d`.
//! Samples are taken at 1, 2, 4, 8, ... streams until one carries less, or hardly more, than the
//! one before. Of all ways to choose as many samples as the model has unknowns, the one whose curve
//! misses all samples least is used. A curve that makes no sense, misses too much or promises too
//! much is rejected, and the best sample is used.

mod c_order;
mod curve;
mod full_second_order;
mod partial_second_order;

use alloc::vec::Vec;
use curve::Curve;
use posthaste_types::{ByteRate, record};

use super::{
    Bounds, Choice, Optimizer, PathFacts, Probe, Reason, Setting, Stocks, Urgency, rules,
    utility::gain_permille,
};

/// Most streams that are sampled or predicted.
const STREAMS_MAX: u32 = 128;
/// Least gain of twice the streams, in thousandths: with less, sampling ends.
const SLOPE_MIN_PERMILLE: i64 = 50;
/// Factor: curves are trusted up to this many times the most streams sampled.
const REACH: u32 = 2;
/// Largest mean error of a curve, as a fraction of each sample.
const ERROR_MAX: f64 = 0.5;
/// Factor by which a curve may exceed the best sample.
const PROMISE_MAX: f64 = 2.0;
/// Fraction of the highest rate at which fewer streams are preferred.
const NEARLY: f64 = 0.98;
/// Loss against the best sample, in thousandths, at which a prediction has failed.
const BROKEN_PERMILLE: i64 = -30;

record! {
    /// Name of the model.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum Model {
        /// See [`partial_second_order`].
        0 = Partial,
        /// See [`full_second_order`].
        1 = Full,
        /// See [`c_order`].
        2 = Free,
    }
}

record! {
    /// Rate of a number of streams.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Sample {
        streams: u32,
        rate: ByteRate,
    }
}

record! {
    /// Phase of the optimizer.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum Phase {
        /// Takes samples.
        0 = Sampling,
        /// Checks the prediction.
        1 = Checking,
        /// Keeps the result.
        2 = Settled,
    }
}

record! {
    /// An optimizer that samples, fits and settles.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Sampling {
        model: Model,
        facts: PathFacts,
        bounds: Bounds,
        samples: Vec<Sample>,
        phase: Phase,
        streams: u32,
    }
}

impl Model {
    /// Returns the number of unknowns, which a fit takes as many samples for.
    const fn unknowns(self) -> usize {
        match self {
            Self::Partial => 2,
            Self::Full | Self::Free => 3,
        }
    }

    fn fit(self, samples: &[Sample]) -> Option<Curve> {
        match (self, samples) {
            (Self::Partial, [one, two]) => partial_second_order::fit([*one, *two]),
            (Self::Full, [one, two, three]) => full_second_order::fit([*one, *two, *three]),
            (Self::Free, [one, two, three]) => c_order::fit([*one, *two, *three]),
            (Self::Partial | Self::Full | Self::Free, _) => None,
        }
    }

    /// Returns the curve that misses all samples least, among those through as many as there are
    /// unknowns.
    fn best_fit(self, samples: &[Sample]) -> Option<Curve> {
        let mut best: Option<(f64, Curve)> = None;
        for mask in 0u32..1 << samples.len().min(16) {
            if mask.count_ones() as usize != self.unknowns() {
                continue;
            }
            let chosen: Vec<Sample> = samples
                .iter()
                .enumerate()
                .filter(|(place, _)| mask >> place & 1 == 1)
                .map(|(_, sample)| *sample)
                .collect();
            let fitted = self.fit(&chosen);
            let Some((error, curve)) =
                fitted.and_then(|curve| Some((curve.error(samples)?, curve)))
            else {
                continue;
            };
            if error <= ERROR_MAX && best.is_none_or(|(least, _)| error < least) {
                best = Some((error, curve));
            }
        }
        best.map(|(_, curve)| curve)
    }
}

impl Sampling {
    pub(super) fn new(model: Model, facts: PathFacts, bounds: Bounds) -> Self {
        Self {
            model,
            facts,
            bounds,
            samples: Vec::new(),
            phase: Phase::Sampling,
            streams: 1,
        }
    }

    /// Returns the setting with this many streams: as many files as there are, then streams per
    /// file. Files ahead by rule.
    fn setting(&self, streams: u32, stocks: &Stocks) -> Setting {
        let total = stocks.total();
        let class = self.facts.class(total.mean());
        let by_rule = rules::setting(class, total, &self.facts, &self.bounds);
        let files = u64::from(self.bounds.concurrency_max)
            .min(total.files)
            .max(1);
        let concurrency = u64::from(streams).min(files);
        let parallelism = u64::from(streams).div_ceil(concurrency);
        self.bounds.clamp(Setting::new(
            rules::narrow(concurrency),
            rules::narrow(parallelism),
            by_rule.pipelining,
        ))
    }

    fn streams_max(&self, stocks: &Stocks) -> u32 {
        self.setting(STREAMS_MAX, stocks).streams().min(STREAMS_MAX)
    }

    fn best_sample(&self) -> Option<Sample> {
        // Among equals the sample with fewer streams wins.
        self.samples
            .iter()
            .rev()
            .max_by_key(|sample| sample.rate)
            .copied()
    }

    /// Returns the fewest streams that carry nearly the highest rate of the model.
    fn predict(&self, stocks: &Stocks) -> Option<u32> {
        let curve = self.model.best_fit(&self.samples)?;
        let sampled = self.samples.iter().map(|sample| sample.streams).max()?;
        let most = sampled.saturating_mul(REACH).min(self.streams_max(stocks));
        let promised = |streams: u32| curve.rate(streams).unwrap_or(0.0);
        let peak = (1..=most).map(promised).fold(0.0, f64::max);
        let measured = self.best_sample()?.rate.get() as f64;
        if peak <= 0.0 || peak > PROMISE_MAX * measured {
            return None;
        }
        (1..=most).find(|&streams| promised(streams) >= NEARLY * peak)
    }

    fn go(&mut self, streams: u32, stocks: &Stocks, reason: Reason) -> Choice {
        self.streams = streams;
        Choice::of_all(self.setting(streams, stocks), &self.facts, reason)
    }

    fn settle(&mut self, stocks: &Stocks) -> Choice {
        self.phase = Phase::Settled;
        let streams = self.best_sample().map_or(1, |sample| sample.streams);
        self.go(streams, stocks, Reason::BestSample { streams })
    }

    fn on_sample(&mut self, sample: Sample, stocks: &Stocks) -> Choice {
        let before = self.samples.last().copied();
        self.samples.push(sample);
        let is_flat = before.is_some_and(|before| {
            gain_permille(before.rate.get(), sample.rate.get()) < SLOPE_MIN_PERMILLE
        });
        let next = sample.streams.saturating_mul(2);
        let is_last = next > self.streams_max(stocks);
        let is_enough = self.samples.len() >= self.model.unknowns() && is_flat;
        if !is_last && !is_enough {
            return self.go(next, stocks, Reason::Sampling { streams: next });
        }
        match self.predict(stocks) {
            Some(streams) if self.samples.iter().any(|sample| sample.streams == streams) => {
                self.phase = Phase::Settled;
                self.go(streams, stocks, Reason::Predicted { streams })
            }
            Some(streams) => {
                self.phase = Phase::Checking;
                self.go(streams, stocks, Reason::Predicted { streams })
            }
            None => self.settle(stocks),
        }
    }
}

impl Optimizer for Sampling {
    fn first(&mut self, stocks: &Stocks) -> Choice {
        self.samples.clear();
        self.phase = Phase::Sampling;
        self.go(1, stocks, Reason::Sampling { streams: 1 })
    }

    fn on_probe(&mut self, probe: &Probe, stocks: &Stocks) -> Choice {
        if probe.is_too_short() {
            return self.go(self.streams, stocks, Reason::TooShort);
        }
        let rate = probe.rate();
        match self.phase {
            Phase::Sampling => {
                let streams = probe.setting.streams();
                self.on_sample(Sample { streams, rate }, stocks)
            }
            Phase::Checking => {
                let best = self.best_sample().map_or(0, |sample| sample.rate.get());
                if gain_permille(best, rate.get()) < BROKEN_PERMILLE {
                    return self.settle(stocks);
                }
                self.phase = Phase::Settled;
                self.go(self.streams, stocks, Reason::Holding { rate })
            }
            Phase::Settled => self.go(self.streams, stocks, Reason::Holding { rate }),
        }
    }

    fn set_urgency(&mut self, _: Urgency) {}

    /// Returns none: each transfer takes its own samples.
    fn best(&self) -> Option<Setting> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tuner::trial::{BOUNDS, facts, probe, stocks, whole};

    const MODELS: [Model; 3] = [Model::Partial, Model::Full, Model::Free];

    /// Runs to the end on a path that carries `rate(streams)`; returns the final streams and the
    /// number of periods.
    fn settle(model: Model, rate: impl Fn(f64) -> f64) -> (u32, usize) {
        let facts = facts(60, Some(10));
        let stocks = stocks(&facts, &[(1000, 100_000_000)]);
        let mut sampling = Sampling::new(model, facts, BOUNDS);
        let mut choice = sampling.first(&stocks);
        for periods in 0..20 {
            if sampling.phase == Phase::Settled {
                return (choice.setting().streams(), periods);
            }
            let carried = rate(f64::from(choice.setting().streams()));
            choice = sampling.on_probe(&probe(choice.setting(), whole(carried)), &stocks);
        }
        panic!("{model:?} never settles");
    }

    #[test]
    fn each_model_finds_the_peak_of_its_own_curve() {
        let full = |n: f64| 1e8 * n / curve::root(0.002 * n * n - 0.02 * n + 1.0);
        let (streams, periods) = settle(Model::Full, full);
        let best = (1..=128).map(|n| full(f64::from(n))).fold(0.0, f64::max);
        assert!(full(f64::from(streams)) > 0.97 * best, "{streams}");
        assert!(periods <= 9, "{periods}");
        let c_order = |n: f64| 1e8 * n / curve::root(0.0001 * n * n * n + 1.0);
        let (streams, _) = settle(Model::Free, c_order);
        let best = (1..=128).map(|n| c_order(f64::from(n))).fold(0.0, f64::max);
        assert!(c_order(f64::from(streams)) > 0.95 * best, "{streams}");
        let partial = |n: f64| 1e8 * n / curve::root(0.01 * n * n + 1.0);
        let (streams, _) = settle(Model::Partial, partial);
        assert!(partial(f64::from(streams)) > 0.9 * 1e9, "{streams}");
    }

    #[test]
    fn samples_that_fit_no_curve_leave_the_best_of_them() {
        // Up and down: no model has two peaks.
        let odd = |n: f64| if n < 2.0 { 5e8 } else { 1e8 + n * 1e6 };
        for model in MODELS {
            let (streams, _) = settle(model, odd);
            assert_eq!(streams, 1, "{model:?}");
        }
    }

    #[test]
    fn a_promise_that_does_not_hold_is_taken_back() {
        // The rate collapses after the samples.
        let cliff = |n: f64| {
            if n <= 8.0 || n == 16.0 {
                1e8 * n / curve::root(1.0 + n)
            } else {
                1e7
            }
        };
        for model in MODELS {
            let (streams, _) = settle(model, cliff);
            assert!([8, 16].contains(&streams), "{model:?}: {streams}");
        }
    }
}
