//! Sources that cost something: what a stage-in spends, and what its budget lets it.
#![allow(
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    reason = "a test may stop at once"
)]

use std::time::Duration;

use posthaste_core::contract::*;
use posthaste_types::{Bytes, RequestId, SourceId};
use proptest::prelude::*;

use crate::support::arrivals::*;

/// A dollar for a gigabyte: a chunk of 1 MiB costs so many millionths.
const CHUNK: u64 = 1049;

fn price(source: SourceId, get_micro_usd: u64, egress_micro_usd: u64) -> SourcePrice {
    SourcePrice {
        source,
        get_micro_usd,
        egress_micro_usd,
    }
}

fn ask(desk: &mut Desk, budget: Option<u64>, prices: Vec<SourcePrice>, spec: ArrivalSpec) {
    let news = StageInNews::Costs { budget, prices };
    let request = R1;
    desk.give(vec![
        Input::StageInTold { request, news },
        Input::ArrivalAsked { request, spec },
    ]);
}

/// A gives for nothing, B for a dollar a gigabyte.
fn ask_with(desk: &mut Desk, budget: Option<u64>, deadline_s: u64) {
    ask(
        desk,
        budget,
        vec![price(B, 0, 1_000_000)],
        spec(deadline_s, None),
    );
}

fn begun(desk: &Desk, from: SourceId) -> u64 {
    let fetches = desk.commands.iter();
    let begun = fetches
        .filter(|command| matches!(command, Command::Fetch { source, .. } if *source == from));
    begun.count() as u64
}

fn refused(desk: &Desk) -> (u64, bool) {
    let reason = desk.happened.iter().find_map(|(_, happening, reason)| {
        matches!(happening, Happening::Refused).then_some(reason)
    });
    match reason {
        Some(Reason::OverBudget { needed, finish, .. }) => (*needed, finish.is_some()),
        other => panic!("not refused for its budget: {other:?}"),
    }
}

#[test]
fn with_time_to_spare_nothing_is_paid() {
    let mut desk = Desk::new([10, 100]);
    ask_with(&mut desk, Some(1_000_000), 120);
    assert_eq!(desk.view(R1).cost_micro_usd, 0);
    desk.pass(20, [10, 100]);
    assert_eq!((begun(&desk, A), begun(&desk, B)), (100, 0));
    assert!(desk.is_settled(R1, true));
    assert_eq!(desk.view(R1).spent_micro_usd, 0);
}

#[test]
fn a_dear_source_gives_only_what_the_deadline_needs() {
    let mut desk = Desk::new([2, 100]);
    ask_with(&mut desk, Some(1_000_000), 40);
    let told = desk.view(R1).cost_micro_usd;
    assert!((1..=100 * CHUNK).contains(&told), "{told}");
    desk.pass(39, [2, 100]);
    assert!(desk.is_settled(R1, true), "in time");
    let (free, dear) = (begun(&desk, A), begun(&desk, B));
    assert!(free >= 40 && (1..60).contains(&dear), "{free} and {dear}");
    let view = desk.view(R1);
    assert_eq!(view.spent_micro_usd, dear * CHUNK);
    assert_eq!(view.cost_micro_usd, view.spent_micro_usd);
    assert!(view.spent_micro_usd <= told, "{told} was told");
}

#[test]
fn without_a_budget_all_give_what_they_can_and_the_cost_is_counted() {
    let mut desk = Desk::new([10, 100]);
    ask_with(&mut desk, None, 120);
    let told = desk.view(R1).cost_micro_usd;
    assert!((50 * CHUNK..=100 * CHUNK).contains(&told), "{told}");
    desk.pass(5, [10, 100]);
    let dear = begun(&desk, B);
    assert!(dear > 50, "{dear}");
    assert_eq!(desk.view(R1).spent_micro_usd, dear * CHUNK);
}

