use super::*;
use crate::reserve::{HOLD_LIFETIME, NOT_OVERBOOKED_PERMILLE};
use alloc::vec;
use core::time::Duration;
use posthaste_types::{Bytes, Record};
use proptest::prelude::*;

const LINK: &[usize] = &[0];

fn at(secs: u64) -> Timestamp {
    Timestamp::from_secs(secs)
}

fn rate(bytes_per_s: u64) -> Amount {
    Amount::of_link(ByteRate::new(bytes_per_s))
}

fn link(capacity: u64) -> Reservations {
    let mut calendar = Reservations::new();
    calendar.add(Kind::Link, rate(capacity), NOT_OVERBOOKED_PERMILLE);
    calendar
}

fn fixed(amount: u64, start: u64, end: u64) -> Ask {
    Ask::Fixed {
        amount: rate(amount),
        start: at(start),
        end: at(end),
    }
}

fn volume(
    bytes: u64,
    (earliest, deadline): (u64, u64),
    (least, most): (u64, u64),
    shape: Shape,
) -> Ask {
    Ask::Volume {
        bytes: Bytes::new(bytes),
        earliest: at(earliest),
        deadline: at(deadline),
        least: ByteRate::new(least),
        most: ByteRate::new(most),
        shape,
    }
}

fn hold(calendar: &mut Reservations, ask: Ask) -> Result<ReservationId, Refusal> {
    calendar.hold(LINK, ask, at(0), at(0) + HOLD_LIFETIME)
}

/// Returns a link of 100 with 60 reserved from 10 to 20 and 90 from 30 to 40.
fn busy() -> Reservations {
    let mut calendar = link(100);
    hold(&mut calendar, fixed(60, 10, 20)).unwrap();
    hold(&mut calendar, fixed(90, 30, 40)).unwrap();
    calendar
}

fn shown(calendar: &Reservations, id: ReservationId) -> Vec<(u64, u64, u64)> {
    let plain = |piece: &Piece| {
        let secs = |moment: Timestamp| moment.as_micros() / 1_000_000;
        (secs(piece.from), secs(piece.to), piece.amount.rate().get())
    };
    calendar.get(id).unwrap().pieces.iter().map(plain).collect()
}

#[test]
fn what_is_taken_outside_is_nobodys_to_reserve() {
    let mut calendar = busy();
    let outside =
        |amount| Curve::of_steps([(at(5), rate(amount).rate()), (at(15), rate(0).rate())]);
    calendar.set_outside(0, outside(30));
    let free = |calendar: &Reservations, from, to| calendar.free(LINK, at(from), at(to));
    assert_eq!(free(&calendar, 0, 5), rate(100));
    assert_eq!(free(&calendar, 5, 10), rate(70));
    assert_eq!(free(&calendar, 10, 15), rate(10));
    assert_eq!(free(&calendar, 15, 20), rate(40));
    let span = (at(0), at(50));
    assert_eq!(calendar.lacks(LINK, rate(71), span), Some(at(5)));
    assert_eq!(calendar.lacks(LINK, rate(40), span), Some(at(10)));
    assert_eq!(calendar.lacks(LINK, rate(10), span), None);
    assert_eq!(
        calendar.lacks(LINK, rate(11), (at(15), at(50))),
        Some(at(30))
    );
    let refused = hold(&mut calendar, fixed(20, 8, 12)).unwrap_err();
    let (earliest_start, most) = (Some(at(15)), rate(10));
    assert_eq!(
        refused,
        Refusal::NoRoom {
            earliest_start,
            most
        }
    );
    // More than the capacity: grants stay, and nothing is free.
    calendar.set_outside(0, outside(1000));
    assert_eq!(free(&calendar, 10, 15), Amount::ZERO);
    calendar.set_outside(0, outside(0));
    assert_eq!(calendar, busy());
}

#[test]
fn a_refusal_says_what_would_fit() {
    let mut calendar = busy();
    let before = calendar.clone();
    assert_eq!(
        hold(&mut calendar, fixed(50, 5, 13)),
        Err(Refusal::NoRoom {
            earliest_start: Some(at(20)),
            most: rate(40)
        })
    );
    assert_eq!(
        hold(&mut calendar, fixed(50, 5, 20)),
        Err(Refusal::NoRoom {
            earliest_start: Some(at(40)),
            most: rate(40)
        })
    );
    assert_eq!(
        hold(&mut calendar, fixed(101, 5, 20)),
        Err(Refusal::NoRoom {
            earliest_start: None,
            most: rate(40)
        })
    );
    assert_eq!(calendar, before);
    assert!(hold(&mut calendar, fixed(50, 20, 28)).is_ok());
    assert!(hold(&mut calendar, fixed(40, 5, 20)).is_ok());
}

