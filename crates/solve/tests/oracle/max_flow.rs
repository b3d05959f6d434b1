//! The oracle of volumes: the most bytes that get from one node to another in time, by augmenting
//! paths.

use posthaste_plan::horizon::Problem;
use std::collections::VecDeque;

struct Edge {
    to: usize,
    left: u64,
}

/// Places joined by edges; each edge is next to its reverse.
#[derive(Default)]
struct Graph {
    edges: Vec<Edge>,
    at: Vec<Vec<usize>>,
}

impl Graph {
    fn join(&mut self, from: usize, to: usize, capacity: u64) {
        for (from, to, left) in [(from, to, capacity), (to, from, 0)] {
            self.at[from].push(self.edges.len());
            self.edges.push(Edge { to, left });
        }
    }

    /// Sends the capacity of the shortest free path; returns zero if there is none.
    fn augment(&mut self, source: usize, sink: usize) -> u64 {
        let mut by = vec![None; self.at.len()];
        let mut queue = VecDeque::from([source]);
        while let Some(place) = queue.pop_front() {
            for &edge in &self.at[place] {
                let to = self.edges[edge].to;
                if self.edges[edge].left > 0 && to != source && by[to].is_none() {
                    by[to] = Some(edge);
                    queue.push_back(to);
                }
            }
        }
        let path: Vec<usize> =
            std::iter::successors(by[sink], |edge| by[self.edges[*edge ^ 1].to]).collect();
        let least = path
            .iter()
            .map(|edge| self.edges[*edge].left)
            .min()
            .unwrap_or(0);
        for edge in path {
            self.edges[edge].left -= least;
            self.edges[edge ^ 1].left += least;
        }
        least
    }
}

/// Returns the most that the first demand of a problem could deliver by its deadline, if it were
/// unlimited and alone.
pub fn max_flow(problem: &Problem) -> u64 {
    let demand = &problem.demands[0];
    let (slots, nodes) = (problem.grid.slots(), problem.nodes.len());
    let window = demand.window(&problem.grid);
    let place = |node: usize, boundary: usize| boundary * nodes + node;
    let mut graph = Graph::default();
    graph.at.resize_with((slots + 1) * nodes, Vec::new);
    for slot in 0..slots {
        for node in 0..nodes {
            graph.join(place(node, slot), place(node, slot + 1), u64::MAX >> 2);
        }
        for (link, ends) in problem.links.iter().enumerate() {
            let leaves = ends.from != demand.source || window.leave.contains(&slot);
            let arrives = Some(ends.to) != demand.sink || slot >= window.arrive.start;
            if demand.may_use(ends) && leaves && arrives {
                graph.join(
                    place(ends.from, slot),
                    place(ends.to, slot + 1),
                    problem.carries(link, slot),
                );
            }
        }
    }
    let (source, sink) = (
        place(demand.source, 0),
        place(demand.sink.unwrap_or(0), window.arrive.end),
    );
    std::iter::from_fn(|| Some(graph.augment(source, sink)).filter(|sent| *sent > 0)).sum()
}
