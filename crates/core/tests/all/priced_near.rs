//! A stage-in with a budget reads data from a depot near the centre.
#![allow(
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    reason = "a test may stop at once"
)]

use std::time::Duration;

use posthaste_core::contract::*;
use posthaste_types::{Bytes, DepotId, SourceId};

use crate::support::arrivals::*;

/// The depot near the centre, and as which it is read.
const CACHE: DepotId = DepotId::new(1);
const BACK: SourceId = SourceId::new(3);
/// A dollar for a gigabyte: a chunk of 1 MiB costs so many millionths.
const CHUNK: u64 = 1049;

/// A stage-in of 100 chunks, wanted in time for a deadline after 300 s, with a depot near the centre. A gives a chunk a second, B
/// costs a dollar a gigabyte.
fn desk(budget: u64, sources: Vec<SourceId>) -> Desk {
    let mut desk = Desk::new([1, 20]);
    let free = Bytes::mebi(500);
    desk.give(vec![
        Input::DepotAdded {
            depot: CACHE,
            name: "cache".into(),
            capacity: free,
            rate_max: None,
        },
        Input::DepotUp {
            depot: CACHE,
            free,
            rate_max: None,
        },
        Input::SourceFound {
            source: BACK,
            name: "cache".into(),
            rate_max: None,
        },
    ]);
    for _ in 0..10 {
        desk.now = desk.now + Duration::from_secs(1);
        desk.give(vec![Input::Throughput {
            depot: CACHE,
            bytes: Bytes::mebi(40),
            window: Duration::from_secs(1),
            saturated: true,
        }]);
    }
    let near = vec![NearDepot {
        depot: CACHE,
        source: BACK,
    }];
    let prices = vec![SourcePrice {
        source: B,
        get_micro_usd: 0,
        egress_micro_usd: 1_000_000,
    }];
    let spec = ArrivalSpec {
        sources,
        ..spec(300, Some(295))
    };
    let news = [
        StageInNews::Costs {
            budget: Some(budget),
            prices,
        },
        StageInNews::MayWait { near },
    ];
    let [costs, may_wait] = news.map(|news| Input::StageInTold { request: R1, news });
    let asked = Input::ArrivalAsked { request: R1, spec };
    desk.give(vec![costs, asked, may_wait]);
    desk
}

/// Moves the data for the depot near the centre there, a chunk a second, until then.
fn prestage(desk: &mut Desk, until_s: u64) {
    let mut stored = 0;
    while desk.now < at(until_s) {
        desk.now = desk.now + Duration::from_secs(1);
        let prestages = desk.commands.iter().filter_map(|command| match command {
            Command::Prestage { source, chunk, .. } => Some((*source, *chunk)),
            _ => None,
        });
        let next = prestages.skip(stored).take(1).map(|(source, chunk)| {
            let depot = CACHE;
            let news = StageInNews::Stored {
                source,
                chunk,
                depot,
            };
            Input::StageInTold { request: R1, news }
        });
        let next: Vec<Input> = next.collect();
        stored += next.len();
        desk.give(next);
    }
    assert!(stored > 50, "{stored} went near the centre");
}

fn set_egress(desk: &mut Desk, egress_micro_usd: u64) {
    desk.give(vec![Input::DepotPriced {
        depot: CACHE,
        prices: DepotPrices {
            egress_micro_usd,
            ..DepotPrices::default()
        },
    }]);
}

fn begun(desk: &Desk, from: SourceId) -> u64 {
    let begun = desk
        .commands
        .iter()
        .filter(|command| matches!(command, Command::Fetch { source, .. } if *source == from));
    begun.count() as u64
}

/// Every second nothing comes from near the centre.
fn lose_near(desk: &mut Desk, until_s: u64, given: [usize; 2]) {
    while desk.now < at(until_s) {
        while desk.asked.iter().any(|(_, source, _)| *source == BACK) {
            fault(desk, BACK, Fault::Unreachable);
        }
        desk.pass(1, given);
    }
}

fn reasons_of_risk(desk: &Desk) -> Vec<String> {
    let happened = desk.happened.iter();
    let at_risk =
        happened.filter(|(_, happening, _)| matches!(happening, Happening::AtRisk { .. }));
    at_risk.map(|(.., reason)| reason.to_string()).collect()
}

#[test]
fn what_lies_at_a_depot_that_is_lost_comes_from_sources_as_far_as_the_budget_pays() {
    let mut desk = desk(1_000_000, vec![A, B]);
    prestage(&mut desk, 200);
    desk.give(vec![Input::DepotDown {
        depot: CACHE,
        fault: Fault::Unreachable,
    }]);
    lose_near(&mut desk, 300, [0, 20]);
    let view = desk.view(R1);
    assert_eq!(view.chunks_here, 100, "{view:?}");
    assert!(view.spent_micro_usd >= 50 * CHUNK);
    assert!(view.spent_micro_usd <= 1_000_000);
}

#[test]
fn that_the_budget_does_not_pay_what_lies_at_a_lost_depot_is_said_in_time() {
    // Only what is paid for gives it: B for what the budget has, or nobody.
    let mut desk = desk(20 * CHUNK, vec![A, B]);
    prestage(&mut desk, 200);
    desk.give(vec![Input::DepotDown {
        depot: CACHE,
        fault: Fault::Unreachable,
    }]);
    lose_near(&mut desk, 270, [0, 20]);
    let view = desk.view(R1);
    assert!(view.at_risk && view.finish.is_none(), "{view:?}");
    assert!(view.spent_micro_usd <= 20 * CHUNK);
}

#[test]
fn a_depot_that_got_a_price_gives_what_the_budget_pays_and_danger_is_said() {
    let mut desk = desk(20 * CHUNK, vec![A]);
    prestage(&mut desk, 200);
    assert_eq!(begun(&desk, BACK), 0);
    set_egress(&mut desk, 2_000_000);
    desk.pass(15, [1, 0]);
    // What the budget does not pay there has to come from A, and should have begun to long ago.
    assert!(desk.view(R1).at_risk, "{:?}", desk.view(R1));
    assert!(!reasons_of_risk(&desk).is_empty());
    assert!(begun(&desk, A) > 10);
    desk.pass(100, [1, 0]);
    assert!(begun(&desk, BACK) <= 10, "{}", begun(&desk, BACK));
    assert!(desk.view(R1).spent_micro_usd <= 20 * CHUNK);
}

#[test]
fn a_depot_that_got_a_price_is_not_read_twice_beyond_the_budget() {
    let mut desk = desk(0, vec![A]);
    prestage(&mut desk, 200);
    set_egress(&mut desk, 1_000_000);
    // The depot would have sooner what A is asked for.
    while desk.now < at(320) {
        desk.pass(1, [1, 0]);
        assert_eq!(desk.view(R1).spent_micro_usd, 0);
    }
    assert!(begun(&desk, A) > 0);
}
