//! The solver against brute force, maximum flows and knapsacks, over problems from seeds.

#[path = "oracle/max_flow.rs"]
mod max_flow;
#[path = "oracle/naive.rs"]
mod naive;
#[path = "../../plan/tests/all/population/problems.rs"]
mod problems;

use posthaste_plan::horizon::{
    Demand, Flow, Grid, Link, Money, Node, Price, Problem, Schedule, greedy,
};
use posthaste_solve::{Effort, SolveError, solve};
use posthaste_types::{ByteRate, Bytes, Code};
use problems::{Dice, problem};
use std::time::Duration;

const CENTRE: usize = 0;
const USER: usize = 1;

fn solved(problem: &Problem) -> Schedule {
    let schedule = solve(problem, Effort::default()).expect("the problem is sound");
    assert_eq!(schedule.check(problem), Ok(()));
    schedule
}

#[test]
fn deadlines_are_kept_as_brute_force_keeps_them() {
    let (mut ours, mut best, mut quick) = (0, 0, 0);
    for seed in 0..300 {
        let problem = problem(seed);
        let kept = solved(&problem).worth(&problem).kept;
        ours += kept;
        quick += greedy(&problem).worth(&problem).kept;
        best += naive::most_weight(&problem, kept);
    }
    eprintln!("weight kept: {ours} of {best}, greedy {quick}");
    assert!(ours * 100 >= best * 98, "{ours} of {best}");
    assert!(quick * 100 >= best * 80, "greedy {quick} of {best}");
}

/// Returns a problem whose demands are pinned to some depots and may use some links at some hours
/// only, including fractions of a slot.
fn bound(seed: u64) -> Problem {
    let mut problem = problem(seed);
    let mut dice = Dice::new(seed ^ 0x1e27);
    let slots = problem.grid.slots();
    for demand in &mut problem.demands {
        if demand.is_coded() && dice.chance(2) {
            demand.pinned = vec![demand.via[dice.index(demand.via.len())]];
        }
        for (place, link) in problem.links.iter().enumerate() {
            if link.from == demand.source && dice.chance(2) {
                let opens = dice.index(slots);
                let closes = opens + 1 + dice.index(slots - opens);
                let lent = |(slot, carries): (usize, &Bytes)| match slot {
                    slot if slot == opens => Bytes::new(carries.get() / 2),
                    slot if (opens..closes).contains(&slot) => *carries,
                    _ => Bytes::ZERO,
                };
                let lent = link.capacity.iter().enumerate().map(lent).collect();
                demand.lent.push((place, lent));
            }
        }
    }
    problem
}

#[test]
fn pins_and_hours_of_one_demand_are_kept_as_brute_force_keeps_them() {
    let (mut ours, mut best, mut quick, mut free) = (0, 0, 0, 0);
    for seed in 0..200 {
        let bounded = bound(seed);
        let schedule = solved(&bounded);
        let plain = greedy(&bounded);
        assert_eq!(plain.check(&bounded), Ok(()), "seed {seed}");
        let kept = schedule.worth(&bounded).kept;
        assert!(schedule.worth(&bounded) >= plain.worth(&bounded));
        ours += kept;
        quick += plain.worth(&bounded).kept;
        best += naive::most_weight(&bounded, kept);
        free += solved(&problem(seed)).worth(&problem(seed)).kept;
        bounds_are_kept(&bounded, &schedule);
    }
    eprintln!("weight kept: {ours} of {best}, greedy {quick}, {free} without bounds");
    assert!(ours * 100 >= best * 98, "{ours} of {best}");
    assert!(quick * 100 >= best * 80, "greedy {quick} of {best}");
    assert!(ours < free, "bounds bind: {ours} of {free}");
}

/// Checks that nothing is sent at closed hours, and that no demand counts as safe if its pinned
/// depots lack anything.
fn bounds_are_kept(problem: &Problem, schedule: &Schedule) {
    for flow in &schedule.flows {
        let lent = problem.demands[flow.demand].lent_at(flow.link, flow.slot);
        assert!(lent.is_none_or(|lent| flow.bytes <= lent), "{flow:?}");
    }
    let courses = schedule.courses(problem).expect("it was checked");
    for (demand, course) in problem.demands.iter().zip(&courses) {
        let Some(deadline) = demand.offload_by.filter(|_| course.shortfall.is_none()) else {
            continue;
        };
        let held = &course.stock[problem.grid.ended_by(deadline)];
        for &node in &demand.pinned {
            assert!(held[node] >= demand.column().get(), "{demand:?} {held:?}");
        }
    }
}

