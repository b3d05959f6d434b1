//! Schedules: invalid ones are found, and the greedy planner makes valid ones.

#[path = "population/problems.rs"]
mod problems;

use posthaste_plan::horizon::{
    Demand, Flaw, Flow, Grid, Link, Money, Node, Price, Problem, Schedule, cut, greedy,
};
use posthaste_types::{ByteRate, Bytes, Code};
use problems::{Dice, problem};
use std::time::Duration;

const CENTRE: usize = 0;
const USER: usize = 1;

fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

fn usd(price: u64) -> Price {
    Price::new(Money::from_micro_usd(price), Bytes::new(1))
}

/// Returns the centre, a user and depots after them: each link's rate a second, in slots of a
/// second.
fn star(direct: u64, depots: &[(u64, u64)], slots: usize) -> Problem {
    let grid = Grid::even(secs(1), slots);
    let link = |from, to, rate| Link {
        from,
        to,
        capacity: grid.volumes(ByteRate::new(rate)),
        price: Price::FREE,
    };
    let mut links = vec![link(CENTRE, USER, direct)];
    let mut nodes = vec![Node::default(), Node::default()];
    for ((place, domain), &(up, down)) in (2..).zip(1..).zip(depots) {
        links.push(link(CENTRE, place, up));
        links.push(link(place, USER, down));
        nodes.push(Node {
            domains: vec![domain],
            ..Node::default()
        });
    }
    Problem {
        grid,
        nodes,
        links,
        ..Problem::default()
    }
}

fn stage_out(bytes: u64, code: &str, by: u64, depots: usize) -> Demand {
    Demand {
        source: CENTRE,
        sink: None,
        bytes: Bytes::new(bytes),
        code: code.parse().unwrap_or(Code::NONE),
        held: Vec::new(),
        release: Duration::ZERO,
        offload_by: Some(secs(by)),
        deliver_by: None,
        not_before: None,
        via: (2..depots + 2).collect(),
        weight: 1,
        budget: None,
        rate_max: None,
        lent: Vec::new(),
        pinned: Vec::new(),
    }
}

fn copy(bytes: u64, by: u64, depots: usize) -> Demand {
    Demand {
        sink: Some(USER),
        code: Code::NONE,
        offload_by: None,
        deliver_by: Some(secs(by)),
        ..stage_out(bytes, "1+0", by, depots)
    }
}

fn links_used(schedule: &Schedule) -> Vec<usize> {
    let mut links: Vec<usize> = schedule.flows.iter().map(|flow| flow.link).collect();
    links.sort_unstable();
    links.dedup();
    links
}

fn is_kept(schedule: &Schedule) -> bool {
    schedule
        .shortfalls
        .iter()
        .all(|shortfall| shortfall.is_none())
}

#[test]
fn greedy_schedules_break_no_rule() {
    let mut kept = 0;
    for seed in 0..2000 {
        let problem = problem(seed);
        let schedule = greedy(&problem);
        assert_eq!(schedule.check(&problem), Ok(()), "seed {seed}");
        kept += schedule
            .shortfalls
            .iter()
            .filter(|shortfall| shortfall.is_none())
            .count();
    }
    assert!(kept > 2000, "hardly a deadline is kept: {kept}");
}

#[test]
fn wishes_of_any_kind_are_cut_to_what_the_rules_allow() {
    for seed in 0..500 {
        let problem = problem(seed);
        let mut dice = Dice::new(seed + 1);
        let wishes: Vec<Flow> = (0..200)
            .map(|_| Flow {
                demand: dice.index(7),
                slot: dice.index(9),
                link: dice.index(19),
                bytes: Bytes::new(dice.below(20_000_000)),
            })
            .collect();
        assert_eq!(
            cut(&problem, &wishes).check(&problem),
            Ok(()),
            "seed {seed}"
        );
        let schedule = greedy(&problem);
        assert_eq!(
            cut(&problem, &schedule.flows),
            schedule,
            "seed {seed}: nothing to cut"
        );
    }
}

