//! Exponential decay in integers, so that it is the same on all machines.

use core::time::Duration;

/// The number one in the units of [`share_left`].
pub const WHOLE: u128 = 1 << 64;

/// Halvings beyond which nothing is left.
const HALVINGS_MAX: u128 = 64;

/// Binary digits that count of a fraction of a half-life.
const DIGITS: u32 = 32;

/// 2^(-1/2), 2^(-1/4), 2^(-1/8) and so on, in units of [`WHOLE`]: each is the square root of the
/// one before.
const ROOTS: [u128; DIGITS as usize] = roots();

const fn roots() -> [u128; DIGITS as usize] {
    let mut roots = [0; DIGITS as usize];
    let (mut place, mut root) = (0, WHOLE / 2);
    while place < DIGITS as usize {
        root = (root << 64).isqrt();
        roots[place] = root;
        place += 1;
    }
    roots
}

/// Returns the share left after `span` of an amount that halves every `half_life`, in units of
/// [`WHOLE`], rounded down; zero if the half-life is zero.
#[must_use]
pub fn share_left(span: Duration, half_life: Duration) -> u128 {
    let (span, half_life) = (span.as_micros(), half_life.as_micros());
    if half_life == 0 || span / half_life >= HALVINGS_MAX {
        return if span == 0 { WHOLE } else { 0 };
    }
    let (halvings, rest) = (span / half_life, span % half_life);
    // A `Duration` holds no half-life beyond 2^95 microseconds.
    let fraction = (rest << DIGITS) / half_life;
    let mut share = WHOLE >> halvings;
    for (root, digit) in ROOTS.iter().zip((0..DIGITS).rev()) {
        if fraction >> digit & 1 == 1 {
            share = (share * root) >> 64;
        }
    }
    share
}

/// Returns the rest of `amount` after `span`, rounded down.
#[must_use]
pub fn decayed(amount: u64, span: Duration, half_life: Duration) -> u64 {
    let left = (u128::from(amount) * share_left(span, half_life)) >> 64;
    u64::try_from(left).unwrap_or(amount)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const DAY: Duration = Duration::from_secs(86400);

    #[test]
    fn half_is_left_after_a_half_life() {
        assert_eq!(decayed(1000, Duration::ZERO, DAY), 1000);
        assert_eq!(decayed(1000, DAY, DAY), 500);
        assert_eq!(decayed(1000, DAY * 3, DAY), 125);
        assert_eq!(decayed(1000, DAY / 2, DAY), 707);
        assert_eq!(decayed(u64::MAX, DAY * 64, DAY), 0);
        assert_eq!(decayed(7, Duration::MAX, Duration::from_micros(1)), 0);
        assert_eq!(
            (
                decayed(7, DAY, Duration::ZERO),
                decayed(7, Duration::ZERO, Duration::ZERO)
            ),
            (0, 7)
        );
    }

    proptest! {
        #[test]
        fn it_is_what_floating_point_says(span_s in 0u64..1_000_000, half_s in 1u64..1_000_000) {
            let share = share_left(Duration::from_secs(span_s), Duration::from_secs(half_s));
            let exact = (-(span_s as f64) / half_s as f64).exp2();
            let ours = share as f64 / WHOLE as f64;
            // Each digit that counts rounds down by less than one part.
            let rounded = (DIGITS + 1) as f64 / WHOLE as f64;
            prop_assert!((ours - exact).abs() <= 1e-9 * exact + rounded, "{ours} and {exact}");
        }
    }
}