#[test]
fn requests_are_counted_evenly_over_the_chunks() {
    let mut desk = Desk::new([10, 10]);
    let files = ArrivalSpec {
        files: 901,
        ..spec(100, None)
    };
    let prices = [A, B].map(|source| price(source, 400_000, 0));
    ask(&mut desk, None, prices.to_vec(), files);
    // Of each source the last chunk may be cut where what it gives by then is.
    let told = desk.view(R1).cost_micro_usd;
    assert!((100 * 4000..=102 * 4000).contains(&told), "{told}");
}

#[test]
fn a_budget_that_does_not_suffice_is_refused_with_one_that_does() {
    for (budget, prices) in [
        (100, vec![price(B, 0, 1_000_000)]),
        (100, vec![price(A, 0, 500_000), price(B, 0, 1_000_000)]),
    ] {
        let deadline_s = 20;
        let mut desk = Desk::new([2, 20]);
        let asked = spec(deadline_s, None);
        ask(&mut desk, Some(budget), prices.clone(), asked.clone());
        let (needed, is_offered) = refused(&desk);
        assert!(needed > budget);
        assert!(is_offered, "{needed}");
        let decisions = desk.mind.arrival_tale(R1).unwrap().decisions;
        let offers = |reason: &Reason| {
            matches!(reason, Reason::Offered { would_buy } if would_buy.iter().any(
                |offer| matches!(offer, WouldBuy::Budget { micro_usd, .. } if *micro_usd == needed)))
        };
        let found = decisions.iter().any(|decision| offers(&decision.reason));
        assert!(found);
        let mut desk = Desk::new([2, 20]);
        ask(&mut desk, Some(needed), prices.clone(), asked);
        assert_eq!(desk.said(R1)[0], "admitted");
        desk.pass(19, [2, 20]);
        assert!(desk.is_settled(R1, true), "{:?}", desk.view(R1));
        assert!(desk.view(R1).spent_micro_usd <= needed);
    }
}

#[test]
fn where_no_money_is_in_time_the_refusal_says_so() {
    let prices = vec![price(A, 0, 500_000), price(B, 0, 1_000_000)];
    let mut desk = Desk::new([2, 20]);
    ask(&mut desk, Some(100), prices, spec(2, None));
    let reason = desk.happened.iter().find_map(|(_, happening, reason)| {
        matches!(happening, Happening::Refused).then_some(reason)
    });
    let least = 100 * CHUNK.div_ceil(2);
    match reason.unwrap() {
        Reason::NoMoneySuffices { needed, finish, .. } => {
            assert_eq!(*needed, least);
            assert!(finish.is_some_and(|finish| finish > at(2)));
        }
        other => panic!("{other:?}"),
    }
    let said = reason.unwrap().to_string();
    assert!(
        said.contains("at least, and for no money is it here by"),
        "{said}"
    );
    let decisions = desk.mind.arrival_tale(R1).unwrap().decisions;
    let offered = |reason: &Reason| matches!(reason, Reason::Offered { .. });
    assert!(!decisions.iter().any(|decision| offered(&decision.reason)));
}

#[test]
fn among_many_no_least_budget_is_sought_but_one_that_does_is_named() {
    let mut desk = Desk::new([2, 20]);
    for other in 100..170 {
        let small = ArrivalSpec {
            bytes: Bytes::mebi(1),
            ..spec(10_000, None)
        };
        desk.ask(RequestId::new(other), small);
    }
    let prices = vec![price(B, 0, 1_000_000)];
    ask(&mut desk, Some(100), prices.clone(), spec(20, None));
    let (needed, is_offered) = refused(&desk);
    assert!(is_offered);
    assert_eq!(needed, 100 * CHUNK, "all the money");
    let request = R2;
    let news = StageInNews::Costs {
        budget: Some(needed),
        prices,
    };
    let spec = spec(20, None);
    desk.give(vec![
        Input::StageInTold { request, news },
        Input::ArrivalAsked { request, spec },
    ]);
    assert_eq!(desk.said(R2)[0], "admitted");
}

