//! Break-even of a reservation, and the least rate that suffices.

use core::time::Duration;
use posthaste_types::{ByteRate, Bytes};

/// Step of reserved rates: whole megabits a second, as networks sell them.
pub const RATE_STEP: ByteRate = ByteRate::new(125_000);

/// Returns whether setting up a circuit takes less time than it saves, `V / r_direct - V /
/// r_circuit` (the break-even of overlay-2010; `docs/algorithms/circuits.md`). A path that carries
/// nothing is worth any wait; a circuit that is no faster is worth none.
#[must_use]
pub fn pays(volume: Bytes, direct: ByteRate, circuit: ByteRate, set_up: Duration) -> bool {
    if circuit <= direct {
        return false;
    }
    if direct == ByteRate::ZERO {
        return true;
    }
    let saved = direct.time_for(volume);
    saved > circuit.time_for(volume).saturating_add(set_up)
}

/// Rounds a rate down to whole steps; none if that is zero.
#[must_use]
pub fn whole_steps(rate: ByteRate) -> Option<ByteRate> {
    let steps = rate.get() / RATE_STEP.get();
    (steps > 0).then(|| ByteRate::new(steps * RATE_STEP.get()))
}

/// Returns the least rate up to `most`, in whole steps, for which `holds` is true; none if it is
/// false for `most`.
///
/// `holds` must be true for every higher rate too. It is called once for each binary digit of the
/// rate in steps.
pub fn least(most: ByteRate, mut holds: impl FnMut(ByteRate) -> bool) -> Option<ByteRate> {
    let step = RATE_STEP.get();
    let (mut low, mut high) = (1, most.get() / step);
    if high == 0 || !holds(ByteRate::new(high * step)) {
        return None;
    }
    while low < high {
        let middle = u64::midpoint(low, high);
        if holds(ByteRate::new(middle * step)) {
            high = middle
        } else {
            low = middle + 1
        }
    }
    Some(ByteRate::new(high * step))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const fn mbit(rate: u64) -> ByteRate {
        ByteRate::new(rate * 125_000)
    }

    /// Checks the break-even between 350 and 940 Mbit/s and with two minutes to set up: 8.4 GB
    /// (overlay-2010: just above 8 GB it begins to win, and with 10 GB it clearly does).
    #[test]
    fn a_circuit_pays_from_about_ten_gigabytes_on() {
        let pays = |gigabytes: u64| {
            let volume = Bytes::new(gigabytes * 1_000_000_000);
            pays(volume, mbit(350), mbit(940), Duration::from_secs(120))
        };
        assert!(!pays(1) && !pays(8));
        assert!(pays(9) && pays(10) && pays(100));
    }

    #[test]
    fn what_is_no_faster_never_pays_and_what_goes_at_all_pays_where_nothing_goes() {
        let (volume, day) = (Bytes::new(1 << 50), Duration::from_secs(86_400));
        assert!(!pays(volume, mbit(100), mbit(100), Duration::ZERO));
        assert!(pays(volume, ByteRate::ZERO, mbit(1), day));
    }

    proptest! {
        #[test]
        fn the_least_rate_is_the_least_that_holds(most in 0u64..5000, needed in 0u64..6000) {
            let found = least(mbit(most), |rate| rate >= mbit(needed));
            let is_there = needed.max(1) <= most;
            prop_assert_eq!(found, is_there.then(|| mbit(needed.max(1))));
        }
    }
}