#[test]
fn the_direct_link_is_taken_where_it_suffices_and_depots_where_not() {
    // Rates measured from the centre to the user's node: 45.7 Mbit/s, which is 368 s for 2.1 GB.
    let mut problem = star(5_712_500, &[(1_575_000, 9_000_000); 3], 700);
    problem.demands.push(copy(2_100_000_000, 380, 3));
    let schedule = greedy(&problem);
    assert!(is_kept(&schedule));
    assert_eq!(links_used(&schedule), [0]);
    problem.links[0].capacity = problem.grid.volumes(ByteRate::new(256_250));
    problem.demands[0].deliver_by = Some(secs(610));
    let schedule = greedy(&problem);
    assert!(links_used(&schedule).len() > 1);
    let missing = schedule.shortfalls[0].deliver.get();
    // All links together carry 4 981 250 a second, the depots' second hop a second later.
    assert_eq!(missing, 0, "{schedule:?}");
}

#[test]
fn as_few_depots_are_fed_as_the_deadline_needs_and_landmarks_last() {
    let mut problem = star(0, &[(100, 0); 5], 100);
    problem.nodes[2].is_landmark = true;
    problem.demands.push(stage_out(5_000, "1+1", 100, 5));
    for (by, depots) in [(100, 2), (50, 2), (40, 3), (30, 4), (20, 5)] {
        problem.demands[0].offload_by = Some(secs(by));
        let schedule = greedy(&problem);
        assert!(is_kept(&schedule), "{by} s");
        assert_eq!(links_used(&schedule).len(), depots, "{by} s");
        assert_eq!(links_used(&schedule).contains(&1), depots == 5, "{by} s");
    }
}

#[test]
fn the_cheapest_depots_that_keep_the_deadline_are_fed_within_the_budget() {
    let mut problem = star(0, &[(100, 0), (100, 0), (100, 0)], 100);
    for (link, price) in [(1, 3), (3, 1), (5, 2)] {
        problem.links[link].price = usd(price);
    }
    problem.demands.push(stage_out(10_000, "1+0", 100, 3));
    assert_eq!(greedy(&problem).cost, Money::from_micro_usd(10_000));
    problem.demands[0].offload_by = Some(secs(60));
    assert_eq!(greedy(&problem).cost, Money::from_micro_usd(6_000 + 8_000));
    problem.demands[0].budget = Some(Money::from_micro_usd(13_999));
    let schedule = greedy(&problem);
    assert!(!is_kept(&schedule));
    assert!(schedule.cost <= Money::from_micro_usd(13_999));
}

#[test]
fn a_stage_in_arrives_as_late_as_it_may_and_never_early() {
    let mut problem = star(10, &[(10, 100)], 100);
    problem.demands.push(Demand {
        not_before: Some(secs(50)),
        ..copy(300, 100, 1)
    });
    let arrivals = |schedule: &Schedule, problem: &Problem| -> Vec<usize> {
        let to_user = schedule
            .flows
            .iter()
            .filter(|flow| problem.links[flow.link].to == USER);
        to_user.map(|flow| flow.slot).collect()
    };
    let schedule = greedy(&problem);
    assert_eq!(arrivals(&schedule, &problem), (70..100).collect::<Vec<_>>());
    // Too much for the direct link alone: the depot is filled before, and emptied last.
    problem.demands[0].bytes = Bytes::new(1_000);
    let schedule = greedy(&problem);
    assert!(is_kept(&schedule));
    let slots = arrivals(&schedule, &problem);
    assert!(slots.iter().all(|slot| *slot >= 50));
}

