//! Slack of a stage-in: each cause with its cost; their sum is the time by which the answer was
//! missed.

use std::time::Duration;

use posthaste_core::contract::*;
use posthaste_types::ByteRate;

use crate::support::arrivals::*;

/// Returns the cost of all causes, and how much later than answered the data arrived.
fn sums(tale: &ArrivalTale) -> (i64, i64) {
    let (_, answered) = tale.answered.unwrap();
    let charged = tale.charges.iter().map(|charge| charge.cost_micros).sum();
    (
        charged,
        tale.view.arrived_at.unwrap().slack_micros(answered),
    )
}

fn of(source: posthaste_types::SourceId) -> Option<Party> {
    Some(Party::Source { source })
}

fn lands(desk: &mut Desk, given: [usize; 2]) -> ArrivalTale {
    while !desk.is_settled(R1, true) {
        assert!(desk.now < at(600), "{:?}", desk.view(R1));
        desk.pass(1, given);
    }
    desk.give(vec![Input::Landed { request: R1 }]);
    desk.mind.arrival_tale(R1).unwrap()
}

#[test]
fn a_source_that_is_lost_is_charged_with_what_that_cost() {
    let mut desk = Desk::new([10, 10]);
    desk.ask(R1, spec(14, None));
    desk.pass(2, [10, 10]);
    for _ in 0..10 {
        if desk.asked.iter().any(|(_, source, _)| *source == B) {
            fault(&mut desk, B, Fault::Unreachable);
        }
        desk.pass(1, [4, 0]);
    }
    let tale = lands(&mut desk, [4, 0]);
    let charged = |cause: Cause, party: Option<Party>| {
        let is_it = |charge: &&Charge| (charge.cause, charge.party) == (cause, party);
        let found = tale.charges.iter().find(is_it);
        found.map_or(0, |charge| charge.cost_micros)
    };
    assert!(
        charged(Cause::Loss, of(B)) > 1_000_000,
        "{:?}",
        tale.charges
    );
    assert!(
        charged(Cause::Rate, of(A)) > 1_000_000,
        "{:?}",
        tale.charges
    );
    let (all, late) = sums(&tale);
    assert_eq!(all, late, "{:?}", tale.charges);
    let story = desk.mind.story(R1).unwrap().join("\n");
    assert!(
        story.contains("Where the slack went: the answer left"),
        "{story}"
    );
    assert!(story.contains("the loss of source s2 cost"), "{story}");
    assert!(
        story.contains("so it ended") && story.contains(" late."),
        "{story}"
    );
}

#[test]
fn a_pause_and_a_limit_are_charged_and_what_was_on_time_has_no_such_sentence() {
    let mut desk = Desk::new([10, 10]);
    desk.ask(R1, spec(30, None));
    desk.pass(2, [5, 5]);
    let pause = |by: &str| Input::Paused {
        request: R1,
        by: by.into(),
    };
    desk.give(vec![pause("me")]);
    desk.pass(20, [5, 5]);
    desk.give(vec![Input::Resumed {
        request: R1,
        by: "me".into(),
    }]);
    desk.give(vec![Input::RateLimited {
        request: R1,
        rate_max: Some(ByteRate::new(4 << 20)),
    }]);
    let tale = lands(&mut desk, [5, 5]);
    let cause = |wanted: Cause| {
        let charges = tale.charges.iter();
        let mut of_it = charges.filter(|charge| charge.cause == wanted);
        of_it.next().map(|charge| charge.cost_micros / 1_000_000)
    };
    assert!(cause(Cause::Paused) >= Some(15), "{:?}", tale.charges);
    assert!(cause(Cause::Course) >= Some(5), "{:?}", tale.charges);
    let (all, late) = sums(&tale);
    assert_eq!(all, late);
    let story = desk.mind.story(R1).unwrap().join("\n");
    assert!(story.contains("the pause cost"), "{story}");
    assert!(story.contains("another limit cost"), "{story}");

    let mut calm = Desk::new([10, 10]);
    calm.ask(R1, spec(60, None));
    let tale = lands(&mut calm, [10, 10]);
    assert!(tale.answered.is_some());
    let story = calm.mind.story(R1).unwrap().join("\n");
    assert!(!story.contains("slack"), "{story}");
}

#[test]
fn what_waits_for_its_time_is_charged_for_nothing() {
    let mut desk = Desk::new([10, 10]);
    desk.ask(R1, spec(3600, Some(3000)));
    for _ in 0..100 {
        desk.now = desk.now + Duration::from_secs(20);
        desk.give(Vec::new());
    }
    let tale = desk.mind.arrival_tale(R1).unwrap();
    assert_eq!(tale.view.state, ArrivalState::Waiting);
    let moved: i64 = tale.charges.iter().map(|charge| charge.cost_micros).sum();
    // Forecasts of what nobody has measured grow wider as they age, and it begins sooner for that.
    assert!(moved.abs() < 60_000_000, "{:?}", tale.charges);
}

#[test]
fn what_a_more_urgent_one_takes_is_charged_to_that() {
    let mut desk = Desk::new([10, 10]);
    desk.ask(R1, spec(60, None));
    desk.ask(R2, spec(20, None));
    desk.pass(1, [10, 10]);
    let tale = desk.mind.arrival_tale(R1).unwrap();
    let charge = &tale.charges[0];
    assert_eq!(
        (charge.cause, charge.party),
        (Cause::Others, None),
        "{:?}",
        tale.charges
    );
    assert!(charge.cost_micros > 1_000_000, "{:?}", tale.charges);
}
