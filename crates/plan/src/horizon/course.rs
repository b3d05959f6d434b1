//! Stock, shortfall and cost that follow from the flows of one demand.

use alloc::{collections::BTreeMap, vec, vec::Vec};
use posthaste_types::{Bytes, record};

use super::{Demand, Flaw, Flow, Money, Problem, price::byte_seconds};

record! {
    /// Bytes a demand lacks at its deadlines.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
    pub struct Shortfall {
        /// Bytes that are neither at the sink nor safe on depots when the source must be empty.
        pub offload: Bytes,
        /// Bytes the sink lacks at its deadline.
        pub deliver: Bytes,
    }
}

impl Shortfall {
    /// Returns whether nothing is missing.
    #[must_use]
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }
}

/// Location of one demand's bytes at every moment of a schedule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Course {
    /// Bytes each node holds at the start of each slot, and at the end.
    pub stock: Vec<Vec<u64>>,
    /// Missing bytes.
    pub shortfall: Shortfall,
    /// Cost of moving and keeping.
    pub cost: Money,
}

/// Follows `flows`, all of `demand` and ordered by slot. Data that arrives in a slot is there when
/// the next one begins. Depots drop their data when the sink has everything.
///
/// # Errors
/// The first broken rule of this demand alone; rules that demands share are not checked.
pub(crate) fn follow(problem: &Problem, demand: &Demand, flows: &[Flow]) -> Result<Course, Flaw> {
    let slots = problem.grid.slots();
    let caps = Caps::of(problem, demand);
    let window = demand.window(&problem.grid);
    let mut held = problem.per_node();
    for &(node, bytes) in &demand.held {
        *held.get_mut(node).ok_or(Flaw::Unknown)? = bytes.get();
    }
    let mut stock = Vec::with_capacity(slots + 1);
    let mut rest = flows;
    for slot in 0..slots {
        stock.push(held.clone());
        let count = rest.iter().take_while(|flow| flow.slot == slot).count();
        let (now, later) = rest.split_at(count);
        rest = later;
        if now.is_empty() {
            continue;
        }
        let mut arrived = problem.per_node();
        for flow in now {
            let link = problem.links.get(flow.link).ok_or(Flaw::Unknown)?;
            if !demand.may_use(link) {
                return Err(Flaw::Forbidden { link: flow.link });
            }
            let is_source = link.from == demand.source;
            let is_sink = Some(link.to) == demand.sink;
            if is_source && !window.leave.contains(&slot) || is_sink && slot < window.arrive.start {
                return Err(Flaw::OutsideWindow {
                    link: flow.link,
                    slot,
                });
            }
            if demand
                .lent_at(flow.link, slot)
                .is_some_and(|lent| flow.bytes > lent)
            {
                return Err(Flaw::Overbooked {
                    link: flow.link,
                    slot,
                });
            }
            if !is_source {
                let left = held[link.from].checked_sub(flow.bytes.get());
                held[link.from] = left.ok_or(Flaw::NotThere {
                    node: link.from,
                    slot,
                })?;
            }
            arrived[link.to] = arrived[link.to].saturating_add(flow.bytes.get());
        }
        for (held, arrived) in held.iter_mut().zip(arrived) {
            *held = held.saturating_add(arrived);
        }
        caps.check(problem, demand, &held, slot)?;
        if is_delivered(demand, &held) {
            drop_copies(demand, &mut held);
        }
    }
    if !rest.is_empty() {
        return Err(Flaw::Unknown);
    }
    stock.push(held);
    let cost = cost(problem, flows, &stock);
    if demand.budget.is_some_and(|budget| cost > budget) {
        return Err(Flaw::OverBudget);
    }
    Ok(Course {
        shortfall: shortfall(problem, demand, &stock),
        stock,
        cost,
    })
}

fn at_sink(demand: &Demand, held: &[u64]) -> u64 {
    demand.sink.map_or(0, |sink| held[sink])
}

pub(crate) fn is_delivered(demand: &Demand, held: &[u64]) -> bool {
    demand.sink.is_some() && at_sink(demand, held) >= demand.bytes.get()
}

pub(crate) fn drop_copies(demand: &Demand, held: &mut [u64]) {
    for (node, held) in held.iter_mut().enumerate() {
        if Some(node) != demand.sink && !demand.pinned.contains(&node) {
            *held = 0;
        }
    }
}

/// Most bytes that nodes and failure domains may hold of one demand.
pub(crate) struct Caps {
    pub(crate) node: Vec<u64>,
    /// Only failure domains that could hold too much.
    domains: Vec<(u32, u64)>,
}

impl Caps {
    pub(crate) fn of(problem: &Problem, demand: &Demand) -> Self {
        let column = if demand.is_coded() {
            demand.column().get()
        } else {
            u64::MAX
        };
        let node = (0..problem.nodes.len())
            .map(|node| {
                if Some(node) == demand.sink {
                    demand.bytes.get().max(demand.held_at(node))
                } else {
                    column.max(demand.held_at(node))
                }
            })
            .collect();
        let mut held: BTreeMap<u32, (u64, u64)> = BTreeMap::new();
        for &node in &demand.via {
            let place = problem.nodes.get(node);
            for &domain in place.iter().flat_map(|place| &place.domains) {
                let sum = held.entry(domain).or_default();
                *sum = (sum.0.saturating_add(demand.held_at(node)), sum.1 + 1);
            }
        }
        let max = demand.domain_max();
        let parity = u64::from(demand.code.parity());
        let domains = held
            .into_iter()
            .filter(|(_, (_, nodes))| max < u64::MAX && *nodes > parity)
            .map(|(domain, (held, _))| (domain, max.max(held)))
            .collect();
        Self { node, domains }
    }

