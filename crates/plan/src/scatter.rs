//! Choice between coding at the centre and coding at relays.
//!
//! The centre sends either each fragment of a chunk, or the chunk once to a relay that codes it and
//! sends the other fragments on. The second uses the centre's uplink for the chunk alone, and the
//! relay's paths for the rest. Both are compared in steady flow: chunk after chunk, every path
//! busy. [The algorithm](../../../docs/algorithms/scatter.md).

use posthaste_types::{ByteRate, Code};

/// A relay that can code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Coder {
    /// Rate of the path from the centre to it.
    pub rate: ByteRate,
    /// Rate of the slowest path from it to the depots that would get a fragment.
    pub slowest: ByteRate,
}

/// Margin by which relays must carry more than the centre alone, in hundredths: less is within the
/// error of forecasts.
const WORTH_PERCENT: u128 = 105;

/// Returns whether sending a whole chunk costs the centre less than sending this many of its
/// fragments.
#[must_use]
pub fn spares(code: Code, fragments: u32) -> bool {
    fragments > u32::from(code.data())
}

/// Returns whether chunks with `fragments` to send are stored sooner if relays code them.
///
/// They are if the depots could take more than the uplink carries (`limit`), and the relays keep up
/// with the saving. Where relays already code (`is_begun`), the measured rates are shares of a full
/// uplink and say little about capacity. Then a quarter less is enough, and only the relays' own
/// paths must keep up.
#[must_use]
pub fn is_sooner(
    code: Code,
    fragments: u32,
    is_begun: bool,
    limit: ByteRate,
    depots: impl Iterator<Item = ByteRate>,
    coders: impl Iterator<Item = Coder>,
) -> bool {
    let limit = u128::from(limit.get());
    let taken: u128 = depots.map(|rate| u128::from(rate.get())).sum();
    let binds = match is_begun {
        true => taken * 4 >= limit * 3,
        false => taken > limit,
    };
    if !spares(code, fragments) || !binds {
        return false;
    }
    let (data, fragments) = (u128::from(code.data()), u128::from(fragments));
    // Fragments a second, in bytes of one fragment and scaled by `data`: a chunk is `data` of them.
    let each = |coder: Coder| {
        let rate = match is_begun {
            true => limit,
            false => u128::from(coder.rate.get()),
        };
        rate.min(u128::from(coder.slowest.get()) * data)
    };
    let coded: u128 = coders.map(each).sum::<u128>().min(limit);
    // coded / data chunks against limit / fragments chunks.
    coded * fragments * 100 >= limit * data * WORTH_PERCENT
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::vec::Vec;

    fn coder(rate: u64, slowest: u64) -> Coder {
        Coder {
            rate: ByteRate::new(rate),
            slowest: ByteRate::new(slowest),
        }
    }

    fn asked(limit: u64, depots: &[u64], coders: &[Coder]) -> bool {
        let code = Code::new(4, 2).unwrap();
        let depots = depots.iter().copied().map(ByteRate::new);
        let limit = ByteRate::new(limit);
        is_sooner(code, 6, false, limit, depots, coders.iter().copied())
    }

    #[test]
    fn relays_code_where_the_way_out_binds_and_they_keep_up() {
        let depots = [30; 6];
        assert!(asked(60, &depots, &[coder(30, 10), coder(30, 10)]));
        assert!(
            !asked(200, &depots, &[coder(30, 10), coder(30, 10)]),
            "it does not bind"
        );
        assert!(
            !asked(60, &depots, &[coder(30, 10)]),
            "one relay takes half of it"
        );
        let slow = [coder(30, 2), coder(30, 2)];
        assert!(!asked(60, &depots, &slow), "they send on too slowly");
        assert!(!asked(60, &depots, &[]));
    }

    #[test]
    fn what_was_begun_goes_on_while_the_way_out_is_about_full() {
        let asked = |is_begun: bool, each: u64| {
            let depots = [ByteRate::new(each); 6].into_iter();
            let coders = [coder(30, 10), coder(30, 10)].into_iter();
            let code = Code::new(4, 2).unwrap();
            is_sooner(code, 6, is_begun, ByteRate::new(60), depots, coders)
        };
        assert!(asked(true, 9) && !asked(false, 9));
        assert!(!asked(true, 7));
    }

    #[test]
    fn what_is_to_be_sent_must_be_more_than_the_chunk() {
        let code = Code::new(4, 2).unwrap();
        assert!(spares(code, 5) && !spares(code, 4));
        assert!(spares(Code::new(1, 1).unwrap(), 2));
    }

    proptest! {
        #[test]
        fn more_of_a_relay_never_makes_it_worse(
            limit in 1u64..1000,
            depots in proptest::collection::vec(1u64..1000, 1..9),
            coders in proptest::collection::vec((1u64..1000, 1u64..1000), 1..5),
            more in (0u64..1000, 0u64..1000),
        ) {
            let coders: Vec<Coder> = coders.into_iter().map(|(rate, slowest)| coder(rate, slowest)).collect();
            let mut better = coders.clone();
            better[0] = coder(coders[0].rate.get() + more.0, coders[0].slowest.get() + more.1);
            prop_assert!(!asked(limit, &depots, &coders) || asked(limit, &depots, &better));
        }

        #[test]
        fn nobody_codes_for_a_centre_that_could_send_more(
            limit in 1u64..1000,
            depots in proptest::collection::vec(1u64..1000, 1..9),
            coders in proptest::collection::vec((1u64..1000, 1u64..1000), 1..5),
        ) {
            let coders: Vec<Coder> = coders.into_iter().map(|(rate, slowest)| coder(rate, slowest)).collect();
            let binds = depots.iter().sum::<u64>() > limit;
            prop_assert!(binds || !asked(limit, &depots, &coders));
        }
    }
}
