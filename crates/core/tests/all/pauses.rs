//! Requests that a user pauses and resumes.

use std::time::Duration;

use crate::support::desk::Desk;
use posthaste_core::{Mind, Settings, contract::*};
use posthaste_types::{ChunkIndex, DepotId, FragmentIndex, RequestId};

const R1: RequestId = RequestId::new(1);
const R2: RequestId = RequestId::new(2);
const BY: &str = "ada";

fn pause(desk: &mut Desk, request: RequestId) {
    let by = BY.into();
    desk.give(Input::Paused { request, by });
}

fn resume(desk: &mut Desk, request: RequestId) {
    let by = "bob".into();
    desk.give(Input::Resumed { request, by });
}

fn said(desk: &Desk, request: RequestId, happening: &Happening) -> Vec<Reason> {
    let said = desk.said.iter();
    let said = said.filter(|(of, what, _)| *of == Some(request) && what == happening);
    said.map(|(.., why)| why.clone()).collect()
}

fn is_at_risk(desk: &Desk, request: RequestId) -> bool {
    let mut said = desk.said.iter();
    said.any(|(of, what, _)| *of == Some(request) && matches!(what, Happening::AtRisk { .. }))
}

#[test]
fn nothing_is_sent_while_it_waits_and_it_goes_on_where_it_stopped() {
    let mut desk = Desk::new(Settings::default());
    desk.submit(R1, 300, 600, &[1, 2, 3]);
    assert!(!desk.sent.is_empty());
    let (chunk, fragment) = (ChunkIndex::new(0), FragmentIndex::new(0));
    let (request, depot) = (R1, desk.sent[0].1);
    desk.give(Input::FragmentStored {
        request,
        depot,
        chunk,
        fragment,
    });
    pause(&mut desk, R1);
    let view = desk.mind.request(R1).unwrap();
    let in_flight: u32 = view.shares.iter().map(|share| share.in_flight).sum();
    assert_eq!((in_flight, view.chunks_safe), (0, 1));
    let waits = view.paused.unwrap();
    assert_eq!((waits.by.as_str(), waits.since), (BY, desk.now));
    assert_eq!(desk.mind.state_of(R1), Some("paused"));
    assert_eq!(desk.mind.tally().requests["paused"], 1);
    let sent = desk.sent.len();
    desk.measure(10, Duration::from_secs(30));
    assert_eq!(desk.sent.len(), sent);

    // Once more changes nothing, and it survives a restart.
    let since = desk.now;
    pause(&mut desk, R1);
    assert_ne!(desk.mind.request(R1).unwrap().paused.unwrap().since, since);
    desk.mind = Mind::restore(&desk.mind.snapshot()).unwrap();
    desk.give(Input::DriverStarted);
    desk.measure(10, Duration::from_secs(5));
    assert_eq!(desk.sent.len(), sent);
    let story = desk.mind.story(R1).unwrap().join(" ");
    assert!(story.contains("paused by ada"), "{story}");
    assert!(story.contains("if it went on now"), "{story}");

    resume(&mut desk, R1);
    assert_eq!(desk.mind.state_of(R1), Some("moving"));
    let reason = said(&desk, R1, &Happening::Resumed);
    assert!(matches!(&reason[..], [Reason::Resumed { by, .. }] if by == "bob"));
    for number in 1..=3 {
        // It is asked again what it holds, since the driver started.
        let depot = DepotId::new(number);
        let held = match depot == desk.sent[0].1 {
            true => vec![(chunk, fragment)],
            false => Vec::new(),
        };
        desk.give(Input::DepotInventory {
            depot,
            request,
            held,
        });
    }
    assert!(desk.sent.len() > sent);
    assert_eq!(desk.mind.request(R1).unwrap().chunks_safe, 1);
}

#[test]
fn others_get_what_it_leaves() {
    let mut desk = Desk::new(Settings::default());
    // Thirty megabytes a second for all of a hundred seconds.
    desk.submit(R1, 2400, 100, &[1, 2, 3]);
    desk.submit(R2, 2400, 100, &[1, 2, 3]);
    desk.solve();
    assert_eq!(said(&desk, R2, &Happening::Refused).len(), 1);
    pause(&mut desk, R1);
    let third = RequestId::new(3);
    desk.submit(third, 2400, 100, &[1, 2, 3]);
    assert!(said(&desk, third, &Happening::Refused).is_empty());
    assert_eq!(said(&desk, third, &Happening::Admitted).len(), 1);
}

#[test]
fn a_deadline_that_can_be_kept_no_more_is_told_before_it_is_missed() {
    let mut desk = Desk::new(Settings::default());
    desk.submit(R1, 600, 120, &[1, 2, 3]);
    pause(&mut desk, R1);
    desk.measure(10, Duration::from_secs(60));
    assert!(!is_at_risk(&desk, R1), "{:?}", desk.said);
    assert!(desk.mind.request(R1).unwrap().finish.is_some());
    desk.measure(10, Duration::from_secs(50));
    assert!(is_at_risk(&desk, R1));
    assert!(said(&desk, R1, &Happening::Missed).is_empty());
    desk.measure(10, Duration::from_secs(20));
    let missed = said(&desk, R1, &Happening::Missed);
    assert!(
        matches!(&missed[..], [Reason::PausedLate { by, .. }] if by == BY),
        "{missed:?}"
    );
    let story = desk.mind.story(R1).unwrap().join(" ");
    assert!(story.contains("the pause cost"), "{story}");
}

#[test]
fn what_is_over_or_unknown_can_not_wait_and_what_waits_can_be_cancelled() {
    let mut desk = Desk::new(Settings::default());
    pause(&mut desk, R1);
    resume(&mut desk, R1);
    desk.submit(R1, 300, 600, &[1, 2, 3]);
    resume(&mut desk, R1);
    assert!(said(&desk, R1, &Happening::Resumed).is_empty());
    pause(&mut desk, R1);
    desk.give(Input::RequestCancelled { request: R1 });
    assert_eq!(desk.mind.state_of(R1), Some("cancelled"));
    assert!(desk.mind.request(R1).unwrap().paused.is_none());
    pause(&mut desk, R1);
    assert_eq!(said(&desk, R1, &Happening::Paused).len(), 1);
}

#[test]
fn one_whose_answer_waits_for_a_plan_waits_once_it_is_taken() {
    let mut desk = Desk::new(Settings::default());
    // Two of the depots would do for the first, and the second has one only.
    desk.submit(R1, 1950, 100, &[1, 2, 3]);
    desk.submit(R2, 600, 90, &[3]);
    assert!(desk.answer(R2).is_none());
    pause(&mut desk, R2);
    assert_eq!(said(&desk, R2, &Happening::Paused).len(), 1);
    desk.solve();
    assert_eq!(said(&desk, R2, &Happening::Admitted).len(), 1);
    desk.measure(10, Duration::from_secs(5));
    assert!(!desk.sent.iter().any(|(request, _)| *request == R2));
    assert_eq!(desk.mind.state_of(R2), Some("paused"));
    resume(&mut desk, R2);
    assert_eq!(desk.mind.state_of(R2), Some("moving"));
}
