//! Variables of one demand.

use std::collections::BTreeMap;

use good_lp::{Expression, Variable};
use posthaste_plan::horizon::{Demand, Problem};

use super::{Program, real};

/// Bytes of a demand on a link in a slot.
#[derive(Debug, Clone, Copy)]
pub(super) struct FlowColumn {
    pub(super) link: usize,
    pub(super) slot: usize,
    pub(super) variable: Variable,
    /// Upper limit, scaled.
    pub(super) most: f64,
}

/// Variables of one demand in a program.
pub(super) struct Strand {
    pub(super) demand: usize,
    /// Boundary after which nothing of it moves.
    pub(super) last: usize,
    /// Its size, scaled, plus the bytes that rounding may take away.
    pub(super) bytes: f64,
    pub(super) flows: Vec<FlowColumn>,
    /// Places among the flows of those that arrive at a node in a slot.
    into: BTreeMap<(usize, usize), Vec<usize>>,
    out: BTreeMap<(usize, usize), Vec<usize>>,
    /// Bytes that stay during each slot at nodes that pass data on.
    stays: BTreeMap<usize, Vec<Variable>>,
}

/// Spare bytes per variable: a rounding loses up to a byte, and a code needs k of them for each.
const SPARE_BYTES: u64 = 2;
/// Divisor: the spare is at most this fraction of a demand.
const SPARE_SHARE: u64 = 1000;

/// Returns the boundary after which moving data no longer helps the demand.
fn last(problem: &Problem, demand: &Demand) -> usize {
    let window = demand.window(&problem.grid);
    let offload = demand
        .offload_by
        .map_or(0, |deadline| problem.grid.ended_by(deadline));
    match demand.sink {
        Some(_) if demand.deliver_by.is_some() || !demand.is_coded() => {
            window.arrive.end.max(offload)
        }
        Some(_) | None => offload,
    }
}

/// Returns whether the demand's data helps on this link in this slot.
fn helps(problem: &Problem, demand: &Demand, link: usize, slot: usize, last: usize) -> bool {
    let ends = &problem.links[link];
    let window = demand.window(&problem.grid);
    let leaves = if ends.from == demand.source {
        window.leave.contains(&slot)
    } else {
        slot > 0 || demand.held_at(ends.from) > 0
    };
    let goes_on =
        |link: &posthaste_plan::horizon::Link| link.from == ends.to && demand.may_use(link);
    let arrives = if Some(ends.to) == demand.sink {
        slot >= window.arrive.start
            && slot < last
            && (demand.is_coded() || slot < window.arrive.end)
    } else if demand.is_coded() {
        slot < last
    } else {
        slot + 1 < last && problem.links.iter().any(goes_on)
    };
    leaves && arrives
}

/// Returns the links a demand may use, and the slots of each in which it helps.
fn usable(problem: &Problem, demand: &Demand) -> Vec<(usize, Vec<usize>)> {
    let last = last(problem, demand);
    let links = problem.links.iter().enumerate();
    links
        .filter(|(_, link)| demand.may_use(link))
        .map(|(place, _)| {
            let slots = 0..problem.grid.slots().min(last);
            (
                place,
                slots
                    .filter(|&slot| helps(problem, demand, place, slot, last))
                    .collect(),
            )
        })
        .collect()
}

/// Returns the most variables of a demand.
pub(super) fn columns(problem: &Problem, demand: &Demand) -> usize {
    let flows: usize = usable(problem, demand)
        .iter()
        .map(|(link, slots)| {
            slots
                .iter()
                .filter(|&&slot| problem.carries_for(demand, *link, slot) > 0)
                .count()
        })
        .sum();
    flows + (last(problem, demand) + 1) * demand.via.len()
}

impl Strand {
    pub(super) fn new(program: &mut Program<'_>, pick: usize) -> Self {
        let problem = program.problem;
        let demand = &problem.demands[pick];
        let total = demand
            .column()
            .times(u64::from(demand.code.total()))
            .max(demand.bytes);
        let mut strand = Self {
            demand: pick,
            last: last(problem, demand),
            bytes: 0.0,
            flows: Vec::new(),
            into: BTreeMap::new(),
            out: BTreeMap::new(),
            stays: BTreeMap::new(),
        };
        for (link, slots) in usable(problem, demand) {
            for slot in slots {
                let carried = program.residual.links[link][slot];
                let most = carried.min(problem.carries_for(demand, link, slot));
                let most = most.min(total.get());
                if most > 0 {
                    let most = program.scaled(most);
                    strand.add_flow(program, link, slot, most);
                }
            }
        }
        let spare = SPARE_BYTES * u64::from(demand.code.data()) * strand.flows.len() as u64;
        let bytes = demand.bytes.get();
        strand.bytes = program.scaled(bytes.saturating_add(spare.min(bytes / SPARE_SHARE)));
        strand.add_stays(program);
        strand
    }