/// Returns a problem whose depots each have a site, and some a provider too, with few sites and
/// providers in all.
fn sited(seed: u64) -> Problem {
    let mut problem = problem(seed);
    let mut dice = Dice::new(seed ^ 0x517e);
    for node in problem.nodes.iter_mut().skip(USER + 1) {
        node.domains = vec![u32::try_from(dice.index(3)).unwrap_or(0)];
        if dice.chance(7) {
            node.domains
                .push(10 + u32::try_from(dice.index(2)).unwrap_or(0));
        }
    }
    problem
}

#[test]
fn domains_that_overlap_are_kept_as_brute_force_keeps_them() {
    let (mut ours, mut best, mut quick, mut free) = (0, 0, 0, 0);
    for seed in 0..200 {
        let apart = sited(seed);
        let schedule = solved(&apart);
        let plain = greedy(&apart);
        assert_eq!(plain.check(&apart), Ok(()), "seed {seed}");
        let kept = schedule.worth(&apart).kept;
        ours += kept;
        quick += plain.worth(&apart).kept;
        best += naive::most_weight(&apart, kept);
        let mut alone = apart.clone();
        for node in &mut alone.nodes {
            node.domains.clear();
        }
        free += solved(&alone).worth(&alone).kept;
    }
    eprintln!("weight kept: {ours} of {best}, greedy {quick}, {free} without domains");
    assert!(ours * 100 >= best * 98, "{ours} of {best}");
    assert!(quick * 100 >= best * 80, "greedy {quick} of {best}");
    assert!(ours < free, "domains bind: {ours} of {free}");
}

#[test]
fn never_worse_than_greedy_and_the_same_every_time() {
    let (small, none) = (
        Effort {
            programs: 8,
            columns: 150,
        },
        Effort {
            programs: 0,
            columns: 0,
        },
    );
    let mut is_ever_better = false;
    for seed in 1000..1150 {
        let problem = problem(seed);
        let plain = greedy(&problem);
        assert_eq!(solve(&problem, none), Ok(plain.clone()));
        for effort in [
            small,
            Effort {
                programs: 2,
                ..Effort::default()
            },
        ] {
            let schedule = solve(&problem, effort).unwrap();
            assert_eq!(schedule.check(&problem), Ok(()), "seed {seed}");
            assert!(
                schedule.worth(&problem) >= plain.worth(&problem),
                "seed {seed}"
            );
            assert_eq!(solve(&problem, effort), Ok(schedule.clone()), "seed {seed}");
            is_ever_better |= schedule.worth(&problem) > plain.worth(&problem);
        }
    }
    assert!(is_ever_better);
}

#[test]
fn without_prices_a_copy_is_a_maximum_flow() {
    for seed in 0..200 {
        let mut problem = problem(seed);
        let via = problem.demands[0].via.clone();
        problem.demands = vec![Demand {
            via,
            ..copy(1 << 50, 1000)
        }];
        for node in &mut problem.nodes {
            *node = Node::default();
        }
        for link in &mut problem.links {
            link.price = Price::FREE;
        }
        let mut dice = Dice::new(seed);
        // Depots pass data to each other, too.
        for (from, to) in [(2, 3), (3, 2)] {
            let capacity = problem.links[dice.index(problem.links.len())]
                .capacity
                .clone();
            problem.links.push(Link {
                from,
                to,
                capacity,
                price: Price::FREE,
            });
        }
        let delivered = (1 << 50) - solved(&problem).shortfalls[0].deliver.get();
        assert_eq!(delivered, max_flow::max_flow(&problem), "seed {seed}");
    }
}

