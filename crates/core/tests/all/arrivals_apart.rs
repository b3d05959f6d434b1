//! Stage-ins whose files lie at different sources.
#![allow(
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    reason = "a test may stop at once"
)]

use std::collections::BTreeSet;

use posthaste_core::{Mind, contract::*};
use posthaste_types::{ByteRate, Bytes, ChunkIndex, SourceId};

use crate::support::arrivals::*;

/// Asks for 100 MiB of which so many MiB lie at A alone, at B alone, and at both.
fn gather(desk: &mut Desk, deadline_s: u64, mebis: [u64; 3]) {
    let all = mebis.into_iter().zip([vec![A], vec![B], vec![A, B]]);
    let holdings = all.map(|(mebis, sources)| Holding {
        bytes: Bytes::mebi(mebis),
        sources,
    });
    desk.give(vec![Input::ArrivalGathered {
        request: R1,
        spec: spec(deadline_s, None),
        holdings: holdings.collect(),
    }]);
}

#[test]
fn each_source_is_asked_only_for_what_it_holds_and_first_for_what_no_other_does() {
    let mut desk = Desk::new([10, 10]);
    gather(&mut desk, 60, [40, 20, 40]);
    let mut own: BTreeSet<ChunkIndex> = BTreeSet::new();
    for _ in 0..30 {
        for (_, source, chunk) in &desk.asked {
            let holder = match chunk.get() {
                0..40 => Some(A),
                40..60 => Some(B),
                _ => None,
            };
            assert!(holder.is_none_or(|holder| holder == *source), "{chunk}");
            own.extend((holder == Some(A)).then_some(*chunk));
            let is_shared_of_a = *source == A && holder.is_none();
            assert!(!is_shared_of_a || own.len() == 40, "its own comes first");
        }
        desk.pass(1, [10, 10]);
    }
    assert!(desk.is_settled(R1, true), "{:?}", desk.view(R1));
    // Neither waits for the other: 40 alone and 10 shared, 20 alone and 30 shared.
    let view = desk.view(R1);
    assert_eq!(view.duplicates, 0);
    let given = [view.shares[0].arrived, view.shares[1].arrived];
    assert!(given[0].abs_diff(given[1]) < 12, "{given:?}");
}

#[test]
fn what_lies_at_a_slow_source_alone_binds_and_that_is_said() {
    // 50 MiB of a source of 1 MiB/s take a minute, whatever the other gives.
    let mut desk = Desk::new([50, 1]);
    gather(&mut desk, 40, [10, 50, 40]);
    let (_, happening, reason) = desk.happened.pop().unwrap();
    assert_eq!(happening, Happening::Refused);
    let Reason::OnlyThere {
        binding,
        finish: Some(finish),
        ..
    } = &reason
    else {
        panic!("{reason}");
    };
    assert_eq!(binding.names, ["source s2"]);
    assert_eq!(binding.bytes, Bytes::mebi(50));
    assert!(*finish > at(50) && *finish < at(90), "{finish}");
    assert!(reason.to_string().contains("only at source s2"), "{reason}");
    // All of it at both is possible by then.
    let mut desk = Desk::new([50, 1]);
    desk.ask(R1, spec(40, None));
    assert_eq!(desk.said(R1)[0], "admitted");
    // A later deadline is kept, and which source binds is said.
    let mut desk = Desk::new([50, 1]);
    gather(&mut desk, 100, [10, 50, 40]);
    let (.., reason) = desk.happened.first().unwrap();
    assert!(matches!(reason, Reason::InboundBound { .. }), "{reason}");
    let begin_by = desk.view(R1).begin_by.unwrap();
    assert!(
        begin_by < at(50),
        "what binds sets the latest start: {begin_by}"
    );
}

#[test]
fn a_limit_holds_for_all_that_lies_apart_together() {
    let mut desk = Desk::new([50, 50]);
    let holdings = [A, B].map(|source| Holding {
        bytes: Bytes::mebi(50),
        sources: vec![source],
    });
    desk.give(vec![Input::ArrivalGathered {
        request: R1,
        spec: ArrivalSpec {
            rate_max: Some(ByteRate::new(2 << 20)),
            ..spec(200, None)
        },
        holdings: holdings.into(),
    }]);
    let finish = desk.view(R1).finish.unwrap().p90;
    assert!((at(49)..at(52)).contains(&finish), "{finish}");
}

