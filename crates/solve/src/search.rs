//! Choice of the programs to solve: all demands at once if they are few, one by one if they are
//! many.

use std::cmp::Reverse;

use posthaste_plan::horizon::{Flow, Problem, Schedule, Shortfall, cut};

use crate::{
    Best, Effort,
    program::{self, Program},
    residual::Residual,
};

/// Solves one program for all demands.
///
/// While deadlines are missed, further programs each favour one more demand above the rest, then
/// let it replace a lighter one: a program weighs bytes, but a deadline is kept or missed as a
/// whole.
pub(crate) fn together(problem: &Problem, best: &mut Best, programs: u32) {
    let mut left = programs;
    let mut ask = |best: &mut Best, favoured: &[usize]| {
        let is_allowed = left > 0;
        left = left.saturating_sub(1);
        is_allowed && offer(problem, best, favoured)
    };
    ask(best, &[]);
    loop {
        let mut all: Vec<usize> = (0..problem.demands.len()).collect();
        all.sort_by_key(|&demand| Reverse(problem.demands[demand].weight));
        let (kept, missed): (Vec<usize>, Vec<usize>) =
            all.into_iter().partition(|&demand| best.is_kept(demand));
        let more = missed.iter().map(|&add| with(&kept, None, add));
        let lighter =
            |add: usize, drop: usize| problem.demands[drop].weight < problem.demands[add].weight;
        let swaps = missed.iter().flat_map(|&add| {
            let drops = kept.iter().rev().filter(move |&&drop| lighter(add, drop));
            drops.map(move |&drop| (add, drop))
        });
        let swaps = swaps.map(|(add, drop)| with(&kept, Some(drop), add));
        let moves: Vec<Vec<usize>> = more.chain(swaps).collect();
        if !moves.iter().any(|favoured| ask(best, favoured)) {
            break;
        }
    }
}

fn with(kept: &[usize], drop: Option<usize>, add: usize) -> Vec<usize> {
    let stay = kept.iter().copied().filter(|&demand| Some(demand) != drop);
    stay.chain([add]).collect()
}

fn offer(problem: &Problem, best: &mut Best, favoured: &[usize]) -> bool {
    let all: Vec<usize> = (0..problem.demands.len()).collect();
    let residual = Residual::of(problem);
    let program = Program::new(problem, &residual, &all, favoured);
    let mut is_better = false;
    for wishes in program.solve().unwrap_or_default() {
        is_better |= best.offer(problem, cut(problem, &wishes));
    }
    is_better
}

/// Solves a program for each demand by deadline, on what those before leave. Demands that miss wait
/// until all others are placed. A demand is left out if it is too large or no program is left.
pub(crate) fn in_turn(problem: &Problem, best: &mut Best, effort: Effort) {
    let mut left = effort.programs;
    let mut residual = Residual::of(problem);
    let mut flows: Vec<Flow> = Vec::new();
    let mut waiting = problem.by_deadline();
    for only_whole in [true, false] {
        let mut late = Vec::new();
        for &demand in &waiting {
            if left == 0 || program::columns(problem, &[demand]) > effort.columns {
                continue;
            }
            left -= 1;
            let placed = alone(problem, &residual, demand)
                .filter(|(_, lacks)| !only_whole || lacks.is_none());
            let Some((own, _)) = placed else {
                late.push(demand);
                continue;
            };
            let schedule = Schedule::of(problem, own.clone());
            if let Ok(courses) = schedule.and_then(|schedule| schedule.courses(problem)) {
                residual.enter(problem, &problem.demands[demand], &own, &courses[demand]);
                flows.extend(own);
            }
        }
        waiting = late;
    }
    best.offer(problem, cut(problem, &flows));
}

/// Returns the better plan of one demand on the remaining capacity, cut to integers.
fn alone(problem: &Problem, residual: &Residual, demand: usize) -> Option<(Vec<Flow>, Shortfall)> {
    let wishes = Program::new(problem, residual, &[demand], &[demand]).solve()?;
    let plans = wishes.iter().map(|wishes| {
        let schedule = cut(problem, &within(residual, wishes));
        (schedule.flows.clone(), schedule.shortfalls[demand])
    });
    plans.min_by_key(|(_, lacks)| lacks.offload + lacks.deliver)
}

/// Rounds wishes to no more than a link has left.
fn within(residual: &Residual, wishes: &[Flow]) -> Vec<Flow> {
    let cut_to_link = |wish: &Flow| Flow {
        bytes: wish.bytes.min(posthaste_types::Bytes::new(
            residual.links[wish.link][wish.slot],
        )),
        ..*wish
    };
    wishes.iter().map(cut_to_link).collect()
}
