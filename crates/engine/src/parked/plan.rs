//! Plan to complete a parked stream: what the destination still has, what the parking place sends,
//! what nobody has any more. Nothing here touches an endpoint.

use std::{collections::BTreeMap, ops::Range};

use posthaste_endpoint::Checksum;

use super::{Piece, Runs};

/// Known facts of a parked stream.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Known {
    /// Length of the stream; `None` if its end was never seen.
    pub size: Option<u64>,
    /// Ranges that the destination had confirmed when the record was written.
    pub confirmed: Runs,
    /// Pieces at the parking place, in order and without overlaps.
    pub pieces: Vec<Piece>,
}

/// Plan to complete a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Plan {
    /// Everything is at one place or the other.
    Complete {
        /// Final length.
        size: u64,
        /// Segments at the destination, with their checksums.
        keep: BTreeMap<u64, Checksum>,
        /// Segments to send from the parking place.
        send: Vec<u64>,
    },
    /// The end of the stream was never seen; the bytes from its start to `reach` are there.
    Unended {
        /// Bytes from the start without a gap.
        reach: u64,
    },
    /// Ranges are gone: the destination no longer has them, and they were not parked.
    Lost {
        /// Lost ranges, in order.
        ranges: Vec<Range<u64>>,
    },
}

/// Plans how to complete a stream at a destination that has the segments `kept`; segment `n` starts
/// at `start_of(n)`. With `cut_short`, a stream whose end was never seen ends at the first gap.
#[must_use]
pub fn plan(
    known: &Known,
    kept: &BTreeMap<u64, Checksum>,
    start_of: impl Fn(u64) -> u64,
    cut_short: bool,
) -> Plan {
    let parked = parked(&known.pieces);
    let cut = Cut {
        start_of: &start_of,
        size: known.size,
    };
    let keep = cut.trusted(&known.confirmed, kept);
    let size = match known.size {
        Some(size) => size,
        None => {
            let reach = cut.reach(&keep, &parked);
            if !cut_short {
                return Plan::Unended { reach };
            }
            reach
        }
    };
    let cut = Cut {
        start_of: &start_of,
        size: Some(size),
    };
    let (mut send, mut lost) = (Vec::new(), Vec::new());
    for index in 0.. {
        let range = cut.range(index);
        if range.is_empty() {
            break;
        }
        if keep.contains_key(&index) {
            continue;
        }
        send.push(index);
        for gap in parked.missing(range) {
            match lost.last_mut() {
                Some(Range { end, .. }) if *end == gap.start => *end = gap.end,
                Some(_) | None => lost.push(gap),
            }
        }
    }
    if !lost.is_empty() {
        return Plan::Lost { ranges: lost };
    }
    let keep = keep.into_iter();
    Plan::Complete {
        size,
        keep: keep
            .filter(|&(index, _)| !cut.range(index).is_empty())
            .collect(),
        send,
    }
}

fn parked(pieces: &[Piece]) -> Runs {
    let mut parked = Runs::default();
    for piece in pieces {
        parked.add(piece.range(), piece.sum);
    }
    parked
}

/// Cut of the stream at the destination.
struct Cut<F> {
    start_of: F,
    size: Option<u64>,
}

impl<F: Fn(u64) -> u64> Cut<F> {
    fn range(&self, index: u64) -> Range<u64> {
        let most = self.size.unwrap_or(u64::MAX);
        let start = (self.start_of)(index).min(most);
        start..(self.start_of)(index.saturating_add(1)).min(most)
    }

    /// Returns the kept segments that agree with what was confirmed. If segments together are a
    /// confirmed run with another checksum, they are not what was sent.
    fn trusted(&self, confirmed: &Runs, kept: &BTreeMap<u64, Checksum>) -> BTreeMap<u64, Checksum> {
        let mut trusted = kept.clone();
        for (run, sum) in confirmed.iter() {
            let mut found = Runs::default();
            let within: Vec<u64> = kept
                .keys()
                .copied()
                .filter(|&index| {
                    let range = self.range(index);
                    range.start >= run.start && range.end <= run.end
                })
                .collect();
            for index in &within {
                found.add(self.range(*index), kept[index]);
            }
            let other = found
                .iter()
                .any(|(range, found)| range == run && found != sum);
            if other {
                within.iter().for_each(|index| {
                    trusted.remove(index);
                });
            }
        }
        trusted
    }