#[test]
fn a_domain_never_holds_more_fragments_than_may_be_lost() {
    let mut problem = star(0, &[(100, 0); 4], 100);
    problem.nodes[3].domains = vec![1];
    problem.nodes[4].domains = vec![1];
    problem.demands.push(stage_out(8_000, "2+1", 100, 4));
    // Nodes 2, 3 and 4 are one domain: with node 5 that is two, and three are needed.
    let schedule = greedy(&problem);
    assert!(!is_kept(&schedule));
    problem.nodes[4].domains = vec![7];
    let schedule = greedy(&problem);
    assert!(is_kept(&schedule));
    let held = &schedule.courses(&problem).unwrap()[0].stock[100];
    assert_eq!(held[2] + held[3], 4_000);
}

#[test]
fn each_domain_of_a_depot_counts_by_itself() {
    // The first shares its site with the second and its provider with the third, which share
    // nothing.
    let mut problem = star(0, &[(100, 0); 3], 100);
    problem.nodes[2].domains = vec![1, 2];
    problem.nodes[3].domains = vec![1, 3];
    problem.nodes[4].domains = vec![4, 2];
    problem.demands.push(stage_out(4_000, "1+1", 100, 3));
    let schedule = greedy(&problem);
    assert!(is_kept(&schedule));
    let held = &schedule.courses(&problem).unwrap()[0].stock[100];
    assert_eq!(held[2..], [0, 4_000, 4_000]);
    let on_first = [flow(0, 0, 1, 100), flow(0, 0, 3, 100), flow(0, 0, 5, 100)];
    let stored = Schedule::of(&problem, on_first.to_vec()).unwrap();
    let missing = stored.shortfalls[0].offload;
    assert_eq!(missing, Bytes::new(3_900), "the first adds nothing");
    // With a provider in common as well, nothing is safe.
    problem.nodes[4].domains = vec![3, 2];
    assert!(!is_kept(&greedy(&problem)));
    let flows = (0..60).flat_map(|slot| [flow(0, slot, 3, 50), flow(0, slot, 5, 50)]);
    let too_much = Flaw::TooMuchInDomain {
        domain: 3,
        slot: 40,
    };
    assert_eq!(flaw(&problem, &flows.collect::<Vec<_>>()), Some(too_much));
}

#[test]
fn what_was_stored_before_counts() {
    let mut problem = star(0, &[(100, 0); 2], 20);
    let mut demand = stage_out(3_000, "1+1", 20, 2);
    problem.demands.push(demand.clone());
    assert!(!is_kept(&greedy(&problem)));
    demand.held = vec![(2, Bytes::new(1_000)), (3, Bytes::new(1_500))];
    problem.demands[0] = demand;
    let schedule = greedy(&problem);
    assert!(is_kept(&schedule));
    let moved: Bytes = schedule.flows.iter().map(|flow| flow.bytes).sum();
    assert_eq!(moved, Bytes::new(3_500));
}

#[test]
fn weight_decides_what_is_given_up() {
    let mut problem = star(10, &[], 10);
    problem.demands = vec![copy(60, 8, 0), copy(60, 10, 0)];
    problem.demands[1].weight = 5;
    let schedule = greedy(&problem);
    assert!(!schedule.shortfalls[0].is_none() && schedule.shortfalls[1].is_none());
    problem.demands[0].weight = 6;
    let schedule = greedy(&problem);
    assert!(schedule.shortfalls[0].is_none() && !schedule.shortfalls[1].is_none());
}

/// Returns two demands with every kind of limit.
fn limited() -> Problem {
    let mut problem = star(10, &[(10, 10), (10, 10)], 10);
    problem.nodes[3].space = Bytes::new(15);
    problem.nodes[CENTRE].way_out = Some(vec![Bytes::new(15); 10]);
    problem.demands.push(Demand {
        sink: Some(USER),
        release: secs(1),
        not_before: Some(secs(2)),
        rate_max: Some(ByteRate::new(12)),
        budget: Some(Money::from_micro_usd(100)),
        ..stage_out(20, "1+1", 5, 2)
    });
    problem.demands.push(Demand {
        via: vec![2],
        ..copy(20, 10, 0)
    });
    problem
}

