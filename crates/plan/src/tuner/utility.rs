//! Utility of a rate whose streams others pay for.
//!
//! `U(n) = T/K^n - T B loss` with `B = 10` (Arifuzzaman, Arslan: Online Optimization of File
//! Transfers in High-Speed Networks, SC 2021, equation 4). Another stream or file has to raise the
//! rate by the factor `K`. `U` is concave in `n` as long as `n < 2/ln K`, so equal transfers on one
//! link come to rest at equal shares.

use posthaste_types::ByteRate;

use super::{Probe, Urgency};

/// Weight of loss.
const LOSS_WEIGHT: u64 = 10;

/// The number one, with 32 bits below the point.
const ONE: u64 = 1 << 32;

/// A factor over one, as a fraction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Cost {
    numerator: u64,
    denominator: u64,
}

impl Cost {
    /// Falcon's own cost: a further file has to raise the rate by 2 %.
    pub(super) const FILE: Self = Self::new(102, 100);

    const fn new(numerator: u64, denominator: u64) -> Self {
        Self {
            numerator,
            denominator,
        }
    }

    /// Returns the cost of a stream for `auto`: the eighth root of 1.05, 1.02 or 1.005. Links are
    /// shared by streams, so streams are counted; eight are as many as Falcon's own runs gave a
    /// file.
    pub(super) const fn of_stream(urgency: Urgency) -> Self {
        match urgency {
            Urgency::Background => Self::new(10_061, 10_000),
            Urgency::Normal => Self::new(10_025, 10_000),
            Urgency::Late => Self::new(100_062, 100_000),
        }
    }

    /// Returns `ONE / self^exponent`.
    fn inverse_power(self, exponent: u32) -> u64 {
        let (mut result, mut rest) = (ONE, exponent);
        let mut factor = ONE * self.denominator / self.numerator;
        while rest > 0 {
            if rest & 1 == 1 {
                result = (result * factor) >> 32;
            }
            factor = (factor * factor) >> 32;
            rest >>= 1;
        }
        result
    }

    /// Returns the utility of the probe's rate with `count` to pay for, in bytes a second; never
    /// negative.
    pub(super) fn worth(self, probe: &Probe, count: u32) -> u64 {
        let loss = u64::from(probe.lost_permille.unwrap_or(0)).min(1000);
        let penalty = LOSS_WEIGHT * loss * ONE / 1000;
        let weight = self.inverse_power(count).saturating_sub(penalty);
        probe.rate().scaled(weight, ONE).get()
    }
}

/// Returns the excess of `new` over `old`, in thousandths.
pub(super) fn gain_permille(old: u64, new: u64) -> i64 {
    let most = i64::MAX / 2;
    if old == 0 {
        return if new == 0 { 0 } else { most };
    }
    let ratio = u128::from(new) * 1000 / u128::from(old);
    i64::try_from(ratio).unwrap_or(most).min(most) - 1000
}

/// Returns the median of the rates, the lower of two.
pub(super) fn median(rates: &[ByteRate]) -> Option<ByteRate> {
    let mut sorted = rates.to_vec();
    sorted.sort_unstable();
    sorted.get(sorted.len().saturating_sub(1) / 2).copied()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tuner::Setting;
    use core::time::Duration;
    use posthaste_types::Bytes;

    fn probe(rate: u64, lost_permille: u16) -> Probe {
        Probe {
            setting: Setting::ONE,
            elapsed: Duration::from_secs(1),
            bytes: Bytes::new(rate),
            lost_permille: Some(lost_permille),
        }
    }

    #[test]
    fn powers_are_right_to_a_millionth() {
        for count in [0u32, 1, 2, 16, 50, 100, 1000] {
            let exact = (0..count).fold(1e9, |worth: f64, _| worth / 1.02);
            let ours = Cost::FILE.worth(&probe(1_000_000_000, 0), count);
            let error = (exact - ours as f64).abs();
            assert!(
                error <= 1e3_f64.min(exact * 1e-5 + 2.0),
                "{count}: {ours} for {exact}"
            );
        }
    }

    #[test]
    fn linear_growth_is_worth_most_at_one_over_ln_k() {
        let worth = |count: u32| Cost::FILE.worth(&probe(1_000_000 * u64::from(count), 0), count);
        let best = (1..200).max_by_key(|&count| worth(count));
        // 1/ln 1.02 = 50.5
        assert!(matches!(best, Some(50 | 51)), "{best:?}");
    }

    #[test]
    fn a_tenth_lost_is_worth_nothing() {
        assert_eq!(Cost::FILE.worth(&probe(1_000_000, 100), 1), 0);
        assert!(Cost::FILE.worth(&probe(1_000_000, 10), 1) < 890_000);
    }

    #[test]
    fn eight_streams_cost_what_a_file_costs_falcon() {
        for (urgency, permille) in [
            (Urgency::Background, 1050),
            (Urgency::Normal, 1020),
            (Urgency::Late, 1005),
        ] {
            let worth = Cost::of_stream(urgency).worth(&probe(1_000_000_000, 0), 8);
            let error = (worth * permille / 1000).abs_diff(1_000_000_000);
            assert!(error < 500_000, "{urgency:?}: {worth}");
        }
    }
}
