//! Which requests press most.

use std::time::Duration;

use crate::support::desk::Desk;
use posthaste_core::{Settings, contract::*};
use posthaste_types::{Bytes, DepotId, RequestId, SourceId};

#[test]
fn the_least_slack_comes_first_and_what_is_not_in_sight_before_all() {
    let mut desk = Desk::new(Settings::default());
    let number = RequestId::new;
    // At 10 MiB/s: 900 s, 490 s and 1990 s of slack; nobody knows what the archive gives.
    desk.submit(number(1), 1000, 1000, &[1]);
    desk.submit(number(2), 100, 500, &[2]);
    desk.submit(number(3), 100, 2000, &[3]);
    desk.give(Input::SourceFound {
        source: SourceId::new(1),
        name: "archive".to_owned(),
        rate_max: None,
    });
    let spec = ArrivalSpec {
        bytes: Bytes::mebi(4),
        files: 1,
        chunk_size: Bytes::mebi(4),
        deadline: desk.now + Duration::from_secs(700),
        not_before: None,
        sources: vec![SourceId::new(1)],
        priority: Priority::default(),
        rate_max: None,
        best_effort: false,
    };
    let request = number(4);
    desk.give(Input::ArrivalAsked { request, spec });
    desk.wait(Duration::from_secs(2));
    assert_eq!(desk.mind.pressing(), [2, 4, 1, 3].map(number));
    desk.give(Input::DepotDown {
        depot: DepotId::new(3),
        fault: Fault::Unreachable,
    });
    desk.wait(Duration::from_secs(3));
    assert_eq!(desk.mind.pressing()[0], number(3));
    desk.give(Input::RequestCancelled { request: number(3) });
    assert_eq!(desk.mind.pressing(), [2, 4, 1].map(number));
}
