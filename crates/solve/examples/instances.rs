//! Measures plans over time: `instances [RUNS]` prints a line for each instance, fields separated
//! by tabs. `cargo xtask bench plan` runs it.

use std::{error::Error, time::Duration};

use posthaste_plan::horizon::{Demand, Grid, Link, Money, Node, Price, Problem, Schedule, greedy};
use posthaste_solve::{Effort, columns, solve};
use posthaste_types::{ByteRate, Bytes, Code};

/// Relays, slots, demands.
const INSTANCES: &[(usize, usize, usize)] = &[
    (20, 24, 1),
    (20, 96, 1),
    (20, 288, 1),
    (50, 96, 1),
    (20, 96, 5),
    (20, 96, 10),
    (20, 96, 20),
];
/// Length of a slot.
const SLOT: Duration = Duration::from_secs(900);
/// Effort of a single program for everything, where that does not take minutes.
const WHOLE: Effort = Effort {
    programs: 1,
    columns: 12_500,
};

/// Numbers from a seed (SplitMix64).
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (bits ^ (bits >> 31)) % end
    }
}

/// Returns the centre, a user and relays between them, and data for two ninths of what can leave
/// the centre in time: copies, or stage-outs coded 2+1 that must have left after half the time or a
/// little more.
fn instance(relays: usize, slots: usize, demands: usize, is_coded: bool) -> Problem {
    let mut dice = Dice(1);
    let grid = Grid::even(SLOT, slots);
    let mut link = |from, to, rate_max: u64| Link {
        from,
        to,
        capacity: (0..slots)
            .map(|_| ByteRate::new((rate_max / 2 + dice.below(rate_max / 2)) << 10).volume(SLOT))
            .collect(),
        price: Price::new(
            Money::from_micro_usd(10_000 + dice.below(90_000)),
            Bytes::mebi(1024),
        ),
    };
    let mut links = vec![link(0, 1, 2_000)];
    for relay in 2..relays + 2 {
        links.push(link(0, relay, 10_000));
        links.push(link(relay, 1, 10_000));
    }
    let node = |domain| Node {
        domains: vec![domain],
        ..Node::default()
    };
    let carried: u64 = links
        .iter()
        .filter(|link| link.from == 0)
        .flat_map(|link| &link.capacity)
        .map(|bytes| bytes.get())
        .sum();
    let whole = grid.start(slots);
    let demand = |place: u32| Demand {
        source: 0,
        sink: Some(1),
        bytes: Bytes::new(carried * 2 / 9 / demands as u64),
        code: Code::new(2, 1).unwrap_or(Code::NONE),
        held: Vec::new(),
        release: Duration::ZERO,
        offload_by: is_coded.then(|| whole / 2 + whole / 20 * (place % 5)),
        deliver_by: Some(whole),
        not_before: None,
        via: (2..relays + 2).collect(),
        weight: 1,
        budget: None,
        rate_max: None,
        lent: Vec::new(),
        pinned: Vec::new(),
    };
    Problem {
        nodes: (0..).take(relays + 2).map(node).collect(),
        links,
        demands: (0..).take(demands).map(demand).collect(),
        grid,
        ..Problem::default()
    }
}

/// Returns the shortest of some runs in milliseconds, and the result.
fn timed<T>(runs: usize, work: impl Fn() -> T) -> (f64, T) {
    let run = || {
        #[expect(
            clippy::disallowed_methods,
            reason = "an example that measures is its own clock"
        )]
        let start = std::time::Instant::now();
        let made = work();
        (start.elapsed().as_secs_f64() * 1000.0, made)
    };
    let mut best = run();
    for _ in 1..runs {
        let next = run();
        if next.0 < best.0 {
            best = next;
        }
    }
    best
}

fn told(millis: f64, schedule: &Schedule) -> String {
    let kept = schedule
        .shortfalls
        .iter()
        .filter(|shortfall| shortfall.is_none())
        .count();
    let usd = schedule.cost.micro_usd() / 1_000_000;
    format!("\t{millis:.2}\t{kept}\t{usd}")
}

#[expect(clippy::print_stdout, reason = "its output is what it is for")]
fn main() -> Result<(), Box<dyn Error>> {
    let runs = std::env::args().nth(1).map_or(Ok(1), |runs| runs.parse())?;
    for is_coded in [false, true] {
        for &(relays, slots, demands) in INSTANCES {
            let problem = instance(relays, slots, demands, is_coded);
            let size = columns(&problem);
            let (millis, plain) = timed(runs, || greedy(&problem));
            let kind = if is_coded { "stage-out" } else { "copy" };
            let mut line = format!("{kind}\t{relays}\t{slots}\t{demands}\t{size}");
            line += &told(millis, &plain);
            for (effort, is_asked) in [(WHOLE, size <= WHOLE.columns), (Effort::default(), true)] {
                if is_asked {
                    let (millis, found) = timed(runs, || solve(&problem, effort));
                    line += &told(millis, &found?);
                } else {
                    line += "\t\t\t";
                }
            }
            println!("{line}");
        }
    }
    Ok(())
}