/// Returns depots that only receive, each with its rate and its price of a byte, in millionths.
fn depots(offers: &[(u64, u64)], slots: usize) -> Problem {
    let grid = Grid::even(Duration::from_secs(1), slots);
    let nodes = (0..offers.len() + 2).zip(0..).map(|(_, domain)| Node {
        domains: vec![domain],
        ..Node::default()
    });
    let link = |(to, &(rate, price)): (usize, &(u64, u64))| Link {
        from: CENTRE,
        to: to + 2,
        capacity: grid.volumes(ByteRate::new(rate)),
        price: Price::new(Money::from_micro_usd(price), Bytes::new(1)),
    };
    Problem {
        nodes: nodes.collect(),
        links: offers.iter().enumerate().map(link).collect(),
        grid,
        ..Problem::default()
    }
}

fn copy(bytes: u64, by: u64) -> Demand {
    Demand {
        source: CENTRE,
        sink: Some(USER),
        bytes: Bytes::new(bytes),
        code: Code::NONE,
        held: Vec::new(),
        release: Duration::ZERO,
        offload_by: None,
        deliver_by: Some(Duration::from_secs(by)),
        not_before: None,
        via: Vec::new(),
        weight: 1,
        budget: None,
        rate_max: None,
        lent: Vec::new(),
        pinned: Vec::new(),
    }
}

fn stage_out(bytes: u64, code: (u8, u8), by: u64, depots: usize) -> Demand {
    Demand {
        sink: None,
        code: Code::new(code.0, code.1).unwrap_or(Code::NONE),
        deliver_by: None,
        offload_by: Some(Duration::from_secs(by)),
        via: (2..depots + 2).collect(),
        ..copy(bytes, by)
    }
}

#[test]
fn the_cheapest_depots_are_a_fractional_knapsack() {
    for seed in 0..200 {
        let mut dice = Dice::new(seed);
        let count = 1 + dice.index(6);
        let mut offers: Vec<(u64, u64)> = (0..count)
            .map(|_| (10_000 * (1 + dice.below(30)), 1 + dice.below(9)))
            .collect();
        let slots = 10;
        let mut problem = depots(&offers, slots);
        let all: u64 = offers.iter().map(|(rate, _)| rate * 10).sum();
        let bytes = all * (1 + dice.below(10)) / 10;
        problem.demands.push(stage_out(bytes, (1, 0), 10, count));
        let schedule = solved(&problem);
        offers.sort_by_key(|(_, price)| *price);
        let (mut left, mut cost) = (bytes, 0);
        for (rate, price) in offers {
            let taken = left.min(rate * 10);
            left -= taken;
            cost += taken * price;
        }
        assert_eq!(schedule.cost, Money::from_micro_usd(cost), "seed {seed}");
        assert!(schedule.shortfalls[0].is_none(), "seed {seed}");
    }
}

#[test]
fn stage_ins_are_never_early() {
    let mut arrivals = 0;
    for seed in 0..200 {
        let problem = problem(seed);
        let schedule = solved(&problem);
        for flow in &schedule.flows {
            let demand = &problem.demands[flow.demand];
            if let Some(moment) = demand.not_before
                && Some(problem.links[flow.link].to) == demand.sink
            {
                arrivals += 1;
                assert!(
                    problem.grid.start(flow.slot) >= moment,
                    "seed {seed}: {flow:?}"
                );
            }
        }
    }
    assert!(arrivals > 100);
}

#[test]
fn data_goes_over_two_depots_where_one_does_not_reach() {
    let mut problem = depots(&[(100, 1), (0, 1)], 30);
    let grid = problem.grid.clone();
    let link = |from, to| Link {
        from,
        to,
        capacity: grid.volumes(ByteRate::new(50)),
        price: Price::FREE,
    };
    problem.links.push(link(2, 3));
    problem.links.push(link(3, USER));
    problem.demands.push(Demand {
        via: vec![2, 3],
        ..copy(1_000, 22)
    });
    assert!(!greedy(&problem).shortfalls[0].is_none());
    assert!(solved(&problem).shortfalls[0].is_none());
    problem.demands[0].deliver_by = Some(Duration::from_secs(21));
    assert_eq!(solved(&problem).shortfalls[0].deliver, Bytes::new(50));
}