#[test]
fn what_is_late_in_any_case_is_taken_with_best_effort_where_the_budget_pays_it() {
    let mut desk = Desk::new([2, 20]);
    let late = ArrivalSpec {
        best_effort: true,
        ..spec(10, None)
    };
    let budget = 20 * CHUNK;
    ask(
        &mut desk,
        Some(budget),
        vec![price(B, 0, 1_000_000)],
        late.clone(),
    );
    assert_eq!(desk.said(R1)[0], "admitted");
    desk.pass(50, [2, 20]);
    assert!(desk.is_settled(R1, true));
    assert_eq!(begun(&desk, B), 20, "as soon as the budget allows");
    let mut desk = Desk::new([2, 20]);
    let prices = [A, B].map(|source| price(source, 0, 1_000_000));
    ask(&mut desk, Some(budget), prices.to_vec(), late);
    assert_eq!(refused(&desk).0, 100 * CHUNK);
}

#[test]
fn once_the_rest_can_not_be_paid_nothing_more_is_spent_and_that_is_said() {
    let mut desk = Desk::new([10, 10]);
    let only = ArrivalSpec {
        sources: vec![B],
        ..spec(1000, None)
    };
    ask(
        &mut desk,
        Some(101 * CHUNK),
        vec![price(B, 0, 1_000_000)],
        only,
    );
    desk.pass(2, [0, 10]);
    for _ in 0..2 {
        fault(&mut desk, B, Fault::Other);
        desk.pass(3, [0, 10]);
    }
    let before = begun(&desk, B);
    desk.pass(300, [0, 10]);
    assert_eq!(begun(&desk, B), before);
    let view = desk.view(R1);
    assert!(view.at_risk && view.finish.is_none(), "{view:?}");
    assert!(view.spent_micro_usd <= 101 * CHUNK);
    let told = desk.happened.iter().find_map(|(_, happening, reason)| {
        matches!(happening, Happening::AtRisk { .. }).then(|| reason.to_string())
    });
    assert!(told.unwrap().contains("does not pay what is missing"));
    let story = posthaste_core::story::tell_arrival(&desk.mind.arrival_tale(R1).unwrap());
    let end = story.last().unwrap();
    assert!(
        end.starts_with("It spent $") && end.contains("of its budget of $"),
        "{end}"
    );
}

#[test]
fn what_a_slow_source_is_late_with_is_read_twice_only_from_money_nothing_else_needs() {
    for (budget, is_twice) in [(1_000_000, true), (38 * CHUNK + 100, false)] {
        let mut desk = Desk::new([1, 20]);
        let small = ArrivalSpec {
            bytes: Bytes::mebi(40),
            ..spec(12, None)
        };
        let held = |mebi, sources: Vec<SourceId>| Holding {
            bytes: Bytes::mebi(mebi),
            sources,
        };
        let news = StageInNews::Costs {
            budget: Some(budget),
            prices: vec![price(B, 0, 1_000_000)],
        };
        let request = R1;
        desk.give(vec![
            Input::StageInTold { request, news },
            Input::ArrivalGathered {
                request,
                spec: ArrivalSpec {
                    best_effort: true,
                    ..small
                },
                holdings: vec![held(38, vec![B]), held(2, vec![A, B])],
            },
        ]);
        // What A is asked for never comes.
        desk.pass(10, [0, 20]);
        let twice = desk.view(R1).duplicates > 0;
        assert_eq!(twice, is_twice, "{budget}: {:?}", desk.view(R1));
        assert!(desk.view(R1).spent_micro_usd <= budget);
    }
}

#[test]
fn a_dear_source_that_was_lost_is_tried_again_while_a_cheaper_one_is_waited_for() {
    let mut desk = Desk::new([1, 100]);
    ask_with(&mut desk, Some(1_000_000), 60);
    desk.pass(3, [1, 2]);
    let fail = |desk: &mut Desk, from: SourceId| {
        while desk.asked.iter().any(|(_, source, _)| *source == from) {
            fault(desk, from, Fault::Unreachable);
        }
    };
    // B is lost for a while, and A gives nothing any more.
    for second in 0..70 {
        fail(&mut desk, A);
        if second < 10 {
            fail(&mut desk, B);
        }
        desk.pass(1, [0, 20]);
    }
    assert!(desk.is_settled(R1, true), "{:?}", desk.view(R1));
}

