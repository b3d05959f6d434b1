//! The battery of predictors, after the Network Weather Service (Wolski 1998).

use alloc::vec::Vec;

/// One way to guess the next value of a series.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Predictor {
    /// The last value.
    Last,
    /// The mean of the last values.
    Mean {
        /// How many, in samples.
        window: usize,
    },
    /// The median of the last values.
    Median {
        /// How many, in samples.
        window: usize,
    },
    /// Exponential smoothing: `level += gain * (value - level)`.
    Smooth {
        /// The gain in thousandths.
        gain_permille: u32,
        /// Where its level stands in [`Levels`].
        level: usize,
    },
}

/// Values a series keeps: the widest window below.
pub(crate) const HISTORY_MAX: usize = 50;

/// Smoothing gains, in thousandths, in the order of their levels.
pub(crate) const GAINS_PERMILLE: [u32; 7] = [50, 100, 200, 300, 500, 750, 900];

/// The battery. Where two did equally well the earlier one speaks, so the steadier come first.
pub(crate) const BATTERY: [Predictor; 15] = [
    Predictor::Median { window: 5 },
    Predictor::Median { window: 15 },
    Predictor::Median { window: 31 },
    Predictor::Mean { window: 5 },
    Predictor::Mean { window: 10 },
    Predictor::Mean { window: 20 },
    Predictor::Mean { window: 50 },
    smooth(0),
    smooth(1),
    smooth(2),
    smooth(3),
    smooth(4),
    smooth(5),
    smooth(6),
    Predictor::Last,
];

const fn smooth(level: usize) -> Predictor {
    Predictor::Smooth {
        gain_permille: GAINS_PERMILLE[level],
        level,
    }
}

impl Predictor {
    /// The guess after `history` (oldest first, never empty) and with these smoothing levels.
    pub(crate) fn predict(self, history: &[u64], levels: &[u64]) -> u64 {
        match self {
            Self::Last => history.last().copied().unwrap_or(0),
            Self::Mean { window } => mean(tail(history, window)),
            Self::Median { window } => median(tail(history, window)),
            Self::Smooth { level, .. } => levels.get(level).copied().unwrap_or(0),
        }
    }
}

/// `level + gain * (value - level)`, in integers.
pub(crate) fn smoothed(level: u64, value: u64, gain_permille: u32) -> u64 {
    let (level, value) = (i128::from(level), i128::from(value));
    let moved = level + (value - level) * i128::from(gain_permille) / 1000;
    u64::try_from(moved).unwrap_or(0)
}

fn tail(history: &[u64], window: usize) -> &[u64] {
    &history[history.len().saturating_sub(window)..]
}

fn mean(values: &[u64]) -> u64 {
    let sum: u128 = values.iter().map(|&value| u128::from(value)).sum();
    u64::try_from(sum / (values.len().max(1) as u128)).unwrap_or(u64::MAX)
}

fn median(values: &[u64]) -> u64 {
    let mut sorted = Vec::from(values);
    sorted.sort_unstable();
    sorted.get(sorted.len() / 2).copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_predictor_forecasts_a_constant_exactly() {
        let history = [7u64; 20];
        let levels = [7u64; GAINS_PERMILLE.len()];
        for predictor in BATTERY {
            assert_eq!(predictor.predict(&history, &levels), 7, "{predictor:?}");
        }
    }

    #[test]
    fn a_median_ignores_one_outlier_and_a_mean_does_not() {
        let history = [10, 10, 1000, 10, 10];
        assert_eq!(Predictor::Median { window: 5 }.predict(&history, &[]), 10);
        assert_eq!(Predictor::Mean { window: 5 }.predict(&history, &[]), 208);
    }

    #[test]
    fn smoothing_moves_by_its_gain_both_ways() {
        assert_eq!(smoothed(100, 200, 500), 150);
        assert_eq!(smoothed(200, 100, 500), 150);
        assert_eq!(smoothed(u64::MAX, 0, 1000), 0);
    }
}
