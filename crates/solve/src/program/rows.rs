//! Constraints.

use std::collections::BTreeMap;

use good_lp::{Constraint, Expression, Variable};
use posthaste_plan::horizon::Demand;

use super::{Program, real, strand::Strand};

/// Slack below which a row can't bind, scaled.
const HAIR: f64 = 1e-9;

impl Program<'_> {
    pub(super) fn add_rows(&mut self) {
        let mut rows = Vec::new();
        for strand in &self.strands {
            self.conserve(strand, &mut rows);
            self.cap_fragments(strand, &mut rows);
            self.cap_rate(strand, &mut rows);
        }
        self.cap_links(&mut rows);
        self.cap_ways(&mut rows);
        self.cap_space(&mut rows);
        self.rows.extend(rows);
    }

    fn demand(&self, strand: &Strand) -> &Demand {
        &self.problem.demands[strand.demand]
    }

    /// Conserves bytes: those that stayed and came in a slot stay or go in the next.
    fn conserve(&self, strand: &Strand, rows: &mut Vec<Constraint>) {
        let demand = self.demand(strand);
        for &node in &demand.via {
            let Some(stays) = strand.stays(node) else {
                continue;
            };
            for slot in 0..strand.last {
                let mut balance = Expression::from(0.0);
                if slot == 0 {
                    balance += self.scaled(demand.held_at(node));
                } else {
                    if stays[slot - 1] == stays[slot] {
                        continue;
                    }
                    balance.add_mul(1.0, stays[slot - 1]);
                    for flow in strand.arriving(node, slot - 1) {
                        balance.add_mul(1.0, flow.variable);
                    }
                }
                for flow in strand.leaving(node, slot) {
                    balance.add_mul(-1.0, flow.variable);
                }
                balance.add_mul(-1.0, stays[slot]);
                rows.push(balance.eq(0.0));
            }
        }
    }

    /// Returns the boundaries at which a cap on depots' content can bind: the last, and for depots
    /// that pass data on, each after a slot in which some arrives.
    fn boundaries(strand: &Strand, nodes: &[usize]) -> Vec<usize> {
        let passes = nodes.iter().any(|&node| strand.stays(node).is_some());
        let arrives = |boundary: usize| {
            let mut nodes = nodes.iter();
            nodes.any(|&node| strand.arriving(node, boundary - 1).next().is_some())
        };
        (1..=strand.last)
            .filter(|&boundary| {
                if passes {
                    arrives(boundary)
                } else {
                    boundary == strand.last
                }
            })
            .collect()
    }

    /// Limits fragments of a chunk: one per depot, m per failure domain. A depot is in a row for
    /// each of its domains.
    fn cap_fragments(&self, strand: &Strand, rows: &mut Vec<Constraint>) {
        let demand = self.demand(strand);
        if !demand.is_coded() {
            return;
        }
        let mut domains: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
        for &node in &demand.via {
            for &domain in &self.problem.nodes[node].domains {
                domains.entry(domain).or_default().push(node);
            }
            let column = strand.column(self, node);
            for boundary in Self::boundaries(strand, &[node]) {
                if strand.potential(self, node, boundary) > column + HAIR {
                    rows.push(strand.stock(self, node, boundary).leq(column));
                }
            }
        }
        let (data, parity) = (
            real(demand.code.data().into()),
            usize::from(demand.code.parity()),
        );
        let column = strand.bytes / data;
        for nodes in domains
            .into_values()
            .filter(|nodes| parity > 0 && nodes.len() > parity)
        {
            let held = nodes.iter().map(|&node| self.scaled(demand.held_at(node)));
            let max = (column * real(parity as u64)).max(held.sum());
            for boundary in Self::boundaries(strand, &nodes) {
                let potential = nodes.iter().map(|&node| {
                    strand
                        .potential(self, node, boundary)
                        .min(strand.column(self, node))
                });
                if potential.sum::<f64>() > max + HAIR {
                    let held = nodes.iter().map(|&node| strand.stock(self, node, boundary));
                    rows.push(held.sum::<Expression>().leq(max));
                }
            }
        }
    }

    fn cap_rate(&self, strand: &Strand, rows: &mut Vec<Constraint>) {
        let demand = self.demand(strand);
        for (slot, cap) in self
            .problem
            .rate_caps(demand)
            .into_iter()
            .flatten()
            .enumerate()
        {
            let flows = strand.leaving(demand.source, slot);
            let flows: Vec<_> = flows.map(|flow| (flow.variable, flow.most)).collect();
            self.cap(&flows, cap.get(), rows);
        }
    }

    /// Adds a row if the sum could exceed the cap.
    fn cap(&self, flows: &[(Variable, f64)], cap: u64, rows: &mut Vec<Constraint>) {
        let cap = self.scaled(cap);
        if flows.iter().map(|(_, most)| most).sum::<f64>() > cap + HAIR {
            let sum: Expression = flows.iter().map(|(variable, _)| *variable).sum();
            rows.push(sum.leq(cap));
        }
    }

    fn cap_links(&self, rows: &mut Vec<Constraint>) {
        let mut links: BTreeMap<(usize, usize), Vec<(Variable, f64)>> = BTreeMap::new();
        for flow in self.strands.iter().flat_map(|strand| &strand.flows) {
            let sharing = links.entry((flow.link, flow.slot)).or_default();
            sharing.push((flow.variable, flow.most));
        }
        for ((link, slot), sharing) in links {
            self.cap(&sharing, self.residual.links[link][slot], rows);
        }
    }

    fn cap_ways(&self, rows: &mut Vec<Constraint>) {
        for node in 0..self.problem.nodes.len() {
            for slot in 0..self.problem.grid.slots() {
                let strands = self.strands.iter();
                if let Some(cap) = &self.residual.out[node] {
                    let leaving = strands
                        .clone()
                        .flat_map(|strand| strand.leaving(node, slot));
                    let leaving: Vec<_> = leaving.map(|flow| (flow.variable, flow.most)).collect();
                    self.cap(&leaving, cap[slot], rows);
                }
                if let Some(cap) = &self.residual.into[node] {
                    let arriving = strands.flat_map(|strand| strand.arriving(node, slot));
                    let arriving: Vec<_> =
                        arriving.map(|flow| (flow.variable, flow.most)).collect();
                    self.cap(&arriving, cap[slot], rows);
                }
            }
        }
    }

    /// Limits space at each boundary where it can bind. Where data only comes and stays, a boundary
    /// is left out if a later one has no more space.
    fn cap_space(&self, rows: &mut Vec<Constraint>) {
        let slots = self.problem.grid.slots();
        for node in 0..self.problem.nodes.len() {
            let is_sink = |strand: &Strand| self.demand(strand).sink == Some(node);
            let uses =
                |strand: &&Strand| is_sink(strand) || self.demand(strand).via.contains(&node);
            let strands: Vec<&Strand> = self.strands.iter().filter(uses).collect();
            let only_comes = strands.iter().all(|strand| {
                is_sink(strand)
                    || strand.stays(node).is_none() && !strand.drops(self.demand(strand))
            });
            let mut least = f64::INFINITY;
            for boundary in (1..=slots).rev() {
                let space = self
                    .residual
                    .space(self.problem, self.picks, node, boundary);
                let space = self.scaled(space);
                if only_comes && space >= least {
                    continue;
                }
                least = least.min(space);
                let potential: f64 = strands
                    .iter()
                    .map(|strand| {
                        strand
                            .potential(self, node, boundary)
                            .min(strand.column(self, node))
                    })
                    .sum();
                if potential > space + HAIR {
                    let held = strands
                        .iter()
                        .map(|strand| strand.stock(self, node, boundary));
                    rows.push(held.sum::<Expression>().leq(space));
                }
            }
        }
    }
}
