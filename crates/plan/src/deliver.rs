//! Choice of the destination that takes a chunk next, and of its sources.
//!
//! Several destinations share one transfer from the source. A chunk that lies whole at a
//! destination goes on from there. A chunk that lies coded on depots is rebuilt at a destination
//! from as many fragments as the code needs, each from another depot.
//!
//! Peer-to-peer downloads by forecast (`offload-ics08`, section 3.4: the puller takes from all
//! holders at once, each by its own bandwidth). Here one chunk is considered at a time, and the
//! sources that would finish first are taken. [The
//! algorithm](../../../docs/algorithms/delivery.md).

use alloc::{vec, vec::Vec};

/// Part of a chunk that lies at a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Piece {
    /// The whole chunk.
    Whole,
    /// A single fragment.
    Fragment(u8),
}

/// State of a place with respect to one chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Spot {
    /// Verified content that counts, if any.
    pub holds: Option<Piece>,
    /// The place can send its content now.
    pub gives: bool,
    /// The place is a destination that has nothing of the chunk and receives nothing of it.
    pub lacks: bool,
    /// The whole chunk is on its way there from the centre.
    pub arrives: bool,
    /// The place is up and has space.
    pub is_open: bool,
}

/// Next step of a chunk's delivery.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Deliver {
    /// A destination takes the chunk.
    Go {
        /// Place of the destination.
        to: usize,
        /// Places of the sources, earliest finish first: one that holds the whole chunk, or as many
        /// as the code needs and some in reserve.
        from: Vec<usize>,
    },
    /// A destination could take it as soon as some place may start another transfer.
    Busy,
    /// A destination lacks it, and either the destination or the sources it needs are down.
    Stuck,
    /// Every destination has it or is receiving it.
    Done,
}

/// Counts the places that hold something of the chunk: the fewer, the sooner it goes.
#[must_use]
pub fn holders(spots: &[Spot]) -> u32 {
    let holds = spots.iter().filter(|spot| spot.holds.is_some());
    u32::try_from(holds.count()).unwrap_or(u32::MAX)
}

/// Returns the next step for a chunk that `data` fragments rebuild.
///
/// `micros` returns when the content of one place would have reached another if it started now, and
/// none where nothing may start. `reserve` is the number of spare sources to name. The cost is one
/// visit of each destination and holder.
#[must_use]
pub fn next(
    spots: &[Spot],
    data: u8,
    reserve: usize,
    micros: impl Fn(usize, usize) -> Option<u64>,
) -> Deliver {
    let mut best: Option<(u64, usize, Vec<usize>)> = None;
    let mut otherwise = Deliver::Done;
    for (to, _) in spots.iter().enumerate().filter(|(_, spot)| spot.lacks) {
        let is_there = spots[to].is_open;
        match from(spots, data, reserve, |at| micros(at, to)) {
            Source::From(span, from) if is_there => {
                if best
                    .as_ref()
                    .is_none_or(|best| (span, to) < (best.0, best.1))
                {
                    best = Some((span, to, from));
                }
            }
            Source::Busy if is_there => otherwise = Deliver::Busy,
            Source::From(..) | Source::Busy | Source::Nobody => {
                if otherwise == Deliver::Done {
                    otherwise = Deliver::Stuck;
                }
            }
        }
    }
    best.map_or(otherwise, |(_, to, from)| Deliver::Go { to, from })
}

/// Returns the places of a sender and a receiver: the receiver may take the chunk from the sender,
/// which is still receiving it from the centre.
///
/// Only chunks that lie nowhere qualify: the others are sent from where they lie. `is_idle` returns
/// whether nothing is under way between two places and the sender supports this.
#[must_use]
pub fn follow(spots: &[Spot], is_idle: impl Fn(usize, usize) -> bool) -> Option<(usize, usize)> {
    if holders(spots) > 0 {
        return None;
    }
    let takers = spots.iter().enumerate();
    let mut takers = takers.filter(|(_, spot)| spot.lacks && spot.is_open);
    takers.find_map(|(to, _)| {
        let mut givers = spots.iter().enumerate();
        let from = givers.find(|&(at, spot)| spot.arrives && spot.gives && is_idle(at, to));
        from.map(|(from, _)| (from, to))
    })
}