/// Generates events of a stage-in: time passes, or a request to a source fails.
fn blows() -> impl Strategy<Value = Vec<(bool, usize, usize, bool)>> {
    proptest::collection::vec(
        (any::<bool>(), 0usize..12, 0usize..12, any::<bool>()),
        1..60,
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Whatever sources cost and whatever fails, no more is spent than the budget says, and what is told is what was spent.
    #[test]
    fn no_more_is_spent_than_the_budget(
        prices in (0u64..3, 0u64..3, 0u64..1_000_000),
        budget in proptest::option::of(0u64..250 * CHUNK),
        deadline_s in 3u64..200,
        best_effort in any::<bool>(),
        apart in 0u64..100,
        blows in blows(),
    ) {
        let (a, b, gets) = prices;
        let prices = vec![price(A, gets, a * 500_000), price(B, 0, b * 1_000_000)];
        let mut desk = Desk::new([3, 20]);
        let spec = ArrivalSpec { best_effort, files: 1, ..spec(deadline_s, None) };
        let held = |mebi, sources: Vec<SourceId>| Holding { bytes: Bytes::mebi(mebi), sources };
        let holdings = vec![held(apart / 2, vec![A]), held(apart - apart / 2, vec![B]), held(100 - apart, vec![A, B])];
        let news = StageInNews::Costs { budget, prices: prices.clone() };
        let request = R1;
        desk.give(vec![
            Input::StageInTold { request, news },
            Input::ArrivalGathered { request, spec, holdings },
        ]);
        let cost = |source: SourceId| {
            let price = prices.iter().find(|price| price.source == source).unwrap();
            price.reading(Bytes::mebi(1), (100, 100)).micro_usd()
        };
        for (fails, given_a, given_b, is_b) in blows {
            let from = if is_b { B } else { A };
            let is_asked = desk.asked.iter().any(|(_, source, _)| *source == from);
            if fails && is_asked {
                fault(&mut desk, from, Fault::Other);
            } else {
                desk.pass(1, [given_a, given_b]);
            }
            let spent = begun(&desk, A) * cost(A) + begun(&desk, B) * cost(B);
            let view = desk.view(R1);
            prop_assert_eq!(view.spent_micro_usd, spent);
            if let Some(budget) = budget {
                prop_assert!(spent <= budget, "{} of {}", spent, budget);
                prop_assert!(view.cost_micro_usd <= budget);
            }
        }
    }

    /// With a budget it is as if there were none where nothing costs anything.
    #[test]
    fn where_nothing_costs_anything_a_budget_changes_nothing(
        deadline_s in 3u64..200,
        blows in blows(),
    ) {
        let mut desks = [Desk::new([3, 20]), Desk::new([3, 20])];
        ask(&mut desks[0], Some(0), Vec::new(), spec(deadline_s, None));
        desks[1].ask(R1, spec(deadline_s, None));
        for (fails, given_a, given_b, is_b) in blows {
            for desk in &mut desks {
                let from = if is_b { B } else { A };
                if fails && desk.asked.iter().any(|(_, source, _)| *source == from) {
                    fault(desk, from, Fault::Other);
                } else {
                    desk.pass(1, [given_a, given_b]);
                }
            }
            let [with, without] = &desks;
            prop_assert_eq!(&with.commands, &without.commands);
        }
    }
}

#[test]
fn what_it_may_cost_is_kept_over_a_restart() {
    let mut desk = Desk::new([2, 100]);
    ask_with(&mut desk, Some(1_000_000), 40);
    desk.pass(3, [2, 5]);
    let spent = desk.view(R1).spent_micro_usd;
    assert!(spent > 0);
    desk.mind = posthaste_core::Mind::restore(&desk.mind.snapshot()).unwrap();
    desk.now = desk.now + Duration::from_secs(1);
    let view = desk.view(R1);
    assert_eq!(
        (view.spent_micro_usd, view.budget_micro_usd),
        (spent, Some(1_000_000))
    );
    assert_eq!(view.request, RequestId::new(1));
}
