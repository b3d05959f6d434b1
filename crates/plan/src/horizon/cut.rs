//! Wished flows, cut to the rules.

use alloc::vec::Vec;
use posthaste_types::Bytes;

use super::{
    Flow, Problem, Schedule,
    course::{Caps, drop_copies, follow, is_delivered},
    limits::Limits,
};

/// Returns the schedule of `wishes`, each cut to the capacity that the rules leave it, slot by
/// slot.
///
/// In a slot, flows out of depots come before flows out of sources, and the first demand before the
/// others. A solver's real numbers become exact here by cutting single bytes. A demand whose cost
/// would exceed its budget loses all its wishes.
#[must_use]
pub fn cut(problem: &Problem, wishes: &[Flow]) -> Schedule {
    let mut wishes: Vec<Flow> = wishes
        .iter()
        .filter(|flow| {
            let exists = flow.demand < problem.demands.len() && flow.link < problem.links.len();
            exists && flow.slot < problem.grid.slots()
        })
        .copied()
        .collect();
    let is_first =
        |flow: &Flow| problem.links[flow.link].from == problem.demands[flow.demand].source;
    wishes.sort_by_key(|flow| (flow.slot, is_first(flow), flow.demand, flow.link));
    let mut shears = Shears::new(problem);
    let mut kept = Vec::with_capacity(wishes.len());
    for slot in wishes.chunk_by(|one, other| one.slot == other.slot) {
        kept.extend(slot.iter().filter_map(|wish| shears.cut(wish)));
        shears.end_slot();
    }
    let affordable = |flows: Vec<Flow>| -> Vec<Flow> {
        let mut flows = flows;
        flows.sort_unstable();
        for (place, demand) in problem.demands.iter().enumerate() {
            let own: Vec<Flow> = flows
                .iter()
                .filter(|flow| flow.demand == place)
                .copied()
                .collect();
            if follow(problem, demand, &own).is_err() {
                flows.retain(|flow| flow.demand != place);
            }
        }
        flows
    };
    Schedule::of(problem, affordable(kept))
        .or_else(|_| Schedule::of(problem, Vec::new()))
        .unwrap_or_default()
}

struct Shears<'a> {
    problem: &'a Problem,
    limits: Limits,
    caps: Vec<Caps>,
    /// Bytes each node holds of each demand.
    held: Vec<Vec<u64>>,
    /// Bytes of those that were there when the slot began and have not left.
    ready: Vec<Vec<u64>>,
}

impl<'a> Shears<'a> {
    fn new(problem: &'a Problem) -> Self {
        let held: Vec<Vec<u64>> = problem
            .demands
            .iter()
            .map(|demand| {
                let mut held = problem.per_node();
                for &(node, bytes) in &demand.held {
                    held[node] = bytes.get();
                }
                held
            })
            .collect();
        Self {
            problem,
            limits: Limits::of(problem),
            caps: problem
                .demands
                .iter()
                .map(|demand| Caps::of(problem, demand))
                .collect(),
            ready: held.clone(),
            held,
        }
    }

    fn cut(&mut self, wish: &Flow) -> Option<Flow> {
        let (problem, place) = (self.problem, wish.demand);
        let (demand, link) = (&problem.demands[place], &problem.links[wish.link]);
        let window = demand.window(&problem.grid);
        let is_source = link.from == demand.source;
        let is_sink = Some(link.to) == demand.sink;
        let is_in_time = (!is_source || window.leave.contains(&wish.slot))
            && (!is_sink || wish.slot >= window.arrive.start);
        if !demand.may_use(link) || !is_in_time {
            return None;
        }
        let there = if is_source {
            u64::MAX
        } else {
            self.ready[place][link.from]
        };
        let lies = self
            .held
            .iter()
            .map(|held| held[link.to])
            .fold(0, u64::saturating_add);
        let space = problem.nodes[link.to].space.get().saturating_sub(lies);
        let room = self.caps[place].room(problem, demand, &self.held[place], link.to);
        let path = self.limits.path(problem, place, wish.link);
        let most = wish.bytes.get().min(there).min(space).min(room);
        let taken = self
            .limits
            .calendar
            .take(&path, wish.slot, Bytes::new(most));
        if taken == Bytes::ZERO {
            return None;
        }
        if !is_source {
            self.ready[place][link.from] -= taken.get();
            self.held[place][link.from] -= taken.get();
        }
        self.held[place][link.to] += taken.get();
        Some(Flow {
            bytes: taken,
            ..*wish
        })
    }

    fn end_slot(&mut self) {
        for (demand, held) in self.problem.demands.iter().zip(&mut self.held) {
            if is_delivered(demand, held) {
                drop_copies(demand, held);
            }
        }
        self.ready.clone_from(&self.held);
    }
}