    /// Returns the bytes a node may still take when nodes hold this much.
    pub(crate) fn room(
        &self,
        problem: &Problem,
        demand: &Demand,
        held: &[u64],
        node: usize,
    ) -> u64 {
        let is_depot = demand.via.contains(&node);
        let domains = &problem.nodes[node].domains;
        let limits = self.domains.iter();
        let limits = limits.filter(|(domain, _)| is_depot && domains.contains(domain));
        let rooms =
            limits.map(|&(domain, max)| max.saturating_sub(inside(problem, demand, held, domain)));
        let room = self.node[node].saturating_sub(held[node]);
        rooms.fold(room, u64::min)
    }

    fn check(
        &self,
        problem: &Problem,
        demand: &Demand,
        held: &[u64],
        slot: usize,
    ) -> Result<(), Flaw> {
        if let Some(node) = (0..held.len()).find(|&node| held[node] > self.node[node]) {
            return Err(Flaw::TooMuch { node, slot });
        }
        for &(domain, max) in &self.domains {
            if inside(problem, demand, held, domain) > max {
                return Err(Flaw::TooMuchInDomain { domain, slot });
            }
        }
        Ok(())
    }
}

fn inside(problem: &Problem, demand: &Demand, held: &[u64], domain: u32) -> u64 {
    let there = demand
        .via
        .iter()
        .filter(|&&node| problem.nodes[node].domains.contains(&domain));
    there.map(|&node| held[node]).fold(0, u64::saturating_add)
}

fn cost(problem: &Problem, flows: &[Flow], stock: &[Vec<u64>]) -> Money {
    let mut over: BTreeMap<usize, u64> = BTreeMap::new();
    for flow in flows {
        let sum = over.entry(flow.link).or_default();
        *sum = sum.saturating_add(flow.bytes.get());
    }
    let moving = over
        .into_iter()
        .map(|(link, bytes)| problem.links[link].price.of(Bytes::new(bytes)));
    let keeping = problem.nodes.iter().enumerate().map(|(place, node)| {
        let lies = stock
            .iter()
            .enumerate()
            .map(|(slot, held)| byte_seconds(held[place], problem.grid.length(slot)))
            .fold(0u128, u128::saturating_add);
        node.hold.keeping(lies)
    });
    moving.chain(keeping).sum()
}

fn shortfall(problem: &Problem, demand: &Demand, stock: &[Vec<u64>]) -> Shortfall {
    let slots = problem.grid.slots();
    let at = |deadline| &stock[problem.grid.ended_by(deadline).min(slots)];
    let bytes = demand.bytes.get();
    let offload = demand.offload_by.map_or(0, |deadline| {
        let held = at(deadline);
        let left = bytes.saturating_sub(at_sink(demand, held));
        let uncoded = left - safe(problem, demand, left, held);
        uncoded.max(demand.unpinned(held))
    });
    let deliver = match (demand.sink, demand.deliver_by) {
        (Some(sink), Some(deadline)) => bytes.saturating_sub(at(deadline)[sink]),
        // A copy without a deadline must finish within the plan.
        (Some(sink), None) if !demand.is_coded() => bytes.saturating_sub(stock[slots][sink]),
        (Some(_) | None, _) => 0,
    };
    Shortfall {
        offload: Bytes::new(offload),
        deliver: Bytes::new(deliver),
    }
}

/// Returns how many of `left` bytes the depots hold coded.
///
/// This is the largest y such that shares of at most y/k per depot and m·y/k per failure domain add
/// up to (k+m)·y/k (`docs/algorithms/placement.md`, on volumes). Overlapping domains are counted
/// greedily, depots that share with the fewest first, and by volume. Where three of them overlap in
/// a ring the result may exceed what any chunk can have.
pub(crate) fn safe(problem: &Problem, demand: &Demand, left: u64, held: &[u64]) -> u64 {
    let (data, parity) = (
        u128::from(demand.code.data()),
        u128::from(demand.code.parity()),
    );
    let of = |node: &usize| problem.nodes[*node].domains.iter();
    let mut domains: Vec<u32> = demand.via.iter().flat_map(of).copied().collect();
    domains.sort_unstable();
    domains.dedup();
    let place = |domain: &u32| domains.binary_search(domain).ok();
    let places = problem.fewest_shared(&demand.via).into_iter();
    let places = places.map(|node| (held[node], of(&node).filter_map(place).collect()));
    let places: Vec<(u64, Vec<usize>)> = places.collect();
    let mut inside = vec![0u128; domains.len()];
    let mut holds = |column: u64| {
        inside.fill(0);
        let most = match parity {
            0 => u128::MAX,
            _ => parity * u128::from(column),
        };
        let mut all = 0;
        for (held, domains) in &places {
            let fullest = domains.iter().map(|&place| inside[place]).max();
            let room = most - fullest.unwrap_or(0);
            let counted = u128::from((*held).min(column)).min(room);
            domains.iter().for_each(|&place| inside[place] += counted);
            all += counted;
        }
        all >= (data + parity) * u128::from(column)
    };
    let (mut low, mut high) = (0, left.div_ceil(u64::from(demand.code.data())));
    while low < high {
        let middle = low + (high - low).div_ceil(2);
        if holds(middle) {
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    left.min(low.saturating_mul(u64::from(demand.code.data())))
}