#[test]
fn a_volume_goes_early_late_or_at_one_rate() {
    let mut calendar = busy();
    let id = hold(
        &mut calendar,
        volume(1500, (5, 50), (0, 100), Shape::EarliestFinish),
    )
    .unwrap();
    assert_eq!(
        shown(&calendar, id),
        [(5, 10, 100), (10, 20, 40), (20, 26, 100)]
    );
    calendar.release(id);
    let id = hold(
        &mut calendar,
        volume(1500, (5, 50), (50, 80), Shape::EarliestFinish),
    )
    .unwrap();
    assert_eq!(
        shown(&calendar, id),
        [(5, 10, 80), (20, 30, 80), (40, 43, 80)]
    );
    calendar.release(id);
    let id = hold(
        &mut calendar,
        volume(1500, (5, 50), (0, 100), Shape::LatestStart),
    )
    .unwrap();
    assert_eq!(
        shown(&calendar, id),
        [(26, 30, 100), (30, 40, 10), (40, 50, 100)]
    );
    calendar.release(id);
    let id = hold(
        &mut calendar,
        volume(1000, (5, 50), (0, 100), Shape::Shortest),
    )
    .unwrap();
    assert_eq!(shown(&calendar, id), [(20, 30, 100)]);
    calendar.release(id);
    let id = hold(
        &mut calendar,
        volume(1000, (0, 30), (0, 90), Shape::Shortest),
    )
    .unwrap();
    assert_eq!(
        shown(&calendar, id),
        [(0, 25, 40)],
        "90 is free for ten seconds only"
    );
    calendar.release(id);
    assert_eq!(
        hold(
            &mut calendar,
            volume(1500, (5, 19), (50, 100), Shape::EarliestFinish)
        ),
        Err(Refusal::NoTime {
            earliest_finish: Some(at(30)),
            volume: Bytes::new(500)
        })
    );
    assert_eq!(
        hold(
            &mut calendar,
            volume(1000, (5, 19), (50, 100), Shape::Shortest)
        ),
        Err(Refusal::NoTime {
            earliest_finish: Some(at(30)),
            volume: Bytes::new(500)
        })
    );
}

#[test]
fn a_path_has_what_its_narrowest_has_and_a_space_is_no_link() {
    let mut calendar = link(100);
    let other = calendar
        .add(Kind::Link, rate(40), NOT_OVERBOOKED_PERMILLE)
        .unwrap();
    let space = Amount::of_space(Bytes::new(1000));
    let depot = calendar
        .add(Kind::Space, space, NOT_OVERBOOKED_PERMILLE)
        .unwrap();
    let until = at(30);
    let mut hold = |path: &[usize], ask| calendar.hold(path, ask, at(0), until);
    assert!(
        matches!(hold(&[0, other], fixed(50, 1, 2)), Err(Refusal::NoRoom { most, .. }) if most == rate(40))
    );
    hold(&[0, other], fixed(30, 1, 2)).unwrap();
    hold(&[0], fixed(70, 1, 2)).unwrap();
    assert!(hold(&[0], fixed(1, 1, 2)).is_err());
    hold(
        &[depot],
        Ask::Fixed {
            amount: space,
            start: at(1),
            end: at(5),
        },
    )
    .unwrap();
    assert!(hold(&[depot], fixed(1, 4, 6)).is_err());
    for (path, ask) in [
        (&[depot][..], volume(1, (1, 2), (0, 1), Shape::Shortest)),
        (&[0, depot], fixed(1, 6, 7)),
        (&[0, 0], fixed(1, 6, 7)),
        (&[9], fixed(1, 6, 7)),
        (&[], fixed(1, 6, 7)),
        (&[0], fixed(0, 6, 7)),
        (&[0], fixed(1, 7, 7)),
        (
            &[0],
            Ask::Fixed {
                amount: rate(1),
                start: at(1),
                end: at(2) + AHEAD_MAX,
            },
        ),
        (&[0], volume(1, (1, 2), (3, 2), Shape::Shortest)),
    ] {
        assert_eq!(hold(path, ask), Err(Refusal::Senseless), "{path:?} {ask:?}");
    }
}

