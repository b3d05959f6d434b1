//! Fragments that wait for a slowed path are recalled, and sent elsewhere once none of their bytes
//! has left.

use std::time::Duration;

use crate::support::desk::Desk;
use posthaste_core::{Settings, contract::*};
use posthaste_types::{Bytes, ChunkIndex, DepotId, FragmentIndex, RequestId};

const REQUEST: RequestId = RequestId::new(1);
const SLOW: DepotId = DepotId::new(1);

type Asked = (RequestId, DepotId, ChunkIndex, FragmentIndex);

/// A request that needs all of these depots, and the path to the first of them carries a tenth for the last seconds.
fn slowed(via: &[u32]) -> Desk {
    let mut desk = Desk::new(Settings::default());
    desk.submit(REQUEST, 1000 / 3 * via.len() as u64, 40, via);
    let rate = Input::Throughput {
        depot: SLOW,
        bytes: Bytes::mebi(1),
        window: Duration::from_secs(1),
        saturated: true,
    };
    for _ in 0..4 {
        desk.wait(Duration::from_secs(1));
        desk.give(rate.clone());
    }
    desk.wait(Duration::from_secs(1));
    desk
}

/// Returns the fragments on their way to the slow depot.
fn under_way(desk: &Desk) -> Vec<(ChunkIndex, FragmentIndex)> {
    let sent = desk.sent.iter().zip(&desk.pieces);
    let there = sent.filter(|((_, depot), _)| *depot == SLOW);
    there.map(|(_, piece)| *piece).collect()
}

fn recalled((request, depot, chunk, fragment): Asked) -> Input {
    Input::Recalled {
        request,
        depot,
        chunk,
        fragment,
    }
}

#[test]
fn what_was_sent_last_to_a_slow_path_is_asked_back_once_and_two_stay() {
    let mut desk = slowed(&[1, 2, 3]);
    let mut there = under_way(&desk);
    assert!(there.len() > 3, "{there:?}");
    let back = |(request, depot, chunk, fragment): &Asked| {
        assert_eq!((*request, *depot), (REQUEST, SLOW));
        (*chunk, *fragment)
    };
    let asked: Vec<_> = desk.asked_back.iter().map(back).collect();
    there.reverse();
    assert_eq!(asked, there[..there.len() - 2]);
    let told = desk.mind.explain(REQUEST).unwrap();
    let says = |decision: &Decision| matches!(decision.reason, Reason::Slowed { .. });
    assert_eq!(told.iter().filter(|decision| says(decision)).count(), 1);
    desk.wait(Duration::from_secs(5));
    assert_eq!(desk.asked_back.len(), asked.len(), "they have left by now");
}

#[test]
fn what_came_back_goes_to_another_depot_and_what_had_left_is_not_sent_twice() {
    let mut desk = slowed(&[1, 2, 3]);
    let asked = desk.asked_back.clone();
    let (back, gone) = asked.split_first().unwrap();
    let before = desk.sent.len();
    desk.give(recalled(*back));
    // The others have room again.
    let stored: Vec<Input> = (desk.sent.iter().zip(&desk.pieces))
        .filter(|((_, depot), _)| *depot != SLOW)
        .map(
            |((request, depot), (chunk, fragment))| Input::FragmentStored {
                request: *request,
                depot: *depot,
                chunk: *chunk,
                fragment: *fragment,
            },
        )
        .collect();
    desk.step(stored);
    let again: Vec<_> = (desk.sent.iter().zip(&desk.pieces))
        .skip(before)
        .map(|((_, depot), (chunk, _))| (*depot, *chunk))
        .collect();
    let of = |chunk: ChunkIndex| again.iter().filter(move |(_, sent)| *sent == chunk);
    assert_eq!(of(back.2).count(), 1, "{again:?}");
    assert!(of(back.2).all(|(depot, _)| *depot != SLOW));
    assert!(!gone.is_empty() && gone.iter().all(|(_, _, chunk, _)| of(*chunk).count() == 0));
    // An answer that comes too late, or twice, changes nothing.
    let known = desk.mind.snapshot();
    desk.give(recalled(*back));
    assert_eq!(desk.mind.snapshot(), known);
}

#[test]
fn nothing_is_asked_back_where_no_other_depot_would_have_it_sooner() {
    let desk = slowed(&[1]);
    assert!(under_way(&desk).len() > 3);
    assert_eq!(desk.asked_back, []);
}
