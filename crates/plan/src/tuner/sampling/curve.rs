//! Rate of `n` streams: `Th(n) = n / sqrt(a n^g + b n + c)`.
//!
//! Floating point is deterministic with the four basic operations only, so the root is Newton's and
//! powers are products. Nothing here is stored, and the result is a whole number of streams.

use super::Sample;

/// Unit of exponents: eighths, so that a power is a product under three square roots.
pub(super) const EIGHTHS: u32 = 8;

/// A fitted curve.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Curve {
    /// `a`.
    pub(super) leading: f64,
    /// `g`, in eighths.
    pub(super) exponent: u32,
    /// `b`.
    pub(super) linear: f64,
    /// `c`.
    pub(super) constant: f64,
}

impl Curve {
    /// Returns its rate for this many streams, in bytes a second; none if it has no value there.
    pub(super) fn rate(&self, streams: u32) -> Option<f64> {
        let n = f64::from(streams);
        let under = self.leading * power(n, self.exponent) + self.linear * n + self.constant;
        (under > 0.0).then(|| n / root(under))
    }

    /// Returns the mean relative error on the samples; none if it has no value at one.
    pub(super) fn error(&self, samples: &[Sample]) -> Option<f64> {
        let mut sum = 0.0;
        for sample in samples {
            let measured = sample.rate.get() as f64;
            let missed = self.rate(sample.streams)? - measured;
            sum += if missed < 0.0 { -missed } else { missed } / measured;
        }
        let mean = sum / samples.len() as f64;
        // An empty sample gives no number, and no number is no error.
        (mean >= 0.0).then_some(mean)
    }
}

/// Returns `n^2 / Th(n)^2`, in which the models are linear.
pub(super) fn under_root(sample: Sample) -> f64 {
    let ratio = f64::from(sample.streams) / sample.rate.get() as f64;
    ratio * ratio
}

/// Returns `base^(eighths/8)` for a base of at least one.
pub(super) fn power(base: f64, eighths: u32) -> f64 {
    let product = (0..eighths).fold(1.0, |product, _| product * base);
    root(root(root(product)))
}

/// Returns the square root, to the last bits; zero for a number that has none.
pub(super) fn root(value: f64) -> f64 {
    if !(value > 0.0 && value < f64::MAX) {
        return 0.0;
    }
    // Half the exponent is within a factor of two of the root: six steps double the right bits to
    // 53.
    let mut guess = f64::from_bits((value.to_bits() >> 1) + (1023 << 51));
    for _ in 0..6 {
        guess = 0.5 * (guess + value / guess);
    }
    guess
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roots_are_exact_to_a_billionth() {
        for value in [1e-300, 1e-9, 0.25, 1.0, 2.0, 3.0, 1e6, 12345.678, 1e300] {
            let error = (root(value) * root(value) - value).abs() / value;
            assert!(error < 1e-14, "{value}: {error}");
        }
        assert_eq!(root(-1.0) + root(0.0) + root(f64::NAN), 0.0);
    }

    #[test]
    fn powers_in_eighths_are_powers() {
        for (base, eighths, exact) in [
            (2.0, 16, 4.0),
            (4.0, 20, 32.0),
            (16.0, 12, 64.0),
            (100.0, 64, 1e16),
        ] {
            assert!(
                (power(base, eighths) / exact - 1.0).abs() < 1e-12,
                "{base}^{eighths}/8"
            );
        }
    }
}