#[test]
fn what_is_sold_twice_is_granted_twice_and_a_smaller_link_breaks_no_word() {
    let mut calendar = Reservations::new();
    calendar.add(Kind::Link, rate(100), 1100);
    let id = hold(&mut calendar, fixed(110, 0, 10)).unwrap();
    assert!(hold(&mut calendar, fixed(1, 0, 10)).is_err());
    calendar.set_capacity(0, rate(50));
    assert_eq!(shown(&calendar, id), [(0, 10, 110)]);
    calendar.release(id);
    assert_eq!(calendar.free(LINK, at(0), at(10)), rate(55));
}

#[test]
fn a_reservation_is_extended_and_shrunk_or_stays_as_it_was() {
    let mut calendar = busy();
    let id = hold(&mut calendar, fixed(40, 5, 15)).unwrap();
    calendar.commit(id, at(1)).unwrap();
    let change = |start, end, amount: Option<u64>| Change {
        start: Option::map(start, at),
        end: Option::map(end, at),
        amount: amount.map(rate),
    };
    calendar
        .change(id, change(Some(3), Some(25), None), at(2))
        .unwrap();
    assert_eq!(shown(&calendar, id), [(3, 25, 40)]);
    let before = calendar.clone();
    assert!(matches!(
        calendar.change(id, change(None, Some(31), None), at(2)),
        Err(Refusal::NoRoom { most, .. }) if most == rate(10)
    ));
    assert!(matches!(
        calendar.change(id, change(None, None, Some(41)), at(2)),
        Err(Refusal::NoRoom { .. })
    ));
    assert_eq!(calendar, before);
    // Time that has passed does not count.
    calendar
        .change(id, change(None, None, Some(80)), at(20))
        .unwrap();
    assert_eq!(shown(&calendar, id), [(20, 25, 80)]);
    assert_eq!(
        calendar.change(id, change(Some(22), None, None), at(21)),
        Err(Refusal::Senseless)
    );
    assert_eq!(
        calendar.change(id, change(None, Some(21), None), at(21)),
        Err(Refusal::Senseless)
    );
    calendar
        .change(id, change(None, Some(23), Some(10)), at(21))
        .unwrap();
    assert_eq!(calendar.free(LINK, at(23), at(30)), rate(100));
    assert_eq!(
        calendar.change(id, Change::default(), at(23)),
        Err(Refusal::Unknown)
    );
    let id = hold(
        &mut calendar,
        volume(1500, (5, 27), (0, 100), Shape::EarliestFinish),
    )
    .unwrap();
    assert_eq!(
        calendar.change(id, change(None, None, Some(1)), at(0)),
        Err(Refusal::Varies)
    );
    calendar
        .replace(
            id,
            volume(500, (5, 26), (0, 50), Shape::EarliestFinish),
            at(0),
        )
        .unwrap();
    assert_eq!(calendar.get(id).unwrap().volume(), Bytes::new(500));
}

#[test]
fn a_hold_ends_by_itself_and_a_commit_makes_it_last() {
    let mut calendar = link(100);
    let (kept, lost) = (
        hold(&mut calendar, fixed(10, 5, 60)).unwrap(),
        hold(&mut calendar, fixed(20, 5, 60)).unwrap(),
    );
    calendar.commit(kept, at(29)).unwrap();
    calendar.commit(kept, at(31)).unwrap();
    assert_eq!(calendar.next_change(at(5)), Some(at(30)));
    assert_eq!(calendar.commit(lost, at(30)), Err(Refusal::Unknown));
    assert_eq!(calendar.expire(at(29)), []);
    assert_eq!(calendar.expire(at(30)), [(lost, Gone::Expired)]);
    assert_eq!(calendar.free(LINK, at(30), at(60)), rate(90));
    assert_eq!(calendar.next_change(at(30)), Some(at(60)));
    assert_eq!(calendar.expire(at(60)), [(kept, Gone::Over)]);
    let mut fresh = link(100);
    fresh.last = calendar.last;
    assert_eq!(calendar, fresh);
}

