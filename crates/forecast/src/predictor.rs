//! Battery of predictors, after the Network Weather Service (Wolski 1998).

use alloc::vec::Vec;
use posthaste_types::record;

/// A way to predict the next value of a series.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Predictor {
    /// Last value.
    Last,
    /// Mean of all values.
    MeanOfAll,
    /// Mean of the last values.
    Mean {
        /// Number of values.
        window: usize,
    },
    /// Median of the last values.
    Median {
        /// Number of values.
        window: usize,
    },
    /// Mean of the last [`HISTORY_MAX`] values without the largest and the smallest 15 %.
    Trimmed,
    /// Exponential smoothing: `level += gain * (value - level)`.
    Smooth {
        /// Place of the gain.
        gain: usize,
    },
}

/// Values a series keeps: the widest window below.
pub(crate) const HISTORY_MAX: usize = 51;

/// Smoothing gains, in thousandths.
const GAINS_PERMILLE: [u64; 4] = [200, 300, 750, 900];

/// The battery. Among equally good ones the earlier one is used, so the steadier come first.
/// `docs/algorithms/bandwidth-forecast.md` names those that were tried and left out.
pub(crate) const BATTERY: [Predictor; 11] = [
    Predictor::Median { window: 15 },
    Predictor::Median { window: 31 },
    Predictor::Mean { window: 10 },
    Predictor::Mean { window: 30 },
    Predictor::Trimmed,
    Predictor::MeanOfAll,
    Predictor::Smooth { gain: 0 },
    Predictor::Smooth { gain: 1 },
    Predictor::Smooth { gain: 2 },
    Predictor::Smooth { gain: 3 },
    Predictor::Last,
];

record! {
    /// State of the predictors for a series, and their predictions of the next value.
    #[derive(Debug, Clone, PartialEq, Eq, Default)]
    pub(crate) struct Memory {
        /// Last values, oldest first.
        history: Vec<u64>,
        /// Level for each gain.
        levels: Vec<u64>,
        /// Number of values seen.
        count: u64,
        /// Sum of all values.
        sum: u64,
        /// Prediction of each member of the battery; empty before the first value.
        guesses: Vec<u64>,
    }
}

impl Memory {
    /// Adds the next value and predicts the one after it: one walk over the last values, which
    /// sorts them on the way, O(window^2 / 4) moves of eight bytes.
    pub(crate) fn take(&mut self, value: u64) {
        self.levels.resize(GAINS_PERMILLE.len(), value);
        for (level, gain) in self.levels.iter_mut().zip(GAINS_PERMILLE) {
            *level = smoothed(*level, value, gain);
        }
        if self.history.len() >= HISTORY_MAX {
            self.history.remove(0);
        }
        self.history.push(value);
        self.count += 1;
        self.sum = self.sum.saturating_add(value);
        let walk = Walk::over(&self.history);
        let guesses = BATTERY.iter().map(|predictor| match *predictor {
            Predictor::Last => value,
            Predictor::MeanOfAll => self.sum / self.count,
            Predictor::Mean { window } => walk.mean(window),
            Predictor::Median { window } => walk.median(window),
            Predictor::Trimmed => walk.trimmed(),
            Predictor::Smooth { gain } => self.levels[gain],
        });
        self.guesses = guesses.collect();
    }

    /// Returns the prediction of each member of the battery.
    pub(crate) fn guesses(&self) -> &[u64] {
        &self.guesses
    }

    /// Returns the number of values so far.
    pub(crate) fn count(&self) -> u64 {
        self.count
    }
}

/// Sums and medians of the last one, two, three… values, and all of them in order.
struct Walk {
    sums: [u64; HISTORY_MAX + 1],
    medians: [u64; HISTORY_MAX + 1],
    sorted: [u64; HISTORY_MAX],
    count: usize,
}

impl Walk {
    fn over(history: &[u64]) -> Self {
        let mut walk = Self {
            sums: [0; HISTORY_MAX + 1],
            medians: [0; HISTORY_MAX + 1],
            sorted: [0; HISTORY_MAX],
            count: history.len().min(HISTORY_MAX),
        };
        for (before, &value) in history.iter().rev().take(HISTORY_MAX).enumerate() {
            let to = walk.sorted[..before].partition_point(|other| *other <= value);
            walk.sorted.copy_within(to..before, to + 1);
            walk.sorted[to] = value;
            walk.sums[before + 1] = walk.sums[before].saturating_add(value);
            walk.medians[before + 1] = walk.sorted[before.div_ceil(2)];
        }
        walk
    }

    fn mean(&self, window: usize) -> u64 {
        let count = window.min(self.count);
        self.sums[count] / (count.max(1) as u64)
    }

    fn median(&self, window: usize) -> u64 {
        self.medians[window.min(self.count)]
    }

    fn trimmed(&self) -> u64 {
        let cut = self.count * 3 / 20;
        let kept = &self.sorted[cut..self.count - cut];
        let sum = kept
            .iter()
            .fold(0u64, |sum, value| sum.saturating_add(*value));
        sum / (kept.len().max(1) as u64)
    }
}

/// Returns `level + gain * (value - level)`, in integers.
fn smoothed(level: u64, value: u64, gain_permille: u64) -> u64 {
    let (level, value) = (i128::from(level), i128::from(value));
    let moved = level + (value - level) * i128::from(gain_permille) / 1000;
    u64::try_from(moved).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(values: impl IntoIterator<Item = u64>) -> Memory {
        let mut memory = Memory::default();
        values.into_iter().for_each(|value| memory.take(value));
        memory
    }

    fn guess(memory: &Memory, predictor: Predictor) -> u64 {
        let place = BATTERY.iter().position(|other| *other == predictor);
        memory.guesses()[place.unwrap()]
    }

    #[test]
    fn each_predictor_forecasts_a_constant_exactly() {
        for count in [1, 2, 9, 200] {
            assert_eq!(after([7; 200].into_iter().take(count)).guesses(), [7; 11]);
        }
    }

    #[test]
    fn a_median_and_a_trimmed_mean_ignore_one_outlier_and_a_mean_does_not() {
        let memory = after([10, 10, 10, 10, 1000, 10, 10, 10, 10, 10]);
        assert_eq!(guess(&memory, Predictor::Median { window: 15 }), 10);
        assert_eq!(guess(&memory, Predictor::Trimmed), 10);
        assert_eq!(guess(&memory, Predictor::Mean { window: 10 }), 109);
    }

    #[test]
    fn windows_forget_and_the_mean_of_all_does_not() {
        let memory = after([0; 60].into_iter().chain([60; 40]));
        assert_eq!(guess(&memory, Predictor::Mean { window: 30 }), 60);
        assert_eq!(guess(&memory, Predictor::Median { window: 31 }), 60);
        assert_eq!(guess(&memory, Predictor::MeanOfAll), 24);
    }

    #[test]
    fn the_walk_finds_what_sorting_each_window_finds() {
        let values: Vec<u64> = (0..80u64).map(|n| n * 7919 % 101).collect();
        for end in 1..values.len() {
            let memory = after(values[..end].iter().copied());
            for window in [15, 31] {
                let mut last = values[end.saturating_sub(window)..end].to_vec();
                last.sort_unstable();
                let median = guess(&memory, Predictor::Median { window });
                assert_eq!(median, last[last.len() / 2], "{window} of {end}");
            }
        }
    }

    #[test]
    fn smoothing_moves_by_its_gain_both_ways() {
        assert_eq!(smoothed(100, 200, 500), 150);
        assert_eq!(smoothed(200, 100, 500), 150);
        assert_eq!(smoothed(u64::MAX, 0, 1000), 0);
    }
}
