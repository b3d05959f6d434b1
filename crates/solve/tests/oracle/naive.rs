//! The oracle of deadlines: a textbook program with hard deadlines, solved for every set of
//! demands.

use good_lp::{
    Constraint, Expression, ProblemVariables, Solution, SolverModel, Variable,
    solvers::microlp::microlp, variable,
};
use posthaste_plan::horizon::{Demand, Problem};
use std::collections::BTreeMap;

/// Bytes per unit of a variable.
const UNIT: f64 = 100_000.0;

fn scaled(bytes: u64) -> f64 {
    bytes as f64 / UNIT
}

/// Variables of one demand: its flows by link and slot, its stocks by node and boundary.
struct Thread {
    flows: BTreeMap<(usize, usize), Variable>,
    stock: Vec<Vec<Variable>>,
}

/// Returns the greatest weight of demands that can keep all their deadlines together, above
/// `least`.
pub fn most_weight(problem: &Problem, least: u64) -> u64 {
    let count = problem.demands.len();
    let weight = |set: u32| -> u64 {
        (0..count)
            .filter(|demand| set >> demand & 1 == 1)
            .map(|demand| u64::from(problem.demands[demand].weight))
            .sum()
    };
    let mut sets: Vec<(u64, u32)> = (0..1 << count).map(|set| (weight(set), set)).collect();
    sets.sort_unstable_by(|one, other| other.cmp(one));
    let better = sets.into_iter().take_while(|(weight, _)| *weight > least);
    let feasible = |set: u32| {
        let picks: Vec<usize> = (0..count).filter(|demand| set >> demand & 1 == 1).collect();
        is_feasible(problem, &picks)
    };
    let found = better
        .filter(|(_, set)| feasible(*set))
        .map(|(weight, _)| weight)
        .next();
    found.unwrap_or(least)
}

fn is_feasible(problem: &Problem, picks: &[usize]) -> bool {
    let mut variables = ProblemVariables::new();
    let mut rows = Vec::new();
    let threads: Vec<Thread> = picks
        .iter()
        .map(|&pick| thread(problem, &problem.demands[pick], &mut variables, &mut rows))
        .collect();
    share(problem, picks, &threads, &mut rows);
    let any: Expression = Expression::from(0.0);
    let mut model = variables.minimise(any).using(microlp);
    for row in rows {
        model.add_constraint(row);
    }
    model
        .solve()
        .is_ok_and(|solution| solution.value(threads[0].stock[0][0]).is_finite())
}

fn thread(
    problem: &Problem,
    demand: &Demand,
    variables: &mut ProblemVariables,
    rows: &mut Vec<Constraint>,
) -> Thread {
    let slots = problem.grid.slots();
    let window = demand.window(&problem.grid);
    let mut flows = BTreeMap::new();
    for (place, link) in problem
        .links
        .iter()
        .enumerate()
        .filter(|(_, link)| demand.may_use(link))
    {
        for slot in 0..slots {
            let leaves = link.from != demand.source || window.leave.contains(&slot);
            let arrives = Some(link.to) != demand.sink || slot >= window.arrive.start;
            if leaves && arrives {
                flows.insert((place, slot), variables.add(variable().min(0.0)));
            }
        }
    }
    let stock: Vec<Vec<Variable>> = (0..problem.nodes.len())
        .map(|_| {
            (0..=slots)
                .map(|_| variables.add(variable().min(0.0)))
                .collect()
        })
        .collect();
    let thread = Thread { flows, stock };
    for node in (0..problem.nodes.len()).filter(|node| *node != demand.source) {
        rows.push(Expression::from(thread.stock[node][0]).eq(0.0));
        for slot in 0..slots {
            let sum = |is_out: bool| -> Expression {
                let ends = |link: usize| {
                    if is_out {
                        problem.links[link].from
                    } else {
                        problem.links[link].to
                    }
                };
                let there = thread
                    .flows
                    .iter()
                    .filter(|((link, at), _)| *at == slot && ends(*link) == node);
                there.map(|(_, variable)| *variable).sum()
            };
            rows.push((sum(true) - thread.stock[node][slot]).leq(0.0));
            rows.push(
                (thread.stock[node][slot] + sum(false) - sum(true) - thread.stock[node][slot + 1])
                    .eq(0.0),
            );
        }
    }
    keep(problem, demand, &thread, variables, rows);
    thread
}

