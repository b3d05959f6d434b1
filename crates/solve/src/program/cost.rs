//! Objective: nothing missing, then little cost, then early or late.

use std::collections::BTreeMap;

use good_lp::Expression;
use posthaste_plan::horizon::{Demand, Money, Price};

use super::{Program, real, strand::Strand};

/// Cost of a byte over a landmark, where the most expensive byte costs one: more than any other
/// way.
const LANDMARK: f64 = 5.0;
/// Cost of a missing byte of the demand with the greatest weight: more than any way.
const MISSING: f64 = 100.0;
/// Cost of a missing favoured byte: it is missing only if nothing can avoid that.
const FAVOURED: f64 = 3000.0;
/// Least weight of a demand, relative to the greatest.
const WEIGHT_MIN: f64 = 0.2;
/// Cost of a byte that waits for a whole horizon: it decides only between equal prices.
const WAITING: f64 = 1e-3;

fn per_byte(price: Price) -> f64 {
    let (micro_usd, bytes) = price.fraction();
    real(micro_usd) / real(bytes)
}

impl Program<'_> {
    pub(super) fn add_costs(&mut self, favoured: &[usize]) {
        let dearest = self.dearest();
        let strands = std::mem::take(&mut self.strands);
        let heaviest = self
            .picks
            .iter()
            .map(|&pick| self.problem.demands[pick].weight)
            .max();
        let heaviest = real(heaviest.unwrap_or(1).max(1).into());
        for strand in &strands {
            let demand = &self.problem.demands[strand.demand];
            let share = (real(demand.weight.into()) / heaviest).max(WEIGHT_MIN);
            let base = if favoured.contains(&strand.demand) {
                FAVOURED
            } else {
                MISSING
            };
            self.add_deadlines(strand, demand, base * share);
            let money = self.money(strand, demand);
            self.add_budget(&money, demand);
            self.objective += money * (1.0 / dearest);
            self.add_timing(strand, demand);
            self.add_churn(strand, dearest);
        }
        self.strands = strands;
    }

    /// Returns the highest price of a byte, for scale; one if everything is free.
    fn dearest(&self) -> f64 {
        let whole = self
            .problem
            .grid
            .start(self.problem.grid.slots())
            .as_secs_f64()
            / 3600.0;
        let links = self.problem.links.iter().map(|link| per_byte(link.price));
        let holds = self
            .problem
            .nodes
            .iter()
            .map(|node| per_byte(node.hold) * whole);
        let all = links.chain(holds).chain([per_byte(self.problem.churn)]);
        let dearest = all.fold(0.0, f64::max);
        if dearest > 0.0 { dearest } else { 1.0 }
    }

    /// Returns the cost of a strand in millionths of a dollar, for scaled bytes.
    fn money(&self, strand: &Strand, demand: &Demand) -> Expression {
        let mut sum = Expression::from(0.0);
        for flow in &strand.flows {
            let price = per_byte(self.problem.links[flow.link].price);
            if price > 0.0 {
                sum.add_mul(price, flow.variable);
            }
        }
        for node in demand.via.iter().copied().chain(demand.sink) {
            let hold = per_byte(self.problem.nodes[node].hold);
            if hold > 0.0 {
                for slot in 0..self.problem.grid.slots() {
                    let hours = self.problem.grid.length(slot).as_secs_f64() / 3600.0;
                    sum += strand.stock(self, node, slot) * (hold * hours);
                }
            }
        }
        sum
    }

    /// Adds soft deadlines: the missing bytes are a variable with a price.
    fn add_deadlines(&mut self, strand: &Strand, demand: &Demand, penalty: f64) {
        let slots = self.problem.grid.slots();
        if let Some(sink) = demand.sink {
            let mut delivered = strand.stock(self, sink, slots);
            if demand.deliver_by.is_some() || !demand.is_coded() {
                let missing = self.add(f64::INFINITY);
                delivered.add_mul(1.0, missing);
                self.objective.add_mul(penalty, missing);
                self.rows.push(delivered.eq(strand.bytes));
            } else {
                self.rows.push(delivered.leq(strand.bytes));
            }
        }
        if let Some(deadline) = demand.offload_by {
            let boundary = self.problem.grid.ended_by(deadline);
            let (missing, safe) = (self.add(f64::INFINITY), self.add(strand.bytes));
            self.objective.add_mul(penalty, missing);
            let mut all = demand.sink.map_or(Expression::from(0.0), |sink| {
                strand.stock(self, sink, boundary)
            });
            all.add_mul(1.0, missing);
            all.add_mul(1.0, safe);
            self.rows.push(all.eq(strand.bytes));
            let data = real(demand.code.data().into());
            for &node in &demand.pinned {
                let mut pinned = strand.stock(self, node, boundary) * data;
                pinned.add_mul(1.0, missing);
                self.rows.push(pinned.geq(strand.bytes));
            }
            self.add_safety(strand, demand, boundary, safe);
        }
    }

    /// Counts `safe` bytes as coded on the depots, each with its fragments only.
    fn add_safety(
        &mut self,
        strand: &Strand,
        demand: &Demand,
        boundary: usize,
        safe: good_lp::Variable,
    ) {
        let data = real(demand.code.data().into());
        let parity = real(demand.code.parity().into());
        let mut all = Expression::from(0.0);
        let mut domains: BTreeMap<u32, Vec<good_lp::Variable>> = BTreeMap::new();
        for &node in &demand.via {
            if strand.potential(self, node, boundary) <= 0.0 {
                continue;
            }
            let counted = self.add(f64::INFINITY);
            let held = strand.stock(self, node, boundary);
            self.rows.push((Expression::from(counted) - held).leq(0.0));
            self.rows
                .push((Expression::from(counted) - safe * (1.0 / data)).leq(0.0));
            all.add_mul(1.0, counted);
            for &domain in &self.problem.nodes[node].domains {
                domains.entry(domain).or_default().push(counted);
            }
        }
        let crowded = |inside: &Vec<_>| parity > 0.0 && real(inside.len() as u64) > parity;
        for inside in domains.into_values().filter(crowded) {
            let sum: Expression = inside.into_iter().sum();
            self.rows.push((sum - safe * (parity / data)).leq(0.0));
        }
        all.add_mul(-(data + parity) / data, safe);
        self.rows.push(all.eq(0.0));
    }

    /// Adds the budget. Each link and node may round its money up by one.
    fn add_budget(&mut self, money: &Expression, demand: &Demand) {
        let Some(budget) = demand.budget else { return };
        let spare = (self.problem.links.len() + self.problem.nodes.len()) as u64;
        let spare = Money::from_micro_usd(spare).micro_usd();
        let budget = real(budget.micro_usd().saturating_sub(spare));
        let scale = self.unit / budget.max(1.0);
        let most = if budget > 0.0 { 1.0 } else { 0.0 };
        self.rows.push((money.clone() * scale).leq(most));
    }

    /// Adds timing: early from the source and to the sink; stage-ins as late as allowed.
    fn add_timing(&mut self, strand: &Strand, demand: &Demand) {
        let slots = real(self.problem.grid.slots() as u64);
        for flow in &strand.flows {
            let link = &self.problem.links[flow.link];
            let waited = real(flow.slot as u64) / slots;
            let is_sink = Some(link.to) == demand.sink;
            let share = if is_sink && demand.not_before.is_some() {
                1.0 - waited
            } else {
                waited
            };
            let by_landmark = [link.from, link.to]
                .iter()
                .any(|&node| self.problem.nodes[node].is_landmark);
            let landmark = if by_landmark { LANDMARK } else { 0.0 };
            self.objective
                .add_mul(WAITING * share + landmark, flow.variable);
        }
    }

    /// Adds the cost of bytes moved away from the plan in force. The same bytes are added
    /// elsewhere, so counting one side is enough.
    fn add_churn(&mut self, strand: &Strand, dearest: f64) {
        let churn = per_byte(self.problem.churn) / dearest;
        if churn <= 0.0 {
            return;
        }
        let before: BTreeMap<(usize, usize), u64> = self
            .problem
            .previous
            .iter()
            .filter(|flow| flow.demand == strand.demand)
            .map(|flow| ((flow.link, flow.slot), flow.bytes.get()))
            .collect();
        for flow in &strand.flows {
            if let Some(&bytes) = before.get(&(flow.link, flow.slot)) {
                let moved = self.add(f64::INFINITY);
                self.objective.add_mul(churn, moved);
                let kept = Expression::from(flow.variable) + moved;
                let bytes = self.scaled(bytes);
                self.rows.push(kept.geq(bytes));
            }
        }
    }
}