    /// Returns how far the stream is there without a gap.
    fn reach(&self, keep: &BTreeMap<u64, Checksum>, parked: &Runs) -> u64 {
        let mut there = parked.clone();
        for &index in keep.keys() {
            for gap in parked.missing(self.range(index)) {
                there.add(gap, Checksum::EMPTY);
            }
        }
        let first = there.iter().next();
        first.map_or(0, |(range, _)| if range.start == 0 { range.end } else { 0 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const STEP: u64 = 10;

    fn start_of(index: u64) -> u64 {
        // Segments grow, like those of objects of unknown length.
        if index < 3 {
            index * STEP
        } else {
            3 * STEP + (index - 3) * 2 * STEP
        }
    }

    fn text(size: u64) -> Vec<u8> {
        (0..size).map(|at| (at * 7 % 251) as u8).collect()
    }

    fn sum(text: &[u8], range: Range<u64>) -> Checksum {
        let range = usize::try_from(range.start).unwrap()..usize::try_from(range.end).unwrap();
        Checksum::of(&text[range])
    }

    fn segments(size: u64) -> Vec<Range<u64>> {
        (0..)
            .map(|index| start_of(index).min(size)..start_of(index + 1).min(size))
            .take_while(|range| !range.is_empty())
            .collect()
    }

    fn piece(text: &[u8], range: Range<u64>) -> Piece {
        Piece {
            start: range.start,
            len: range.end - range.start,
            sum: sum(text, range),
        }
    }

    #[test]
    fn a_damaged_confirmation_is_sent_again_or_told() {
        let text = text(30);
        let mut known = Known {
            size: Some(30),
            ..Known::default()
        };
        known.confirmed.add(0..20, sum(&text, 0..20));
        known.pieces = vec![piece(&text, 20..30)];
        let other = BTreeMap::from([(0, Checksum::of(b"other")), (1, sum(&text, 10..20))]);
        let lost = plan(&known, &other, start_of, false);
        assert_eq!(
            lost,
            Plan::Lost {
                ranges: std::iter::once(0..20).collect()
            }
        );
        let same = BTreeMap::from([(0, sum(&text, 0..10)), (1, sum(&text, 10..20))]);
        let complete = Plan::Complete {
            size: 30,
            keep: same.clone(),
            send: vec![2],
        };
        assert_eq!(plan(&known, &same, start_of, false), complete);
    }

    #[test]
    fn a_stream_without_an_end_is_completed_only_when_asked() {
        let text = text(60);
        let known = Known {
            pieces: vec![
                piece(&text, 10..17),
                piece(&text, 17..25),
                piece(&text, 40..60),
            ],
            ..Known::default()
        };
        let kept = BTreeMap::from([(0, sum(&text, 0..10)), (3, sum(&text, 30..50))]);
        assert_eq!(
            plan(&known, &kept, start_of, false),
            Plan::Unended { reach: 25 }
        );
        let cut = Plan::Complete {
            size: 25,
            keep: BTreeMap::from([(0, sum(&text, 0..10))]),
            send: vec![1, 2],
        };
        assert_eq!(plan(&known, &kept, start_of, true), cut);
        let nothing = plan(&Known::default(), &BTreeMap::new(), start_of, false);
        assert_eq!(nothing, Plan::Unended { reach: 0 });
    }

    proptest! {
        /// Checks that completing gives every byte, or says exactly which are gone. Each segment
        /// was confirmed, parked or both, in any order; some confirmed ones vanish.
        #[test]
        fn what_was_parked_or_kept_completes_and_the_rest_is_named(
            size in 0u64..200,
            fates in proptest::collection::vec((0u8..3, any::<bool>(), 1u64..9), 20),
        ) {
            let text = text(size);
            let mut known = Known { size: Some(size), ..Known::default() };
            let (mut kept, mut gone) = (BTreeMap::new(), Vec::new());
            for (index, range) in segments(size).into_iter().enumerate() {
                let (fate, vanishes, step) = fates[index % fates.len()];
                let (is_confirmed, is_parked) = (fate != 1, fate != 0);
                if is_confirmed {
                    known.confirmed.add(range.clone(), sum(&text, range.clone()));
                    if vanishes && !is_parked {
                        gone.push(range.clone());
                    } else if !vanishes {
                        kept.insert(index as u64, sum(&text, range.clone()));
                    }
                }
                let mut at = range.start;
                while is_parked && at < range.end {
                    let end = (at + step).min(range.end);
                    known.pieces.push(piece(&text, at..end));
                    at = end;
                }
            }
            match plan(&known, &kept, start_of, false) {
                Plan::Complete { size: planned, keep, send } => {
                    prop_assert!(gone.is_empty());
                    prop_assert_eq!(planned, size);
                    prop_assert_eq!(&keep, &kept);
                    let mut all = Runs::default();
                    for (index, range) in segments(size).into_iter().enumerate() {
                        let index = index as u64;
                        prop_assert!(keep.contains_key(&index) != send.contains(&index));
                        all.add(range.clone(), sum(&text, range));
                    }
                    prop_assert_eq!(all.whole(size), Some(Checksum::of(&text)));
                }
                Plan::Lost { ranges } => {
                    let bytes = |ranges: &[Range<u64>]| -> u64 { ranges.iter().map(|range| range.end - range.start).sum() };
                    prop_assert_eq!(bytes(&ranges), bytes(&gone));
                    prop_assert!(gone.iter().all(|gone| ranges.iter().any(|range| range.start <= gone.start && gone.end <= range.end)));
                }
                Plan::Unended { .. } => prop_assert!(false, "its end was seen"),
            }
        }
    }
}
