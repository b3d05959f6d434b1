//! Which ways data of a request goes, how far each is, and when it will be through.

use std::time::Duration;

use crate::support::desk::Desk;
use posthaste_core::{Settings, contract::*};
use posthaste_types::{Bytes, DepotId, RequestId, SourceId, Timestamp};

const R1: RequestId = RequestId::new(1);
const R2: RequestId = RequestId::new(2);

fn rows(desk: &Desk, request: RequestId) -> Vec<TransferView> {
    desk.mind.transfers(request).unwrap()
}

fn last(desk: &Desk, request: RequestId) -> Forecast {
    let rows = rows(desk, request);
    let ends = rows.iter().filter_map(|row| row.finish);
    ends.max_by_key(|finish| finish.p90).unwrap()
}

fn words(row: &TransferView) -> (String, String, &'static str, Option<String>) {
    let why = row.state.why().map(ToString::to_string);
    let (from, to) = (row.from.to_string(), row.to.to_string());
    (from, to, row.state.name(), why)
}

#[test]
fn each_depot_that_is_fed_is_a_row_and_the_last_of_them_ends_the_request() {
    let mut desk = Desk::new(Settings::default());
    desk.submit(R1, 400, 25, &[1, 2, 3]);
    let rows = rows(&desk, R1);
    assert!(rows.len() >= 2, "{rows:?}");
    let left: Bytes = rows.iter().map(|row| row.left).sum();
    let whole = Bytes::mebi(400);
    // What lies there in pieces is rounded up to one.
    assert!(left >= whole && left <= whole + Bytes::mebi(12), "{left}");
    for row in &rows {
        assert_eq!(row.kind, TransferKind::Depot);
        assert_eq!(row.from, TransferEnd::Centre);
        assert!(row.in_flight > 0, "{row:?}");
        assert_eq!(row.state, TransferState::Running);
        let finish = row.finish.unwrap();
        assert!(desk.now < finish.p10 && finish.p10 <= finish.p50 && finish.p50 <= finish.p90);
    }
    // The whole look said so of the request.
    desk.wait(Duration::from_secs(2));
    let finish = desk.mind.request(R1).unwrap().finish.unwrap();
    let apart = last(&desk, R1)
        .p90
        .since(finish.p90)
        .max(finish.p90.since(last(&desk, R1).p90));
    assert!(apart < Duration::from_secs(1), "{apart:?}");
}

#[test]
fn what_waits_behind_more_urgent_ones_is_forecast_after_them() {
    let mut desk = Desk::new(Settings::default());
    desk.submit(R1, 1000, 400, &[1]);
    desk.submit(R2, 100, 4000, &[1]);
    desk.wait(Duration::from_secs(2));
    let (first, second) = (last(&desk, R1), last(&desk, R2));
    assert!(second.p50 > first.p50, "{second:?} is not after {first:?}");
    let finish = desk.mind.request(R2).unwrap().finish.unwrap();
    assert!(second.p90.since(finish.p90) < Duration::from_secs(1));
    let row = rows(&desk, R2).remove(0);
    let (_, to, state, why) = words(&row);
    assert_eq!((to.as_str(), state), ("depot-1", "waiting"));
    assert_eq!(why.unwrap(), "more urgent requests take what there is");
}

#[test]
fn what_stands_still_says_why() {
    let mut desk = Desk::new(Settings::default());
    desk.submit(R1, 1000, 400, &[1]);
    desk.submit(R2, 1000, 4000, &[2]);
    let depot = DepotId::new(2);
    let fault = Fault::Unreachable;
    desk.give(Input::DepotDown { depot, fault });
    let row = rows(&desk, R2).remove(0);
    let (_, to, state, why) = words(&row);
    assert_eq!((to.as_str(), state), ("depot-2", "parked"));
    assert_eq!(why.unwrap(), "it is away");
    assert!(desk.mind.transfers(RequestId::new(7)).is_none());
}

fn arrive(desk: &mut Desk, not_before: Option<Timestamp>) {
    for (number, name) in [(1, "archive"), (2, "mirror")] {
        desk.give(Input::SourceFound {
            source: SourceId::new(number),
            name: name.to_owned(),
            rate_max: None,
        });
    }
    let spec = ArrivalSpec {
        bytes: Bytes::mebi(64),
        files: 1,
        chunk_size: Bytes::mebi(4),
        deadline: desk.now + Duration::from_secs(3600),
        not_before,
        sources: [1, 2].map(SourceId::new).to_vec(),
        priority: Priority::default(),
        rate_max: None,
        best_effort: false,
    };
    desk.give(Input::ArrivalAsked { request: R1, spec });
}

#[test]
fn each_source_of_a_stage_in_is_a_row() {
    let mut desk = Desk::new(Settings::default());
    arrive(&mut desk, None);
    let rows = rows(&desk, R1);
    let names = rows.iter().map(words);
    let names: Vec<_> = names.map(|(from, to, ..)| (from, to)).collect();
    let end = |name: &str| (name.to_owned(), "centre".to_owned());
    assert_eq!(names, [end("archive"), end("mirror")]);
    let left: Bytes = rows.iter().map(|row| row.left).sum();
    assert_eq!(left, Bytes::mebi(64));
    assert!(rows.iter().all(|row| row.finish.is_some()), "{rows:?}");
}

#[test]
fn what_is_not_welcome_yet_says_when_it_begins() {
    let mut desk = Desk::new(Settings::default());
    let at = desk.now + Duration::from_secs(1800);
    arrive(&mut desk, Some(at));
    let row = rows(&desk, R1).remove(0);
    let (_, _, state, why) = words(&row);
    assert_eq!(state, "waiting");
    assert!(why.unwrap().starts_with("it is not welcome yet"));
    assert!(row.finish.unwrap().p50 >= at, "{row:?}");
}

#[test]
fn a_paused_request_stands_still_with_what_came_so_far() {
    let mut desk = Desk::new(Settings::default());
    desk.submit(R1, 1000, 4000, &[1]);
    let pieces = std::mem::take(&mut desk.pieces);
    assert!(!pieces.is_empty());
    let stored = Bytes::mebi(4).times(pieces.len() as u64);
    for (chunk, fragment) in pieces {
        desk.give(Input::FragmentStored {
            request: R1,
            depot: DepotId::new(1),
            chunk,
            fragment,
        });
    }
    let by = "alice".to_owned();
    desk.give(Input::Paused { request: R1, by });
    let row = rows(&desk, R1).remove(0);
    let (_, _, state, why) = words(&row);
    assert_eq!(state, "parked");
    assert_eq!(why.unwrap(), "alice paused the request");
    assert_eq!((row.done, row.done + row.left), (stored, Bytes::mebi(1000)));
}