#[test]
fn what_only_a_dead_source_holds_is_waited_for_and_said() {
    let mut desk = Desk::new([10, 10]);
    gather(&mut desk, 60, [30, 30, 40]);
    for _ in 0..3 {
        fault(&mut desk, A, Fault::Unreachable);
    }
    desk.pass(20, [0, 10]);
    let view = desk.view(R1);
    assert_eq!(view.chunks_here, 70, "the other gives all that it holds");
    assert_eq!(view.binding.unwrap().names, ["source s1"]);
    let risk = desk
        .happened
        .iter()
        .find(|(_, said, _)| said.name() == "at-risk");
    let (.., reason) = risk.unwrap();
    assert!(
        matches!(reason, Reason::OnlyThere { finish: None, .. }),
        "{reason}"
    );
    // It comes back: asked for one chunk first, and then for the rest.
    desk.pass(40, [10, 10]);
    assert!(desk.is_settled(R1, true), "{:?}", desk.view(R1));
}

#[test]
fn a_file_that_is_gone_leaves_what_else_its_source_holds() {
    let mut desk = Desk::new([10, 10]);
    gather(&mut desk, 100, [0, 30, 70]);
    // B gave what it alone holds, and has lost what A holds too.
    desk.pass(4, [10, 10]);
    fault(&mut desk, B, Fault::SourceVanished);
    assert!(desk.asked.iter().all(|(_, source, _)| *source == A));
    assert_eq!(desk.view(R1).state, ArrivalState::Moving);
    desk.pass(10, [10, 10]);
    assert!(desk.is_settled(R1, true), "{:?}", desk.view(R1));
    // What nobody else holds ends it, and that is said.
    let mut desk = Desk::new([10, 10]);
    gather(&mut desk, 100, [30, 30, 40]);
    fault(&mut desk, B, Fault::SourceVanished);
    desk.pass(1, [10, 10]);
    let (.., reason) = desk.happened.last().unwrap();
    assert!(matches!(reason, Reason::HeldNowhere { .. }), "{reason}");
    assert!(desk.is_settled(R1, false));
}

#[test]
fn holdings_that_make_no_sense_are_refused() {
    let holding = |mebis, sources| Holding {
        bytes: Bytes::mebi(mebis),
        sources,
    };
    let wrong = [
        vec![holding(99, vec![A])],
        vec![holding(100, vec![])],
        vec![holding(100, vec![SourceId::new(7)])],
        vec![holding(0, vec![A]); 300],
    ];
    for holdings in wrong {
        let mut desk = Desk::new([10, 10]);
        desk.give(vec![Input::ArrivalGathered {
            request: R1,
            spec: spec(100, None),
            holdings,
        }]);
        assert_eq!(desk.said(R1), ["refused"]);
    }
}

#[test]
fn a_restart_keeps_what_lies_where() {
    let mut desk = Desk::new([10, 10]);
    gather(&mut desk, 100, [30, 30, 40]);
    desk.pass(2, [10, 10]);
    desk.mind = Mind::restore(&desk.mind.snapshot()).unwrap();
    desk.asked.clear();
    desk.give(vec![Input::DriverStarted]);
    let chunks = (0..25).map(ChunkIndex::new).collect();
    desk.give(vec![Input::ArrivalSurveyed {
        request: R1,
        chunks,
    }]);
    let of_a = desk.asked.iter().filter(|(_, source, _)| *source == A);
    assert_eq!(of_a.map(|(.., chunk)| chunk.get()).min(), Some(25));
    assert!(
        desk.asked
            .iter()
            .all(|(_, source, chunk)| *source == A || chunk.get() >= 30)
    );
    desk.pass(20, [10, 10]);
    assert!(desk.is_settled(R1, true), "{:?}", desk.view(R1));
}