#[test]
fn what_was_granted_is_restored_and_nonsense_is_not() {
    let calendar = busy();
    let mut again = link(100);
    for (id, reservation) in calendar.iter() {
        again.restore(id, reservation.clone()).unwrap();
        assert_eq!(
            again.restore(id, reservation.clone()),
            Err(Refusal::Senseless)
        );
    }
    assert_eq!(again, calendar);
    let (_, sound) = calendar.iter().next().unwrap();
    let piece = sound.pieces[0];
    for pieces in [
        vec![],
        vec![piece, piece],
        vec![Piece {
            to: piece.from,
            ..piece
        }],
    ] {
        let broken = Reservation {
            pieces,
            ..sound.clone()
        };
        assert_eq!(
            again.restore(ReservationId::new(99), broken),
            Err(Refusal::Senseless)
        );
    }
}

#[test]
fn there_are_only_so_many() {
    let mut calendar = link(u64::MAX);
    for _ in 0..RESERVATIONS_MAX {
        hold(&mut calendar, fixed(1, 0, 10)).unwrap();
    }
    assert_eq!(hold(&mut calendar, fixed(1, 0, 10)), Err(Refusal::TooMany));
    let mut calendar = link(100);
    for turn in 0..40 {
        hold(&mut calendar, fixed(100, 2 * turn + 1, 2 * turn + 2)).unwrap();
    }
    let wish = volume(3500, (0, 100), (0, 100), Shape::EarliestFinish);
    assert_eq!(hold(&mut calendar, wish), Err(Refusal::TooMany));
}

/// Arguments of one operation on a link, all in whole seconds.
#[derive(Debug, Clone)]
enum Move {
    Fixed(u64, u64, u64),
    Volume(u64, u64, u64, u64, u64, Shape),
    Commit(usize),
    Change(usize, u64, u64),
    Release(usize),
    Pass(u64),
}

fn shape() -> impl Strategy<Value = Shape> {
    prop_oneof![
        Just(Shape::EarliestFinish),
        Just(Shape::LatestStart),
        Just(Shape::Shortest)
    ]
}

fn moves() -> impl Strategy<Value = Vec<Move>> {
    let one = prop_oneof![
        (1u64..120, 0u64..60, 1u64..20)
            .prop_map(|(amount, start, span)| Move::Fixed(amount, start, span)),
        (1u64..900, 0u64..60, 1u64..40, 0u64..60, 1u64..120, shape()).prop_map(
            |(bytes, start, span, least, most, shape)| Move::Volume(
                bytes, start, span, least, most, shape
            )
        ),
        (0usize..8).prop_map(Move::Commit),
        (0usize..8, 1u64..120, 0u64..70)
            .prop_map(|(which, amount, end)| Move::Change(which, amount, end)),
        (0usize..8).prop_map(Move::Release),
        (0u64..12).prop_map(Move::Pass),
    ];
    proptest::collection::vec(one, 0..30)
}

