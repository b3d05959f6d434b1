use alloc::vec::Vec;
use posthaste_types::record;

/// Pairs kept: enough for a distribution, few enough that a changed path is learnt anew.
const PAIRS_MAX: usize = 50;

/// Fewest pairs for a distribution; with fewer there is only a ratio.
const PAIRS_ENOUGH: usize = 10;

/// Thousandths in one, and the bounds of a ratio of a transfer to its probe: beyond them one of the
/// two measured something else.
const ONE: u64 = 1000;
const RATIO_MAX: u64 = 20_000;

record! {
    /// Translation of probe results to the rates of transfers.
    ///
    /// Quantile matching, `y = F_T^-1(F_P(x))` (Swany and Wolski, SC'02); before there are enough
    /// pairs the mean ratio, with one pair of ratio 1 as the prior.
    #[derive(Debug, Clone, PartialEq, Eq, Default)]
    pub(crate) struct Mapping {
        /// Rates of probe and transfer in bytes a second, oldest first.
        pairs: Vec<(u64, u64)>,
    }
}

impl Mapping {
    /// Records that a transfer showed `transfer` soon after a probe had shown `probe`.
    pub(crate) fn pair(&mut self, probe: u64, transfer: u64) {
        if self.pairs.len() >= PAIRS_MAX {
            self.pairs.remove(0);
        }
        self.pairs.push((probe, transfer));
    }

    /// Returns whether there are enough pairs.
    pub(crate) fn is_known(&self) -> bool {
        self.pairs.len() >= PAIRS_ENOUGH
    }

    /// Returns the expected rate of a transfer if a probe shows `probe`. O(pairs log pairs).
    pub(crate) fn map(&self, probe: u64) -> u64 {
        if !self.is_known() {
            return times(probe, self.ratio_permille(), ONE);
        }
        let mut probes: Vec<u64> = self.pairs.iter().map(|(probe, _)| *probe).collect();
        let mut transfers: Vec<u64> = self.pairs.iter().map(|(_, transfer)| *transfer).collect();
        probes.sort_unstable();
        transfers.sort_unstable();
        let above = probes.partition_point(|known| *known <= probe);
        let last = probes.len() - 1;
        if above == 0 {
            return times(transfers[0], probe, probes[0]);
        }
        if above > last {
            return times(transfers[last], probe, probes[last]);
        }
        let (low, high) = (above - 1, above);
        let rise = transfers[high] - transfers[low];
        transfers[low] + times(rise, probe - probes[low], probes[high] - probes[low])
    }

    fn ratio_permille(&self) -> u64 {
        let ratios = self.pairs.iter();
        let ratios = ratios.map(|&(probe, transfer)| times(transfer, ONE, probe).min(RATIO_MAX));
        (ratios.sum::<u64>() + ONE) / (self.pairs.len() as u64 + 1)
    }
}

/// Returns `value * numerator / denominator`; a zero denominator is replaced.
fn times(value: u64, numerator: u64, denominator: u64) -> u64 {
    let product = u128::from(value) * u128::from(numerator) / u128::from(denominator.max(1));
    u64::try_from(product).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mapping(pairs: impl IntoIterator<Item = (u64, u64)>) -> Mapping {
        let mut mapping = Mapping::default();
        for (probe, transfer) in pairs {
            mapping.pair(probe, transfer);
        }
        mapping
    }

    #[test]
    fn without_pairs_a_probe_is_taken_at_its_word() {
        assert_eq!(Mapping::default().map(1234), 1234);
    }

    #[test]
    fn a_few_pairs_scale_by_their_mean_ratio_and_the_prior() {
        assert_eq!(mapping([(1000, 3000)]).map(1000), 2000);
        assert_eq!(mapping([(1000, 3000); 9]).map(500), 1400);
        assert_eq!(
            mapping([(0, 3000)]).map(1000),
            10_500,
            "one pair is bounded"
        );
    }

    #[test]
    fn enough_pairs_are_matched_by_quantiles_whatever_their_order() {
        // Transfers saturate while probes do not: no single ratio could express that.
        let truth = |probe: u64| (probe * 3).min(6000);
        let shuffled = (0..20u64).map(|n| (n * 7 % 20 + 1) * 200);
        let mapping = mapping(shuffled.map(|probe| (probe, truth(probe))));
        for probe in [200, 500, 1000, 1900, 3000, 4000] {
            assert_eq!(mapping.map(probe), truth(probe), "{probe}");
        }
        assert_eq!(mapping.map(100), 300, "below the pairs");
        assert_eq!(mapping.map(8000), 12_000, "beyond the pairs");
    }

    #[test]
    fn old_pairs_are_forgotten() {
        let mapping = mapping([(1000, 1000); 50].into_iter().chain([(1000, 4000); 50]));
        assert_eq!(mapping.map(1000), 4000);
    }
}