/// Sources from which a destination could take a chunk now.
enum Source {
    /// These places, in this many microseconds.
    From(u64, Vec<usize>),
    /// All holders are busy.
    Busy,
    /// No reachable place has enough of it.
    Nobody,
}

fn from(spots: &[Spot], data: u8, reserve: usize, micros: impl Fn(usize) -> Option<u64>) -> Source {
    let givers = spots.iter().enumerate();
    let givers = givers.filter(|(_, spot)| spot.gives);
    let mut whole: Vec<(u64, usize)> = Vec::new();
    let mut coded: Vec<(u64, usize)> = Vec::new();
    let (mut is_whole_there, mut there) = (false, 0u64);
    for (at, spot) in givers {
        match spot.holds {
            None => {}
            Some(Piece::Whole) => {
                is_whole_there = true;
                whole.extend(micros(at).map(|span| (span, at)));
            }
            Some(Piece::Fragment(fragment)) => {
                there |= 1u64.unbounded_shl(u32::from(fragment));
                coded.extend(micros(at).map(|span| (span, at)));
            }
        }
    }
    coded.sort_unstable();
    let mut taken = 0u64;
    coded.retain(|&(_, at)| {
        let Some(Piece::Fragment(fragment)) = spots[at].holds else {
            return false;
        };
        let bit = 1u64.unbounded_shl(u32::from(fragment));
        let is_new = taken & bit == 0;
        taken |= bit;
        is_new
    });
    let needed = usize::from(data.max(1));
    let last = coded.get(needed - 1).map(|&(span, _)| span);
    let whole = whole.into_iter().min();
    let is_there = is_whole_there || there.count_ones() as usize >= needed;
    match (whole, last) {
        (Some((span, at)), last) if last.is_none_or(|last| span <= last) => {
            Source::From(span, vec![at])
        }
        (_, Some(last)) => {
            let named = coded.iter().take(needed + reserve);
            Source::From(last, named.map(|&(_, at)| at).collect())
        }
        (_, None) if is_there => Source::Busy,
        (_, None) => Source::Nobody,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeSet;
    use proptest::prelude::*;

    fn holder(piece: Piece) -> Spot {
        Spot {
            holds: Some(piece),
            gives: true,
            ..Spot::default()
        }
    }

    fn destination() -> Spot {
        Spot {
            lacks: true,
            is_open: true,
            ..Spot::default()
        }
    }

    fn fragment(index: u8) -> Spot {
        holder(Piece::Fragment(index))
    }

    #[test]
    fn a_chunk_goes_on_from_a_destination_that_has_it() {
        let spots = [holder(Piece::Whole), destination()];
        let go = Deliver::Go {
            to: 1,
            from: vec![0],
        };
        assert_eq!(next(&spots, 2, 1, |_, _| Some(5)), go);
        assert_eq!(next(&spots, 2, 1, |_, _| None), Deliver::Busy);
    }

    #[test]
    fn fragments_come_from_those_that_are_through_first_and_one_is_in_reserve() {
        let spots = [
            fragment(0),
            fragment(1),
            fragment(2),
            fragment(3),
            destination(),
        ];
        let micros = |at: usize, _: usize| Some([40, 10, 30, 20][at]);
        let go = |from: Vec<usize>| Deliver::Go { to: 4, from };
        assert_eq!(next(&spots, 2, 1, micros), go(vec![1, 3, 2]));
        assert_eq!(next(&spots, 2, 0, micros), go(vec![1, 3]));
    }

    #[test]
    fn two_copies_of_one_fragment_are_one() {
        let spots = [fragment(0), fragment(0), destination()];
        assert_eq!(next(&spots, 2, 1, |_, _| Some(1)), Deliver::Stuck);
    }

    #[test]
    fn the_whole_chunk_is_left_for_fragments_that_are_through_sooner() {
        let spots = [
            holder(Piece::Whole),
            fragment(0),
            fragment(1),
            destination(),
        ];
        let micros = |at: usize, _: usize| Some(if at == 0 { 100 } else { 10 });
        let go = Deliver::Go {
            to: 3,
            from: vec![1, 2],
        };
        assert_eq!(next(&spots, 2, 1, micros), go);
    }

    #[test]
    fn what_still_arrives_goes_on_only_where_it_lies_nowhere() {
        let comes = Spot {
            arrives: true,
            gives: true,
            ..Spot::default()
        };
        let mut spots = [comes, destination(), destination()];
        assert_eq!(follow(&spots, |_, _| true), Some((0, 1)));
        assert_eq!(follow(&spots, |_, to| to == 2), Some((0, 2)));
        assert_eq!(follow(&spots, |_, _| false), None);
        spots[1].is_open = false;
        spots[2].lacks = false;
        assert_eq!(follow(&spots, |_, _| true), None);
        let spots = [comes, destination(), fragment(0)];
        assert_eq!(follow(&spots, |_, _| true), None);
    }

    #[test]
    fn who_is_not_there_is_waited_for() {
        let mut spots = [holder(Piece::Whole), destination()];
        spots[1].is_open = false;
        assert_eq!(next(&spots, 2, 1, |_, _| Some(5)), Deliver::Stuck);
        spots[1] = destination();
        spots[0].gives = false;
        assert_eq!(next(&spots, 2, 1, |_, _| Some(5)), Deliver::Stuck);
        spots[1].lacks = false;
        assert_eq!(next(&spots, 2, 1, |_, _| Some(5)), Deliver::Done);
    }

    fn spots() -> impl Strategy<Value = Vec<Spot>> {
        let piece = prop_oneof![
            1 => Just(None),
            1 => Just(Some(Piece::Whole)),
            4 => (0u8..4).prop_map(|index| Some(Piece::Fragment(index))),
        ];
        let spot = (piece, any::<[bool; 3]>());
        let spot = spot.prop_map(|(holds, [gives, lacks, is_open])| Spot {
            holds,
            gives,
            arrives: false,
            lacks: lacks && holds.is_none(),
            is_open,
        });
        proptest::collection::vec(spot, 0..8)
    }

    proptest! {
        #[test]
        fn delivering_ends_with_every_destination_served_that_can_be(
            mut spots in spots(), data in 1u8..4, costs: [[u8; 8]; 8],
        ) {
            let rank = |spots: &[Spot]| spots.iter().filter(|spot| spot.lacks).count();
            loop {
                let before = rank(&spots);
                match next(&spots, data, 1, |from, to| Some(costs[from][to].into())) {
                    Deliver::Go { to, from } => {
                        prop_assert!(spots[to].lacks && spots[to].is_open);
                        let pieces: BTreeSet<Piece> =
                            from.iter().filter_map(|&at| spots[at].holds).collect();
                        prop_assert_eq!(pieces.len(), from.len(), "each piece once");
                        prop_assert!(from.iter().all(|&at| spots[at].gives));
                        let is_whole = from.len() == 1 && pieces.contains(&Piece::Whole);
                        let fragments = pieces.iter().filter(|piece| **piece != Piece::Whole);
                        prop_assert!(is_whole || fragments.count() >= usize::from(data));
                        prop_assert!(is_whole || from.len() <= usize::from(data) + 1);
                        spots[to] = Spot { holds: Some(Piece::Whole), gives: true, lacks: false, ..spots[to] };
                        prop_assert!(rank(&spots) < before);
                    }
                    Deliver::Busy => prop_assert!(false, "nobody was busy"),
                    Deliver::Stuck | Deliver::Done => break,
                }
            }
            // Either the destination that lacks it is down, or no place that is up has enough.
            let gives = |spot: &&Spot| spot.gives;
            let has_whole = spots.iter().filter(gives).any(|spot| spot.holds == Some(Piece::Whole));
            let fragments: BTreeSet<Piece> = spots.iter().filter(gives).filter_map(|spot| spot.holds).collect();
            let is_there = has_whole || fragments.len() >= usize::from(data);
            prop_assert!(spots.iter().all(|spot| !spot.lacks || !spot.is_open || !is_there));
        }
    }
}