const fn flow(demand: usize, slot: usize, link: usize, bytes: u64) -> Flow {
    Flow {
        demand,
        slot,
        link,
        bytes: Bytes::new(bytes),
    }
}

fn flaw(problem: &Problem, flows: &[Flow]) -> Option<Flaw> {
    Schedule::of(problem, flows.to_vec()).err()
}

#[test]
fn each_rule_of_one_demand_is_found_broken() {
    let problem = limited();
    let outside = |link, slot| Flaw::OutsideWindow { link, slot };
    for (flows, expected) in [
        (vec![flow(2, 1, 0, 1)], Flaw::Unknown),
        (vec![flow(0, 10, 0, 1)], Flaw::Unknown),
        (vec![flow(0, 1, 9, 1)], Flaw::Unknown),
        (vec![flow(1, 1, 3, 1)], Flaw::Forbidden { link: 3 }),
        (vec![flow(0, 0, 1, 1)], outside(1, 0)),
        (vec![flow(0, 5, 1, 1)], outside(1, 5)),
        (vec![flow(0, 1, 0, 1)], outside(0, 1)),
        (
            vec![flow(0, 3, 1, 5), flow(0, 3, 2, 5)],
            Flaw::NotThere { node: 2, slot: 3 },
        ),
        (
            vec![flow(0, 1, 1, 10), flow(0, 2, 1, 10), flow(0, 3, 1, 1)],
            Flaw::TooMuch { node: 2, slot: 3 },
        ),
        (
            vec![flow(1, 1, 0, 10), flow(1, 2, 0, 10), flow(1, 3, 0, 1)],
            Flaw::TooMuch { node: 1, slot: 3 },
        ),
    ] {
        assert_eq!(flaw(&problem, &flows), Some(expected), "{flows:?}");
    }
    let mut problem = limited();
    problem.nodes[3].domains = problem.nodes[2].domains.clone();
    let flows = [flow(0, 1, 1, 10), flow(0, 2, 1, 10), flow(0, 3, 3, 1)];
    let too_much = Flaw::TooMuchInDomain { domain: 1, slot: 3 };
    assert_eq!(flaw(&problem, &flows), Some(too_much));
    problem.nodes[2].hold = Price::new(Money::from_micro_usd(3600), Bytes::new(1));
    assert_eq!(flaw(&problem, &flows[..2]), Some(Flaw::OverBudget));
}

#[test]
fn each_rule_that_demands_share_is_found_broken() {
    let problem = limited();
    for (flows, expected) in [
        (
            vec![flow(0, 1, 1, 11)],
            Flaw::Overbooked { link: 1, slot: 1 },
        ),
        (
            vec![flow(0, 2, 1, 10), flow(1, 2, 0, 10)],
            Flaw::Crowded {
                node: CENTRE,
                slot: 2,
            },
        ),
        (
            vec![flow(0, 1, 1, 7), flow(0, 1, 3, 7)],
            Flaw::TooFast { demand: 0, slot: 1 },
        ),
        (
            vec![flow(0, 1, 3, 10), flow(0, 2, 3, 6)],
            Flaw::NoSpace { node: 3, slot: 2 },
        ),
    ] {
        assert_eq!(flaw(&problem, &flows), Some(expected), "{flows:?}");
    }
}

#[test]
fn a_schedule_that_says_more_than_it_does_is_found() {
    let problem = limited();
    let mut lie = Schedule::of(&problem, vec![flow(1, 1, 0, 10)]).unwrap();
    assert_eq!(lie.check(&problem), Ok(()));
    assert_eq!(lie.shortfalls[1].deliver, Bytes::new(10));
    lie.shortfalls[1].deliver = Bytes::ZERO;
    assert_eq!(lie.check(&problem), Err(Flaw::Untrue));
}
