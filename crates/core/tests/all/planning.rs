//! The plan over time: when it is asked for, what is made of the answer, and what if none comes.
#![allow(
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    reason = "a test may stop at once"
)]

use std::time::Duration;

use crate::support::desk::Desk;
use posthaste_core::{Mind, Settings, contract::*};
use posthaste_plan::horizon::{Problem, Schedule, greedy};
use posthaste_types::{Bytes, DepotId, RequestId};

/// The depot that the second request can't do without.
const ONLY: u32 = 3;
const FIRST: RequestId = RequestId::new(1);
const SECOND: RequestId = RequestId::new(2);

/// The first request has all three depots, the second one only: both can be kept, but not in turns.
fn squeezed(settings: Settings) -> Desk {
    let mut desk = Desk::new(settings);
    desk.submit(FIRST, 1950, 100, &[1, 2, ONLY]);
    desk.submit(SECOND, 600, 90, &[ONLY]);
    desk
}

#[test]
fn turns_alone_refuse_what_a_plan_keeps() {
    let settings = Settings {
        plan_requests_max: 0,
        ..Settings::default()
    };
    let desk = squeezed(settings);
    assert!(desk.asked.is_empty());
    assert!(matches!(
        desk.answer(SECOND),
        Some(Reason::Infeasible { .. })
    ));
}

#[test]
fn a_newcomer_that_turns_would_refuse_is_taken_by_a_plan_and_others_leave_it_the_depot() {
    let mut desk = squeezed(Settings::default());
    assert_eq!(desk.asked.len(), 1);
    assert_eq!(desk.answer(SECOND), None, "its answer waits");
    assert!(desk.is_fed(FIRST, ONLY));
    desk.solve();
    let Some(Reason::Planned {
        finish,
        deadline,
        others,
    }) = desk.answer(SECOND)
    else {
        panic!("{:?}", desk.answer(SECOND));
    };
    assert!(finish <= deadline);
    assert_eq!(*others, 1);
    assert!(!desk.is_fed(FIRST, ONLY) && desk.is_fed(FIRST, 1));
    let told = desk.mind.explain(FIRST).unwrap();
    let planned = told
        .iter()
        .find(|decision| decision.what().starts_with("planned:"));
    assert_eq!(planned.unwrap().reason, Reason::Rearranged { more: 1 });
    let before = desk.sent.len();
    desk.wait(Duration::from_secs(2));
    let sent = &desk.sent[before..];
    assert!(!sent.contains(&(FIRST, DepotId::new(ONLY))));
    let is_late =
        |(_, happening, _): &(_, Happening, _)| matches!(happening, Happening::AtRisk { .. });
    assert!(!desk.said.iter().any(is_late), "{:?}", desk.said);
}

#[test]
fn a_plan_knows_the_hours_at_which_a_depot_is_lent_for_one_request() {
    let mut desk = Desk::new(Settings::default());
    // It is 08:00:20: for forty seconds the first depot takes nothing of the first request.
    let terms = vec![LentTerms {
        depot: DepotId::new(1),
        windows: "08:01-12".parse().unwrap(),
        load_max_permille: None,
    }];
    desk.give(Input::LentTold {
        request: FIRST,
        terms,
    });
    desk.submit(FIRST, 1500, 100, &[1, 2, ONLY]);
    assert!(desk.is_fed(FIRST, ONLY), "{:?}", desk.answer(FIRST));
    desk.submit(SECOND, 600, 90, &[ONLY]);
    assert_eq!(desk.answer(SECOND), None, "its answer waits");
    desk.solve();
    let answer = desk.answer(SECOND);
    assert!(matches!(answer, Some(Reason::Planned { .. })), "{answer:?}");
    assert!(!desk.is_fed(FIRST, ONLY) && desk.is_fed(FIRST, 1));
}

#[test]
fn a_plan_gives_pinned_depots_their_share_and_leaves_others_what_is_left() {
    let mut desk = Desk::new(Settings::default());
    let spec = RequestSpec {
        code: "1+1".parse().unwrap(),
        ..desk.spec(900, 100, &[1, ONLY, 2])
    };
    desk.give(Input::RequestPinned {
        request: FIRST,
        spec,
        optimizer: Method::Auto,
        wishes: Wishes::default(),
        purge_at: None,
        pinned: vec![DepotId::new(1)],
    });
    assert!(desk.is_fed(FIRST, ONLY));
    desk.submit(SECOND, 600, 90, &[ONLY]);
    assert_eq!(desk.answer(SECOND), None, "its answer waits");
    let (_, problem) = &desk.asked[0];
    assert_eq!(problem.demands[0].pinned.len(), 1);
    desk.solve();
    let answer = desk.answer(SECOND);
    assert!(matches!(answer, Some(Reason::Planned { .. })), "{answer:?}");
    assert!(desk.is_fed(FIRST, 1) && desk.is_fed(FIRST, 2) && !desk.is_fed(FIRST, ONLY));
    let before = desk.sent.len();
    desk.wait(Duration::from_secs(2));
    assert!(!desk.sent[before..].contains(&(FIRST, DepotId::new(ONLY))));
}