#[test]
fn shares_follow_bandwidth_within_what_domains_may_hold() {
    // Each depot may hold one fragment, each domain two: 3+2 of 30 000 on six depots of three
    // sites.
    let mut problem = depots(
        &[(900, 0), (900, 0), (900, 0), (200, 0), (200, 0), (200, 0)],
        60,
    );
    for (node, domain) in [(2, 7), (3, 7), (4, 7), (5, 8), (6, 8), (7, 9)] {
        problem.nodes[node].domains = vec![domain];
    }
    problem.demands.push(stage_out(30_000, (3, 2), 60, 6));
    let schedule = solved(&problem);
    assert!(schedule.shortfalls[0].is_none());
    let held = &schedule.courses(&problem).unwrap()[0].stock[60];
    assert_eq!(held.iter().sum::<u64>(), 50_000);
    assert!(held[2] + held[3] + held[4] <= 20_000);
    assert!(held.iter().all(|held| *held <= 10_000));
}

#[test]
fn a_depot_counts_in_each_of_its_domains() {
    // The fastest shares its site with the second and its provider with the third: 1+1 goes to
    // those.
    let mut problem = depots(&[(900, 0), (100, 0), (100, 0)], 60);
    for (node, domains) in [(2, [7, 8]), (3, [7, 9]), (4, [6, 8])] {
        problem.nodes[node].domains = domains.to_vec();
    }
    problem.demands.push(stage_out(5_000, (1, 1), 60, 3));
    let schedule = solved(&problem);
    assert!(schedule.shortfalls[0].is_none());
    let held = &schedule.courses(&problem).unwrap()[0].stock[60];
    assert_eq!(held[2..], [0, 5_000, 5_000]);
    problem.nodes[4].domains = vec![9, 8];
    assert!(!solved(&problem).shortfalls[0].is_none());
}

#[test]
fn the_plan_in_force_stays_while_moving_costs_more_than_it_saves() {
    let mut problem = depots(&[(100, 10), (100, 11)], 20);
    problem.demands.push(stage_out(1_000, (1, 0), 20, 2));
    let by_link = |schedule: &Schedule, link: usize| -> u64 {
        schedule
            .flows
            .iter()
            .filter(|flow| flow.link == link)
            .map(|flow| flow.bytes.get())
            .sum()
    };
    problem.previous = (0..10)
        .map(|slot| Flow {
            demand: 0,
            slot,
            link: 1,
            bytes: Bytes::new(100),
        })
        .collect();
    assert_eq!(by_link(&solved(&problem), 0), 1_000);
    problem.churn = Price::new(Money::from_micro_usd(2), Bytes::new(1));
    let schedule = solved(&problem);
    assert_eq!(by_link(&schedule, 1), 1_000);
    assert_eq!(schedule.moved_from(&problem.previous), Bytes::ZERO);
}

#[test]
fn the_heaviest_set_of_demands_is_found_where_bytes_mislead() {
    // Two small demands fit instead of one large one; together they weigh more.
    let mut problem = depots(&[(100, 0)], 10);
    problem.demands = vec![
        stage_out(900, (1, 0), 9, 1),
        stage_out(500, (1, 0), 10, 1),
        stage_out(500, (1, 0), 10, 1),
    ];
    for (demand, weight) in [(0, 3), (1, 2), (2, 2)] {
        problem.demands[demand].weight = weight;
    }
    assert_eq!(solved(&problem).worth(&problem).kept, 4);
}

#[test]
fn what_names_no_node_is_refused() {
    let mut problem = depots(&[(100, 0)], 10);
    problem.demands.push(stage_out(900, (1, 0), 9, 2));
    assert!(matches!(
        solve(&problem, Effort::default()),
        Err(SolveError::Unsound(_))
    ));
    problem.demands[0].via = vec![2];
    problem.demands[0].pinned = vec![3];
    assert!(matches!(
        solve(&problem, Effort::default()),
        Err(SolveError::Unsound(_))
    ));
    problem.demands[0].pinned = Vec::new();
    problem.demands[0].lent = vec![(9, Vec::new())];
    assert!(matches!(
        solve(&problem, Effort::default()),
        Err(SolveError::Unsound(_))
    ));
    problem.demands[0].via = vec![2, 2];
    assert!(matches!(
        solve(&problem, Effort::default()),
        Err(SolveError::Unsound(_))
    ));
}
