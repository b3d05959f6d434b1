//! Whose turn it is where not all deadlines can be kept any more.

use std::time::Duration;

use crate::support::desk::Desk;
use posthaste_core::{Settings, contract::*};
use posthaste_types::{Bytes, DepotId, RequestId};

const LARGE: RequestId = RequestId::new(1);
const SMALL: [RequestId; 2] = [RequestId::new(2), RequestId::new(3)];

/// A large request before two small ones, all of which can be kept with 30 MiB/s.
fn three() -> Desk {
    // Where a plan over time is asked for, nobody answers.
    let mut desk = Desk::new(Settings::default());
    desk.submit(LARGE, 2000, 130, &[1, 2, 3]);
    desk.submit(SMALL[0], 600, 150, &[1, 2, 3]);
    desk.submit(SMALL[1], 300, 160, &[1, 2, 3]);
    desk.measure(10, Duration::from_secs(5));
    desk
}

fn reasons(desk: &Desk, id: RequestId) -> Vec<Reason> {
    let told = desk.mind.explain(id).unwrap();
    told.into_iter().map(|decision| decision.reason).collect()
}

/// Returns whether the request is on time by the median forecast.
fn is_on_time(desk: &Desk, id: RequestId) -> bool {
    let view = desk.mind.request(id).unwrap();
    view.finish
        .is_some_and(|finish| finish.p50 <= view.spec.deadline)
}

#[test]
fn one_that_cannot_be_on_time_lets_those_go_first_that_can_and_takes_its_turn_again() {
    let mut desk = three();
    assert!(
        SMALL
            .iter()
            .chain([&LARGE])
            .all(|id| is_on_time(&desk, *id))
    );
    desk.measure(4, Duration::from_secs(15));
    let concedes = Reason::Concedes { more: 2 };
    assert!(
        reasons(&desk, LARGE).contains(&concedes),
        "{:?}",
        reasons(&desk, LARGE)
    );
    assert!(SMALL.iter().all(|id| is_on_time(&desk, *id)));
    let is_said = desk.said.iter().any(|(of, happening, _)| {
        *of == Some(LARGE) && matches!(happening, Happening::AtRisk { .. })
    });
    assert!(is_said, "who waits for it must know: {:?}", desk.said);
    desk.measure(10, Duration::from_secs(15));
    assert!(
        reasons(&desk, LARGE).contains(&Reason::Regained),
        "{:?}",
        reasons(&desk, LARGE)
    );
    assert!(
        SMALL
            .iter()
            .chain([&LARGE])
            .all(|id| is_on_time(&desk, *id))
    );
}

#[test]
fn one_that_is_late_stays_first_where_nobody_gains_by_it() {
    let mut desk = three();
    // Too little for the others as well, whichever of the three goes last.
    desk.measure(1, Duration::from_secs(15));
    assert!(!is_on_time(&desk, LARGE));
    let conceded = |reason: &Reason| matches!(reason, Reason::Concedes { .. });
    assert!(!reasons(&desk, LARGE).iter().any(conceded));
}

#[test]
fn what_a_user_makes_more_urgent_goes_before_what_nobody_was_promised_either() {
    let mut desk = Desk::new(Settings::default());
    let [first, second] = SMALL;
    for request in [first, second] {
        let spec = RequestSpec {
            bytes: Bytes::mebi(3000),
            files: 1,
            chunk_size: Bytes::mebi(4),
            deadline: desk.now + Duration::from_secs(20),
            code: "1+0".parse().unwrap(),
            via: (1..=3).map(DepotId::new).collect(),
            destinations: Vec::new(),
            release: ReleasePolicy::Never,
            best_effort: true,
        };
        desk.give(Input::RequestSubmitted { request, spec });
    }
    desk.measure(10, Duration::from_secs(3));
    let is_before = |desk: &Desk, one, other| {
        let finish = |id| desk.mind.request(id).unwrap().finish.unwrap().p50;
        finish(one) < finish(other)
    };
    let priority = "urgent".parse().unwrap();
    let request = second;
    desk.give(Input::PriorityMoved { request, priority });
    desk.measure(10, Duration::from_secs(2));
    assert!(is_before(&desk, second, first));
    desk.give(Input::PriorityMoved {
        request,
        priority: Priority::LEAST,
    });
    desk.measure(10, Duration::from_secs(2));
    assert!(is_before(&desk, first, second));
    let told = Reason::NewPriority {
        from: priority,
        to: Priority::LEAST,
    };
    assert!(reasons(&desk, second).contains(&told));
    let story = desk.mind.story(second).unwrap().join(" ");
    assert!(story.contains("priority changed"), "{story}");
}