proptest! {
    #[test]
    fn nothing_exceeds_capacity_and_in_the_end_all_is_as_it_was(moves in moves()) {
        let mut calendar = link(100);
        let mut now = 0;
        for one in moves {
            let ids: Vec<ReservationId> = calendar.iter().map(|(id, _)| id).collect();
            let id = |which: usize| ids.get(which).copied().unwrap_or_default();
            let before = calendar.clone();
            let refused = match one {
                Move::Fixed(amount, start, span) => {
                    let ask = fixed(amount, now + start, now + start + span);
                    calendar.hold(LINK, ask, at(now), at(now + 30)).is_err()
                }
                Move::Volume(bytes, start, span, least, most, shape) => {
                    let ask = volume(bytes, (now + start, now + start + span), (least, most), shape);
                    let made = calendar.hold(LINK, ask, at(now), at(now + 30));
                    if let Ok(id) = made {
                        let made = calendar.get(id).unwrap();
                        prop_assert!(made.start() >= at(now + start) && made.end() <= at(now + start + span));
                        let in_bounds = |piece: &Piece| (rate(least)..=rate(most)).contains(&piece.amount);
                        prop_assert!(made.pieces.iter().all(in_bounds));
                        prop_assert!(made.volume() >= Bytes::new(bytes));
                    }
                    made.is_err()
                }
                Move::Commit(which) => calendar.commit(id(which), at(now)).is_err(),
                Move::Change(which, amount, end) => {
                    let change = Change { start: None, end: Some(at(now + end)), amount: Some(rate(amount)) };
                    calendar.change(id(which), change, at(now)).is_err()
                }
                Move::Release(which) => calendar.release(id(which)).is_none(),
                Move::Pass(secs) => {
                    now += secs;
                    calendar.expire(at(now));
                    false
                }
            };
            if refused {
                prop_assert_eq!(&calendar, &before, "a refusal changes nothing");
            }
            let bytes = calendar.to_bytes();
            let read = Reservations::from_bytes(&bytes);
            prop_assert_eq!(read.as_ref(), Ok(&calendar));
            let edges: Vec<Timestamp> = calendar.iter()
                .flat_map(|(_, held)| held.pieces.iter().map(|piece| piece.from)).collect();
            for edge in edges {
                let used: u64 = calendar.iter().map(|(_, held)| held.at(edge).rate().get()).sum();
                prop_assert!(used <= 100);
                prop_assert_eq!(calendar.free(LINK, edge, edge + Duration::from_micros(1)), rate(100 - used));
            }
        }
        let ids: Vec<ReservationId> = calendar.iter().map(|(id, _)| id).collect();
        for id in ids {
            calendar.release(id);
        }
        prop_assert_eq!(calendar.resources, link(100).resources);
    }

    #[test]
    fn a_hold_that_expires_never_was(
        taken in proptest::collection::vec((1u64..60, 0u64..40, 1u64..20), 0..6),
        asked in (1u64..100, 0u64..40, 1u64..20),
    ) {
        let mut calendar = link(100);
        for (amount, start, span) in taken {
            if let Ok(id) = hold(&mut calendar, fixed(amount, start, start + span)) {
                calendar.commit(id, at(0)).unwrap();
            }
        }
        let before = calendar.clone();
        let (amount, start, span) = asked;
        let made = calendar.hold(LINK, fixed(amount, start, start + span), at(0), at(1));
        let mut expected = before;
        if let Ok(id) = made {
            expected.last = calendar.last;
            prop_assert!(calendar.expire(at(1)).contains(&(id, Gone::Expired)));
        } else {
            calendar.expire(at(1));
        }
        expected.expire(at(1));
        prop_assert_eq!(calendar, expected);
    }

    #[test]
    fn volumes_are_placed_as_brute_force_would(
        used in proptest::collection::vec(0u64..=10, 1..=12),
        bytes in 1u64..80, least in 0u64..6, most in 1u64..12,
    ) {
        prop_assume!(least <= most);
        let mut calendar = link(10);
        for (second, &used) in (0u64..).zip(&used) {
            let _ = hold(&mut calendar, fixed(used, second, second + 1));
        }
        let end = used.len() as u64;
        let rates: Vec<u64> = used.iter()
            .map(|used| (10 - used).min(most)).map(|rate| if rate < least { 0 } else { rate }).collect();
        let place = |shape| {
            let mut calendar = calendar.clone();
            let id = hold(&mut calendar, volume(bytes, (0, end), (least, most), shape)).ok()?;
            calendar.get(id).cloned()
        };
        // In thousandths of a second: the first by which enough has passed.
        let first = |rates: &[u64]| (1..=1000 * end).find(|tick| {
            let whole = usize::try_from(tick / 1000).unwrap();
            let passed: u64 = rates[..whole].iter().sum::<u64>() * 1000;
            passed + rates.get(whole).map_or(0, |rate| rate * (tick % 1000)) >= bytes * 1000
        });
        let milli = |moment: Timestamp| moment.as_micros().div_ceil(1000);
        prop_assert_eq!(place(Shape::EarliestFinish).map(|made| milli(made.end())), first(&rates));
        let mirrored: Vec<u64> = rates.iter().rev().copied().collect();
        let late = place(Shape::LatestStart).map(|made| end * 1000 - made.start().as_micros() / 1000);
        prop_assert_eq!(late, first(&mirrored));
        // All runs of whole seconds, each with the amount free in all of it.
        let mut shortest = None;
        for from in 0..used.len() {
            for to in from + 1..=used.len() {
                let rate = used[from..to].iter().map(|used| 10 - used).min().unwrap().min(most);
                if rate >= least.max(1) && rate * (to - from) as u64 >= bytes {
                    let micros = (bytes * 1_000_000).div_ceil(rate);
                    shortest = Some(shortest.unwrap_or(micros).min(micros));
                }
            }
        }
        let made = place(Shape::Shortest).map(|made| made.end().as_micros() - made.start().as_micros());
        prop_assert_eq!(made, shortest);
    }
}
