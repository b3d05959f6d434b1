//! Free limits and spaces of a problem, slot by slot.

use alloc::{vec, vec::Vec};
use posthaste_types::Bytes;

use super::{Calendar, Demand, Node, Problem, trial::Trial};

/// Links, uplinks and downlinks of nodes, and the rates of demands, in one calendar.
pub(super) struct Limits {
    /// Links by their place, followed by the other limits.
    pub(super) calendar: Calendar,
    out: Vec<Option<usize>>,
    into: Vec<Option<usize>>,
    rate: Vec<Option<usize>>,
    /// For each demand, the links on which its own limit is lower, and the place of that limit.
    lent: Vec<Vec<(usize, usize)>>,
}

impl Limits {
    pub(super) fn of(problem: &Problem) -> Self {
        let mut calendar = Calendar::new();
        for link in &problem.links {
            calendar.add(&link.capacity);
        }
        let mut limit = |cap: Option<&[Bytes]>| cap.map(|cap| calendar.add(cap));
        let (nodes, demands) = (problem.nodes.iter(), problem.demands.iter());
        let out = nodes
            .clone()
            .map(|node| limit(node.way_out.as_deref()))
            .collect();
        let into = nodes.map(|node| limit(node.way_in.as_deref())).collect();
        let rate = demands
            .clone()
            .map(|demand| limit(problem.rate_caps(demand).as_deref()))
            .collect();
        let lent = demands.map(|demand| {
            let lent = demand.lent.iter();
            lent.map(|(link, caps)| (*link, calendar.add(caps)))
                .collect()
        });
        let lent = lent.collect();
        Self {
            calendar,
            out,
            into,
            rate,
            lent,
        }
    }

    /// Returns all limits of a demand on a link.
    pub(super) fn path(&self, problem: &Problem, demand: usize, link: usize) -> Vec<usize> {
        let ends = &problem.links[link];
        let is_first = ends.from == problem.demands[demand].source;
        let rate = self.rate[demand].filter(|_| is_first);
        let mut lent = self.lent[demand].iter();
        let lent = lent.find(|(place, _)| *place == link);
        let lent = lent.map(|(_, place)| *place);
        let limits = [self.out[ends.from], self.into[ends.to], rate, lent];
        limits.into_iter().flatten().chain([link]).collect()
    }
}

/// Free capacity of links, uplinks and downlinks, and free space.
pub(super) struct Book {
    pub(super) limits: Limits,
    /// Free bytes of each node at the start of each slot, and at the end.
    pub(super) space: Vec<Vec<u64>>,
}

impl Book {
    pub(super) fn new(problem: &Problem) -> Self {
        let free = |(place, node): (usize, &Node)| {
            let held = problem.demands.iter().map(|demand| demand.held_at(place));
            let held = held.fold(0, u64::saturating_add);
            vec![node.space.get().saturating_sub(held); problem.grid.slots() + 1]
        };
        Self {
            limits: Limits::of(problem),
            space: problem.nodes.iter().enumerate().map(free).collect(),
        }
    }

    pub(super) fn path(&self, problem: &Problem, place: usize, link: usize) -> Vec<usize> {
        self.limits.path(problem, place, link)
    }

    /// Gives back the space that the demand already holds while it is planned, or takes it again.
    pub(super) fn set_aside(&mut self, demand: &Demand, is_given: bool) {
        for &(node, bytes) in &demand.held {
            for free in &mut self.space[node] {
                *free = if is_given {
                    free.saturating_add(bytes.get())
                } else {
                    free.saturating_sub(bytes.get())
                };
            }
        }
    }

    /// Enters the result of a trial.
    pub(super) fn enter(&mut self, problem: &Problem, trial: &Trial) {
        for flow in &trial.flows {
            let path = self.path(problem, flow.demand, flow.link);
            self.limits.calendar.take(&path, flow.slot, flow.bytes);
        }
        for (slot, held) in trial.course.stock.iter().enumerate() {
            for (free, held) in self.space.iter_mut().zip(held) {
                free[slot] = free[slot].saturating_sub(*held);
            }
        }
    }
}
