//! Model `Th(n) = n / sqrt(a n^2 + b)`: never falls, and approaches `1/sqrt(a)` (Lu, Qiao, Dinda,
//! Bustamante: Modeling and Taming Parallel TCP on the Wide Area Network, IPDPS 2005, section 4).

use super::{
    Sample,
    curve::{Curve, EIGHTHS, under_root},
};

/// Solves `a = (n2^2/Th2^2 - n1^2/Th1^2) / (n2^2 - n1^2)`, `b = n1^2/Th1^2 - a n1^2`. None unless
/// both are positive: streams that never hinder each other, or always do, have no such curve.
pub(super) fn fit([one, two]: [Sample; 2]) -> Option<Curve> {
    let (n1, n2) = (f64::from(one.streams), f64::from(two.streams));
    let leading = (under_root(two) - under_root(one)) / (n2 * n2 - n1 * n1);
    let constant = under_root(one) - leading * n1 * n1;
    let curve = Curve {
        leading,
        exponent: 2 * EIGHTHS,
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

    fn sample(streams: u32, rate: f64) -> Sample {
        Sample {
            streams,
            rate: ByteRate::new(whole(rate)),
        }
    }

    #[test]
    fn two_points_of_a_curve_give_the_curve_back() {
        let truth = |n: f64| n / super::super::curve::root(4e-18 * n * n + 1e-16);
        let samples = [sample(1, truth(1.0)), sample(8, truth(8.0))];
        let curve = fit(samples).unwrap();
        for streams in [2, 4, 16, 100] {
            let exact = truth(f64::from(streams));
            let ratio = curve.rate(streams).unwrap() / exact;
            assert!((ratio - 1.0).abs() < 1e-6, "{streams}: {ratio}");
        }
    }

    #[test]
    fn what_falls_or_grows_without_bound_is_rejected() {
        assert_eq!(fit([sample(1, 1e8), sample(2, 2.1e8)]), None);
        assert_eq!(fit([sample(2, 1e8), sample(4, 0.9e8)]), None);
        assert_eq!(fit([sample(1, 0.0), sample(2, 1e8)]), None);
    }
}
