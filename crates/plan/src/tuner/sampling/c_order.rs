//! Model `Th(n) = n / sqrt(a n^g + b)` with `g` of at least 2: rises to a peak as sharp as the
//! samples (Yildirim, Yin, Kosar: Prediction of Optimal Parallelism Level in Wide Area Data
//! Transfers, IEEE TPDS 22(12), 2011; there by Newton's iteration, here by bisection).

use super::{
    Sample,
    curve::{Curve, EIGHTHS, power, under_root},
};

/// Smallest exponent, in eighths: below 2 nothing falls; above 8, the largest, the curve drops like
/// a cliff.
const EXPONENT_MIN: u32 = 2 * EIGHTHS;
const EXPONENT_MAX: u32 = 8 * EIGHTHS;

/// Solves `(y3 - y1)/(y2 - y1) = (n3^g - n1^g)/(n2^g - n1^g)` for `g`, then `a` and `b`. None
/// unless both are positive and `g` lies within its limits.
pub(super) fn fit(samples: [Sample; 3]) -> Option<Curve> {
    let [n1, n2, n3] = samples.map(|sample| f64::from(sample.streams));
    let [y1, y2, y3] = samples.map(under_root);
    let wanted = (y3 - y1) / (y2 - y1);
    let ratio = |exponent: u32| {
        let first = power(n1, exponent);
        (power(n3, exponent) - first) / (power(n2, exponent) - first)
    };
    // The ratio grows with the exponent.
    let is_within = wanted >= ratio(EXPONENT_MIN) && wanted <= ratio(EXPONENT_MAX);
    if !is_within || y2 <= y1 {
        return None;
    }
    let (mut low, mut high) = (EXPONENT_MIN, EXPONENT_MAX);
    while high - low > 1 {
        let middle = low.midpoint(high);
        if ratio(middle) <= wanted {
            low = middle;
        } else {
            high = middle;
        }
    }
    let is_nearer = ratio(high) - wanted < wanted - ratio(low);
    let exponent = if is_nearer { high } else { low };
    let leading = (y3 - y1) / (power(n3, exponent) - power(n1, exponent));
    let constant = y1 - leading * power(n1, exponent);
    let curve = Curve {
        leading,
        exponent,
        linear: 0.0,
        constant,
    };
    (leading > 0.0 && constant > 0.0).then_some(curve)
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
    fn the_exponent_is_found_and_with_it_the_peak() {
        let truth = |n: f64| 1e9 * n / super::super::curve::root(0.001 * n * n * n + 4.0);
        let at = |streams: u32| (streams, truth(f64::from(streams)));
        let curve = fit(samples([at(1), at(8), at(32)])).unwrap();
        assert_eq!(curve.exponent, 3 * EIGHTHS);
        let rates = (1..100).map(|streams| (streams, curve.rate(streams).unwrap()));
        let peak = rates
            .max_by(|one, other| one.1.total_cmp(&other.1))
            .unwrap()
            .0;
        // (2b / (a (g - 2)))^(1/g) = 8000^(1/3)
        assert_eq!(peak, 20);
    }

    #[test]
    fn what_no_exponent_explains_is_rejected() {
        assert_eq!(fit(samples([(1, 1e8), (2, 2e8), (4, 4e8)])), None);
        assert_eq!(fit(samples([(1, 1e8), (2, 1.5e8), (4, 0.01e8)])), None);
        assert_eq!(fit(samples([(1, 1e8), (2, 3e8), (4, 4e8)])), None);
        assert_eq!(fit(samples([(1, 1e8), (2, 0.0), (4, 4e8)])), None);
    }
}
