//! Chunks that one source of a stage-in delays at the end are asked of another as well.

use posthaste_core::contract::*;
use posthaste_types::Bytes;

use crate::support::arrivals::*;

/// Both sources gave everything but the first chunk that A was asked for, which has not come.
fn all_but_one() -> (Desk, Asked) {
    let mut desk = Desk::new([10, 10]);
    desk.ask(R1, spec(60, None));
    let of_a = desk.asked.iter().position(|(_, source, _)| *source == A);
    let late = desk.asked.remove(of_a.unwrap());
    while desk.view(R1).chunks_here < 99 {
        desk.pass(1, [10, 10]);
    }
    (desk, late)
}

fn arrives(desk: &mut Desk, (request, source, chunk): Asked) {
    desk.give(vec![Input::ChunkArrived {
        request,
        source,
        chunk,
    }]);
}

/// Returns the chunks asked for because another source is late with them.
fn asked_again(desk: &Desk) -> Vec<Asked> {
    let again = |command: &Command| {
        let Command::Fetch {
            request,
            source,
            chunk,
            reason: Reason::Endgame,
        } = command
        else {
            return None;
        };
        Some((*request, *source, *chunk))
    };
    desk.commands.iter().filter_map(again).collect()
}

#[test]
fn a_late_chunk_is_asked_of_another_source_once_and_counted() {
    let (mut desk, late) = all_but_one();
    desk.pass(1, [0, 0]);
    assert_eq!(asked_again(&desk), [(R1, B, late.2)]);
    assert_eq!(desk.view(R1).duplicates, 1);
    desk.pass(2, [0, 0]);
    assert_eq!(asked_again(&desk).len(), 1, "nobody is asked a third time");
}

#[test]
fn whichever_source_gives_it_first_is_the_one_that_gave_it() {
    for first in [A, B] {
        let (mut desk, late) = all_but_one();
        desk.pass(1, [0, 0]);
        let before = desk.view(R1);
        arrives(&mut desk, (R1, first, late.2));
        assert!(desk.is_settled(R1, true), "{:?}", desk.view(R1));
        let second = if first == A { B } else { A };
        arrives(&mut desk, (R1, second, late.2));
        desk.give(vec![Input::Landed { request: R1 }]);
        let after = desk.view(R1);
        assert_eq!(after.state, ArrivalState::Arrived);
        assert_eq!((after.chunks_here, after.duplicates), (100, 1));
        for (before, after) in before.shares.iter().zip(&after.shares) {
            let more = u32::from(after.source == first);
            assert_eq!(after.arrived, before.arrived + more, "{}", after.source);
        }
        assert_eq!(desk.said(R1), ["admitted", "fetching", "arrived"]);
    }
}

#[test]
fn what_another_source_would_not_have_in_half_the_time_is_waited_for() {
    let mut desk = Desk::new([50, 2]);
    desk.ask(
        R1,
        ArrivalSpec {
            chunk_size: Bytes::mebi(4),
            ..spec(100, None)
        },
    );
    let late = desk.asked.remove(0);
    // B has the last but one under way: with that and the late one it would be done in four seconds.
    for second in 1..=9 {
        desk.pass(1, [12, 0]);
        let is_asked = asked_again(&desk).contains(&(R1, B, late.2));
        assert_eq!(is_asked, second > 8, "after {second} s");
    }
    assert_eq!(desk.view(R1).chunks_here, 24, "there is nothing else to do");
}
