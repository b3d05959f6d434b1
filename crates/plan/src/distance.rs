//! Order of depots before any path is measured: first those near the centre and far from the
//! destination, as the paper sorts them (`offload-ics08`, section 3.2.2: "with increasing latency
//! from the center, while at the same time with decreasing latency from" the destination). [The
//! algorithm](../../../docs/algorithms/distances.md).

use alloc::vec::Vec;
use core::time::Duration;

/// Round trips of a depot; none where not measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Place {
    /// To the centre.
    pub from_centre: Option<Duration>,
    /// To the destination.
    pub to_destination: Option<Duration>,
}

/// Units of the way from the centre to the destination.
const WHOLE: u128 = 1_000_000;

/// Returns how far along the way to the destination each place lies, in millionths: the smallest
/// comes first.
///
/// With c the round trip to the centre and s that to the destination, the value is c / (c + s): it
/// grows with c and falls with s. An unknown s counts as `whole`, the round trip between centre and
/// destination, or else as the longest known s. If no s is known, the value is c in microseconds. A
/// place with unknown c comes last.
#[must_use]
pub fn along(places: &[Place], whole: Option<Duration>) -> Vec<u64> {
    let known = places.iter().filter_map(|place| place.to_destination);
    let otherwise = whole.or(known.max());
    let key = |place: &Place| {
        let Some(from_centre) = place.from_centre.map(|span| span.as_micros()) else {
            return u64::MAX;
        };
        let along = match place.to_destination.or(otherwise) {
            None => from_centre,
            Some(rest) => {
                let all = from_centre.saturating_add(rest.as_micros()).max(1);
                from_centre.saturating_mul(WHOLE) / all
            }
        };
        u64::try_from(along).unwrap_or(u64::MAX - 1)
    };
    places.iter().map(key).collect()
}

/// Returns the level of a depot without a configured level: 2 if it is nearer the destination than
/// the centre, otherwise or if unknown 1.
#[must_use]
pub fn level(place: Place) -> u8 {
    match (place.from_centre, place.to_destination) {
        (Some(from_centre), Some(rest)) if rest < from_centre => 2,
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const fn ms(millis: u64) -> Option<Duration> {
        Some(Duration::from_millis(millis))
    }

    const fn place(from_centre: Option<Duration>, to_destination: Option<Duration>) -> Place {
        Place {
            from_centre,
            to_destination,
        }
    }

    fn order(places: &[Place], whole: Option<Duration>) -> Vec<usize> {
        let keys = along(places, whole);
        let mut order: Vec<usize> = (0..places.len()).collect();
        order.sort_by_key(|&at| keys[at]);
        order
    }

    #[test]
    fn near_the_centre_and_far_from_the_destination_comes_first() {
        let places = [
            place(ms(40), ms(10)),
            place(ms(5), ms(50)),
            place(None, ms(1)),
            place(ms(20), ms(30)),
            place(ms(5), ms(80)),
        ];
        assert_eq!(order(&places, ms(50)), [4, 1, 3, 0, 2]);
    }

    #[test]
    fn without_a_destination_only_the_centre_counts() {
        let places = [place(ms(40), None), place(ms(5), None), place(None, None)];
        assert_eq!(order(&places, None), [1, 0, 2]);
        assert_eq!(along(&places, None)[0], 40_000);
    }

    #[test]
    fn the_nearer_end_says_the_level() {
        assert_eq!(level(place(ms(40), ms(10))), 2);
        assert_eq!(level(place(ms(10), ms(10))), 1);
        assert_eq!(level(place(ms(40), None)), 1);
        assert_eq!(level(place(None, ms(1))), 1);
    }

    proptest! {
        #[test]
        fn it_grows_with_the_one_and_falls_with_the_other(
            c in 1u64..1000, s in 1u64..1000, more in 1u64..1000,
        ) {
            let places = [place(ms(c), ms(s)), place(ms(c + more), ms(s)), place(ms(c), ms(s + more))];
            let keys = along(&places, None);
            prop_assert!(keys[2] <= keys[0] && keys[0] <= keys[1]);
        }
    }
}