#[test]
fn an_answer_to_another_question_changes_nothing() {
    let mut desk = squeezed(Settings::default());
    let (number, problem) = desk.asked[0].clone();
    let before = desk.mind.clone();
    for stale in [number - 1, number + 1] {
        let schedule = Some(greedy(&problem));
        desk.give(Input::PlanSolved {
            number: stale,
            schedule,
        });
    }
    assert_eq!(desk.answer(SECOND), None);
    assert!(desk.mind == before);
    desk.solve();
    assert!(matches!(desk.answer(SECOND), Some(Reason::Planned { .. })));
    let before = desk.mind.clone();
    desk.solve();
    assert!(desk.mind == before, "the same answer again");
}

#[test]
fn a_plan_that_breaks_a_rule_or_keeps_too_little_is_no_plan() {
    for schedule in [
        None,
        Some(Schedule::default()),
        Some(greedy(&Problem::default())),
    ] {
        let mut desk = squeezed(Settings::default());
        let (number, _) = desk.asked[0];
        desk.give(Input::PlanSolved { number, schedule });
        assert!(matches!(
            desk.answer(SECOND),
            Some(Reason::Infeasible { .. })
        ));
        assert!(desk.is_fed(FIRST, ONLY));
    }
    let mut desk = squeezed(Settings::default());
    let (number, problem) = desk.asked[0].clone();
    let mut schedule = greedy(&problem);
    schedule.flows[0].bytes += Bytes::mebi(1 << 30);
    let schedule = Some(schedule);
    desk.give(Input::PlanSolved { number, schedule });
    assert!(matches!(
        desk.answer(SECOND),
        Some(Reason::Infeasible { .. })
    ));
}

#[test]
fn no_answer_is_waited_for_without_end() {
    let mut desk = squeezed(Settings::default());
    desk.wait(Settings::default().plan_wait - Duration::from_millis(1));
    assert_eq!(desk.answer(SECOND), None);
    desk.wait(Duration::from_millis(1));
    assert!(matches!(
        desk.answer(SECOND),
        Some(Reason::Infeasible { .. })
    ));
    let before = desk.said.len();
    desk.solve();
    assert_eq!(desk.said.len(), before, "it came too late");
}

#[test]
fn a_driver_that_starts_again_is_asked_again() {
    let mut desk = squeezed(Settings::default());
    let snapshot = desk.mind.snapshot();
    desk.mind = Mind::restore(&snapshot).unwrap();
    desk.give(Input::DriverStarted);
    assert_eq!(desk.asked.len(), 2);
    assert_eq!(desk.answer(SECOND), None);
    let (number, problem) = desk.asked[0].clone();
    let schedule = Some(greedy(&problem));
    desk.give(Input::PlanSolved { number, schedule });
    assert_eq!(desk.answer(SECOND), None, "that was asked before the crash");
    desk.solve();
    assert!(matches!(desk.answer(SECOND), Some(Reason::Planned { .. })));
}

#[test]
fn a_plan_is_dropped_as_soon_as_a_depot_is_lost() {
    let mut desk = squeezed(Settings::default());
    desk.solve();
    assert!(!desk.is_fed(FIRST, ONLY));
    desk.give(Input::DepotDown {
        depot: DepotId::new(1),
        fault: Fault::Unreachable,
    });
    assert!(desk.is_fed(FIRST, ONLY), "it takes its turns again");
    let told = desk.mind.explain(FIRST).unwrap();
    let dropped = told
        .iter()
        .any(|decision| decision.reason == Reason::Unplanned);
    assert!(dropped);
}

#[test]
fn a_newcomer_may_be_cancelled_or_get_another_deadline_while_it_waits() {
    let mut desk = squeezed(Settings::default());
    desk.give(Input::RequestCancelled { request: SECOND });
    let view = desk.mind.request(SECOND).unwrap();
    assert_eq!(view.state, RequestState::Cancelled);
    desk.solve();
    assert_eq!(desk.answer(SECOND), None);

    let mut desk = squeezed(Settings::default());
    desk.give(Input::DeadlineMoved {
        request: SECOND,
        deadline: desk.now + Duration::from_secs(600),
    });
    assert!(matches!(desk.answer(SECOND), Some(Reason::Admitted { .. })));
}

#[test]
fn newcomers_are_answered_one_after_the_other() {
    let mut desk = squeezed(Settings::default());
    let third = RequestId::new(3);
    desk.submit(third, 400, 80, &[ONLY]);
    assert_eq!(desk.asked.len(), 1, "one at a time");
    desk.solve();
    assert!(matches!(desk.answer(SECOND), Some(Reason::Planned { .. })));
    assert_eq!(desk.answer(third), None);
    assert_eq!(desk.asked.len(), 2);
    desk.solve();
    assert!(matches!(
        desk.answer(third),
        Some(Reason::Infeasible { .. })
    ));
}

#[test]
fn a_quiet_centre_asks_for_nothing() {
    let mut desk = Desk::new(Settings::default());
    for number in 1..=5 {
        desk.submit(RequestId::new(number), 100, 3000, &[1, 2, ONLY]);
    }
    desk.wait(Duration::from_secs(5));
    // One that nothing could keep, alone or not, is refused at once.
    desk.submit(RequestId::new(6), 90_000, 60, &[1, 2, ONLY]);
    assert!(desk.asked.is_empty());
    assert!(desk.answer(RequestId::new(6)).is_some());
}
