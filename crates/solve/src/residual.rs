//! Capacity that planned demands leave to the others.

use posthaste_plan::horizon::{Course, Demand, Flow, Problem};
use posthaste_types::Bytes;

/// Free bytes of links and limits by slot, and of space by boundary.
#[derive(Debug, Clone)]
pub(crate) struct Residual {
    pub(crate) links: Vec<Vec<u64>>,
    pub(crate) out: Vec<Option<Vec<u64>>>,
    pub(crate) into: Vec<Option<Vec<u64>>>,
    /// Free space; the initial stock of every demand is taken.
    space: Vec<Vec<u64>>,
}

impl Residual {
    pub(crate) fn of(problem: &Problem) -> Self {
        let slots = problem.grid.slots();
        let each = |cap: &Vec<Bytes>| -> Vec<u64> {
            let at = |slot| cap.get(slot).map_or(0, |bytes: &Bytes| bytes.get());
            (0..slots).map(at).collect()
        };
        let nodes = || problem.nodes.iter();
        let free = |(place, node): (usize, &posthaste_plan::horizon::Node)| {
            let held = problem.demands.iter().map(|demand| demand.held_at(place));
            let held = held.fold(0, u64::saturating_add);
            vec![node.space.get().saturating_sub(held); slots + 1]
        };
        Self {
            links: problem
                .links
                .iter()
                .map(|link| each(&link.capacity))
                .collect(),
            out: nodes()
                .map(|node| node.way_out.as_ref().map(each))
                .collect(),
            into: nodes().map(|node| node.way_in.as_ref().map(each)).collect(),
            space: nodes().enumerate().map(free).collect(),
        }
    }

    /// Returns the free space of a node for some demands, including their initial stock there.
    pub(crate) fn space(
        &self,
        problem: &Problem,
        picks: &[usize],
        node: usize,
        boundary: usize,
    ) -> u64 {
        let held = picks
            .iter()
            .map(|&pick| problem.demands[pick].held_at(node));
        held.fold(self.space[node][boundary], u64::saturating_add)
    }

    /// Takes the capacity that a demand's plan uses.
    pub(crate) fn enter(
        &mut self,
        problem: &Problem,
        demand: &Demand,
        flows: &[Flow],
        course: &Course,
    ) {
        let take = |free: &mut u64, bytes: u64| *free = free.saturating_sub(bytes);
        for flow in flows {
            let (link, bytes) = (&problem.links[flow.link], flow.bytes.get());
            take(&mut self.links[flow.link][flow.slot], bytes);
            let ways = [&mut self.out[link.from], &mut self.into[link.to]];
            for way in ways.into_iter().flatten() {
                take(&mut way[flow.slot], bytes);
            }
        }
        for (node, space) in self.space.iter_mut().enumerate() {
            for (free, held) in space.iter_mut().zip(&course.stock) {
                *free = free
                    .saturating_add(demand.held_at(node))
                    .saturating_sub(held[node]);
            }
        }
    }
}