/// Adds the deadlines of one demand, its caps and its budget.
fn keep(
    problem: &Problem,
    demand: &Demand,
    thread: &Thread,
    variables: &mut ProblemVariables,
    rows: &mut Vec<Constraint>,
) {
    let slots = problem.grid.slots();
    let bytes = scaled(demand.bytes.get());
    let (data, parity) = (
        f64::from(demand.code.data()),
        f64::from(demand.code.parity()),
    );
    if let Some(sink) = demand.sink {
        rows.push(Expression::from(thread.stock[sink][slots]).leq(bytes));
        if let Some(deadline) = demand.deliver_by {
            let boundary = problem.grid.ended_by(deadline);
            rows.push(Expression::from(thread.stock[sink][boundary]).geq(bytes));
        }
    }
    stay_below(problem, demand, thread, rows);
    if let Some(budget) = demand.budget {
        let money = thread.flows.iter().map(|((link, _), variable)| {
            let (micro_usd, per) = problem.links[*link].price.fraction();
            *variable * (micro_usd as f64 / per as f64 * UNIT)
        });
        rows.push(money.sum::<Expression>().leq(budget.micro_usd() as f64));
    }
    let Some(deadline) = demand.offload_by else {
        return;
    };
    let mut domains: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
    for &node in &demand.via {
        for &domain in &problem.nodes[node].domains {
            domains.entry(domain).or_default().push(node);
        }
    }
    let safe = variables.add(variable().min(0.0));
    let boundary = problem.grid.ended_by(deadline);
    let at_sink = demand.sink.map_or(Expression::from(0.0), |sink| {
        thread.stock[sink][boundary].into()
    });
    rows.push((at_sink + safe).eq(bytes));
    for &node in &demand.pinned {
        rows.push(Expression::from(thread.stock[node][boundary]).geq(bytes / data));
    }
    let mut all = Expression::from(0.0);
    let mut shares = BTreeMap::new();
    for &node in &demand.via {
        let share = variables.add(variable().min(0.0));
        rows.push((Expression::from(share) - thread.stock[node][boundary]).leq(0.0));
        rows.push((Expression::from(share) - safe * (1.0 / data)).leq(0.0));
        for stock in &thread.stock[node] {
            rows.push(Expression::from(*stock).leq(bytes / data));
        }
        all += share;
        shares.insert(node, share);
    }
    for nodes in domains.values().filter(|_| parity > 0.0) {
        let counted: Expression = nodes.iter().map(|node| shares[node]).sum();
        rows.push((counted - safe * (parity / data)).leq(0.0));
        for boundary in 0..=slots {
            let held: Expression = nodes.iter().map(|&node| thread.stock[node][boundary]).sum();
            rows.push(held.leq(bytes * parity / data));
        }
    }
    rows.push((all - safe * ((data + parity) / data)).geq(0.0));
}

/// Limits its bytes on each link, and from its source.
fn stay_below(problem: &Problem, demand: &Demand, thread: &Thread, rows: &mut Vec<Constraint>) {
    for (&(link, slot), &variable) in &thread.flows {
        if let Some(lent) = demand.lent_at(link, slot) {
            rows.push(Expression::from(variable).leq(scaled(lent.get())));
        }
    }
    for (slot, cap) in problem.rate_caps(demand).into_iter().flatten().enumerate() {
        let first = |link: usize| problem.links[link].from == demand.source;
        let leaving = thread
            .flows
            .iter()
            .filter(|((link, at), _)| *at == slot && first(*link));
        let leaving: Expression = leaving.map(|(_, variable)| *variable).sum();
        rows.push(leaving.leq(scaled(cap.get())));
    }
}

/// Adds the limits that demands share.
fn share(problem: &Problem, picks: &[usize], threads: &[Thread], rows: &mut Vec<Constraint>) {
    let over = |chosen: &dyn Fn(usize) -> bool, slot: usize| -> Expression {
        let flows = threads.iter().flat_map(|thread| &thread.flows);
        flows
            .filter(|((link, at), _)| *at == slot && chosen(*link))
            .map(|(_, variable)| *variable)
            .sum()
    };
    for slot in 0..problem.grid.slots() {
        for link in 0..problem.links.len() {
            rows.push(over(&|other| other == link, slot).leq(scaled(problem.carries(link, slot))));
        }
        for (node, place) in problem.nodes.iter().enumerate() {
            if let Some(cap) = &place.way_out {
                let leaving = over(&|link| problem.links[link].from == node, slot);
                rows.push(leaving.leq(scaled(cap[slot].get())));
            }
        }
    }
    for (node, place) in problem.nodes.iter().enumerate() {
        for boundary in 0..=problem.grid.slots() {
            let held = picks.iter().zip(threads).filter(|(pick, _)| {
                let demand = &problem.demands[**pick];
                let last = demand.deliver_by.filter(|_| demand.sink.is_some());
                let is_there = last.is_none_or(|last| boundary <= problem.grid.ended_by(last));
                demand.source != node && (is_there || demand.sink == Some(node))
            });
            let held: Expression = held.map(|(_, thread)| thread.stock[node][boundary]).sum();
            rows.push(held.leq(scaled(place.space.get())));
        }
    }
}