    fn add_flow(&mut self, program: &mut Program<'_>, link: usize, slot: usize, most: f64) {
        let ends = &program.problem.links[link];
        let place = self.flows.len();
        self.into.entry((ends.to, slot)).or_default().push(place);
        self.out.entry((ends.from, slot)).or_default().push(place);
        let variable = program.add(most);
        self.flows.push(FlowColumn {
            link,
            slot,
            variable,
            most,
        });
    }

    /// Adds the stays of each depot that passes data on; without arrivals and departures a slot
    /// reuses the one before.
    fn add_stays(&mut self, program: &mut Program<'_>) {
        let demand = &program.problem.demands[self.demand];
        for &node in &demand.via {
            if !self.out.keys().any(|(from, _)| *from == node) {
                continue;
            }
            let mut stays: Vec<Variable> = Vec::with_capacity(self.last);
            for slot in 0..self.last {
                let is_quiet = slot > 0
                    && !self.into.contains_key(&(node, slot - 1))
                    && !self.out.contains_key(&(node, slot));
                let variable = match stays.last() {
                    Some(before) if is_quiet => *before,
                    _ => program.add(f64::INFINITY),
                };
                stays.push(variable);
            }
            self.stays.insert(node, stays);
        }
    }

    pub(super) fn arriving(&self, node: usize, slot: usize) -> impl Iterator<Item = &FlowColumn> {
        let places = self.into.get(&(node, slot)).into_iter().flatten();
        places.map(|&place| &self.flows[place])
    }

    pub(super) fn leaving(&self, node: usize, slot: usize) -> impl Iterator<Item = &FlowColumn> {
        let places = self.out.get(&(node, slot)).into_iter().flatten();
        places.map(|&place| &self.flows[place])
    }

    /// Returns the stays of a node that passes data on, slot by slot.
    pub(super) fn stays(&self, node: usize) -> Option<&[Variable]> {
        self.stays.get(&node).map(Vec::as_slice)
    }

    /// Returns whether depots drop everything after the last boundary, because the sink has it.
    pub(super) fn drops(&self, demand: &Demand) -> bool {
        demand.sink.is_some() && (demand.deliver_by.is_some() || !demand.is_coded())
    }

    /// Returns a node's stock at a boundary.
    pub(super) fn stock(&self, program: &Program<'_>, node: usize, boundary: usize) -> Expression {
        let demand = &program.problem.demands[self.demand];
        let is_sink = Some(node) == demand.sink;
        if boundary > self.last && self.drops(demand) && !is_sink {
            return Expression::from(0.0);
        }
        let boundary = boundary.min(self.last);
        let mut sum = Expression::from(0.0);
        match self.stays(node) {
            Some(stays) if boundary < self.last => {
                sum.add_mul(1.0, stays[boundary]);
                for flow in self.leaving(node, boundary) {
                    sum.add_mul(1.0, flow.variable);
                }
            }
            Some(stays) if boundary > 0 => {
                sum.add_mul(1.0, stays[boundary - 1]);
                for flow in self.arriving(node, boundary - 1) {
                    sum.add_mul(1.0, flow.variable);
                }
            }
            Some(_) | None => {
                sum += program.scaled(demand.held_at(node));
                for slot in 0..boundary {
                    for flow in self.arriving(node, slot) {
                        sum.add_mul(1.0, flow.variable);
                    }
                }
            }
        }
        sum
    }

    /// Returns the most a node could hold at a boundary if nothing else limited it.
    pub(super) fn potential(&self, program: &Program<'_>, node: usize, boundary: usize) -> f64 {
        let demand = &program.problem.demands[self.demand];
        if boundary > self.last && self.drops(demand) && Some(node) != demand.sink {
            return 0.0;
        }
        let slots = 0..boundary.min(self.last);
        let comes: f64 = slots
            .flat_map(|slot| self.arriving(node, slot))
            .map(|flow| flow.most)
            .sum();
        program.scaled(demand.held_at(node)) + comes
    }

    /// Returns the most a depot may hold of a coded demand, scaled: one fragment of each chunk.
    pub(super) fn column(&self, program: &Program<'_>, node: usize) -> f64 {
        let demand = &program.problem.demands[self.demand];
        if demand.is_coded() {
            let column = self.bytes / real(u64::from(demand.code.data()));
            column.max(program.scaled(demand.held_at(node)))
        } else {
            self.bytes
        }
    }
}
