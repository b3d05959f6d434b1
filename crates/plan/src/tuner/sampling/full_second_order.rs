//! Model `Th(n) = n / sqrt(a n^2 + b n + c)`: rises to a peak at `-2c/b` and falls (Yildirim, Yin,
//! Kosar: Prediction of Optimal Parallelism Level in Wide Area Data Transfers, IEEE TPDS 22(12),
//! 2011).

use super::{
    Sample,
    curve::{Curve, EIGHTHS, under_root},
};

/// Returns the parabola through three values of `n^2/Th^2`. None unless `a > 0`, `b < 0`, `c > 0`,
/// the peak lies beyond one stream (`2c + b > 0`), and the parabola stays above zero.
pub(super) fn fit(samples: [Sample; 3]) -> Option<Curve> {
    let [n1, n2, n3] = samples.map(|sample| f64::from(sample.streams));
    let [y1, y2, y3] = samples.map(under_root);
    let first = (y2 - y1) / (n2 - n1);
    let second = (y3 - y2) / (n3 - n2);
    let leading = (second - first) / (n3 - n1);
    let linear = first - leading * (n1 + n2);
    let constant = y1 - n1 * (linear + leading * n1);
    let has_peak = leading > 0.0 && linear < 0.0 && constant > 0.0 && 2.0 * constant + linear > 0.0;
    let has_values = 4.0 * leading * constant > linear * linear;
    let curve = Curve {
        leading,
        exponent: 2 * EIGHTHS,
        linear,
        constant,
    };
    (has_peak && has_values).then_some(curve)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tuner::trial::whole;
    use posthaste_types::ByteRate;

    fn samples(rates: [(u32, f64); 3]) -> [Sample; 3] {
        rates.map(|(streams, rate)| Sample {
            streams,
            rate: ByteRate::new(whole(rate)),
        })
    }

    #[test]
    fn three_points_of_a_curve_give_its_peak() {
        let truth = |n: f64| 1e9 * n / super::super::curve::root(0.5 * n * n - 4.0 * n + 20.0);
        let at = |streams: u32| (streams, truth(f64::from(streams)));
        let curve = fit(samples([at(1), at(4), at(16)])).unwrap();
        // -2c/b = 10
        let rates = (1..50).map(|streams| (streams, curve.rate(streams).unwrap()));
        let peak = rates.max_by(|one, other| one.1.total_cmp(&other.1));
        assert_eq!(peak.unwrap().0, 10);
    }

    #[test]
    fn a_curve_without_a_peak_or_with_a_hole_is_rejected() {
        assert_eq!(fit(samples([(1, 1e8), (2, 2e8), (4, 4e8)])), None);
        assert_eq!(fit(samples([(1, 3e8), (2, 2e8), (4, 1e8)])), None);
        // The parabola through these dips below zero between 2 and 8.
        assert_eq!(fit(samples([(1, 1e8), (2, 8e8), (8, 9e8)])), None);
    }
}
