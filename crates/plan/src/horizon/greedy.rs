//! Greedy schedule: one demand after the other, each on the capacity that is left.

use alloc::vec::Vec;
use core::cmp::Reverse;

use super::{
    Flow, Problem, Schedule,
    limits::Book,
    trial::{Trial, Way, attempt},
};

/// Plans demands by deadline, each in the way that keeps its deadline at least cost and then with
/// the fewest links: direct, over depots, or both. Landmarks are used only where nothing else keeps
/// it. Stage-outs and copies go as soon as possible, stage-ins arrive as late as allowed. A demand
/// that can't keep its deadline gets the rest.
///
/// If that breaks a deadline, demands are also ordered by weight, and by weight per byte, and the
/// best of the three plans is returned. Data crosses one depot at most, and only the first of
/// parallel links is used. The cost is at most 30 visits of each slot for each demand and lane.
#[must_use]
pub fn greedy(problem: &Problem) -> Schedule {
    let urgent = problem.by_deadline();
    let first = arrange(problem, &urgent);
    if first.shortfalls.iter().all(super::Shortfall::is_none) {
        return first;
    }
    let mut weighty = urgent.clone();
    weighty.sort_by_key(|&place| Reverse(problem.demands[place].weight));
    let mut dense = urgent;
    dense.sort_by(|&one, &other| {
        let (one, other) = (&problem.demands[one], &problem.demands[other]);
        let value =
            |demand: &super::Demand, size: u64| u128::from(demand.weight) * u128::from(size);
        value(other, one.bytes.get()).cmp(&value(one, other.bytes.get()))
    });
    [weighty, dense]
        .iter()
        .map(|order| arrange(problem, order))
        .fold(first, |best, next| {
            if next.worth(problem) > best.worth(problem) {
                next
            } else {
                best
            }
        })
}

/// Plans demands in this order: first those that keep their deadlines, then the others.
fn arrange(problem: &Problem, order: &[usize]) -> Schedule {
    let mut book = Book::new(problem);
    let mut flows: Vec<Flow> = Vec::new();
    let mut late = Vec::new();
    for &place in order {
        if !settle(problem, &mut book, place, true, &mut flows) {
            late.push(place);
        }
    }
    for place in late {
        settle(problem, &mut book, place, false, &mut flows);
    }
    let schedule = Schedule::of(problem, flows);
    debug_assert!(schedule.is_ok(), "{schedule:?}");
    schedule.unwrap_or_else(|_| nothing(problem))
}

/// Returns the schedule that moves nothing, which breaks no rule.
fn nothing(problem: &Problem) -> Schedule {
    Schedule::of(problem, Vec::new()).unwrap_or_default()
}

/// Places one demand and returns whether it lacks nothing; with `only_whole` it is placed only
/// then.
fn settle(
    problem: &Problem,
    book: &mut Book,
    place: usize,
    only_whole: bool,
    flows: &mut Vec<Flow>,
) -> bool {
    let demand = &problem.demands[place];
    book.set_aside(demand, true);
    let mut best: Option<Trial> = None;
    for way in [false, true].into_iter().flat_map(Way::all) {
        let is_kept = best
            .as_ref()
            .is_some_and(|best| best.course.shortfall.is_none());
        if way.landmarks && is_kept {
            break;
        }
        if let Some(trial) = attempt(problem, book, place, way)
            && best.as_ref().is_none_or(|best| trial.rank() > best.rank())
        {
            best = Some(trial);
        }
    }
    match best {
        Some(trial) if !only_whole || trial.course.shortfall.is_none() => {
            book.enter(problem, &trial);
            let is_kept = trial.course.shortfall.is_none();
            flows.extend(trial.flows);
            is_kept
        }
        _ => {
            book.set_aside(demand, false);
            false
        }
    }
}
