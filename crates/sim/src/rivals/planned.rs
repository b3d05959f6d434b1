//! The plan over time as a policy, recomputed every few seconds from the depots' recent rates.

use std::{collections::BTreeMap, time::Duration};

use posthaste_plan::horizon::{Demand, Grid, Link, Node, Price, Problem, greedy};
use posthaste_types::{ByteRate, Bytes, DepotId, FragmentIndex, RequestId, Timestamp};

use super::{
    Ledger, Pick, Policy,
    ledger::{Order, Place},
    staged::Cursors,
};

/// Looks, a second each, between two plans.
const PLAN_EVERY: u32 = 5;
/// Time by which transfers may run ahead of the plan, so that no depot is idle before the next one.
const AHEAD: Duration = Duration::from_secs(15);
/// Length of the slots between deadlines.
const STEP: Duration = Duration::from_secs(10);
/// End of plans. Later deadlines are planned later.
const HORIZON: Duration = Duration::from_secs(900);
/// Percentage of a depot's recent rate that plans use.
const CAUTION_PERCENT: u64 = 90;

#[derive(Debug, Default)]
pub(super) struct Planned {
    /// Bytes of each request that each depot is still to get under this plan.
    quotas: BTreeMap<(DepotId, RequestId), u64>,
    looks: u32,
    known: usize,
    cursors: Cursors,
}

impl Policy for Planned {
    fn look(&mut self, ledger: &Ledger) {
        self.looks += 1;
        let moving = ledger.moving().count();
        let is_changed = moving != self.known;
        if is_changed || self.looks.is_multiple_of(PLAN_EVERY) {
            self.known = moving;
            self.plan(ledger);
        }
    }

    /// Chooses from the depot's planned requests by deadline, then the most urgent request.
    /// Forecasts err, and an idle depot helps nobody.
    fn next(&mut self, ledger: &Ledger, depot: DepotId) -> Option<Pick> {
        let uses = |order: &Order| {
            order.spec.via.contains(&depot) || order.spec.destinations.contains(&depot)
        };
        let mut open: Vec<(bool, Timestamp, RequestId, &Order)> = ledger
            .moving()
            .filter(|(_, order)| uses(order))
            .map(|(request, order)| {
                let left = self.quotas.get(&(depot, request)).copied().unwrap_or(0);
                let is_late = order.spec.deadline <= ledger.now;
                (left == 0 || is_late, order.spec.deadline, request, order)
            })
            .collect();
        open.sort_by_key(|(is_extra, deadline, request, _)| (*is_extra, *deadline, *request));
        let (pick, bytes) = open.into_iter().find_map(|(_, _, request, order)| {
            let (chunk, fragment) = match order.spec.destinations.contains(&depot) {
                true => (whole(order)?, FragmentIndex::WHOLE),
                false => {
                    let chunk = self.cursors.open(ledger, request, order, depot).next()?;
                    (chunk, FragmentIndex::new(order.missing(chunk).next()?))
                }
            };
            let pick = Pick {
                request,
                chunk,
                fragment,
            };
            Some((pick, size(order, pick)))
        })?;
        if let Some(left) = self.quotas.get_mut(&(depot, pick.request)) {
            *left = left.saturating_sub(bytes);
        }
        Some(pick)
    }
}

fn size(order: &Order, pick: Pick) -> u64 {
    let size = order
        .spec
        .chunk_bytes(u32::try_from(pick.chunk).unwrap_or(u32::MAX));
    if pick.fragment == FragmentIndex::WHOLE {
        size.get()
    } else {
        order.spec.code.fragment_size(size).get()
    }
}

/// Returns the next chunk for the destination, from the end. Depots get fragments from the front,
/// so hardly a chunk is sent both ways.
fn whole(order: &Order) -> Option<usize> {
    let mut chunks = (0..order.chunks.len()).rev();
    chunks
        .find(|&chunk| order.chunks[chunk].is_empty())
        .or(order.next_whole())
}

impl Planned {
    fn plan(&mut self, ledger: &Ledger) {
        let orders: Vec<(RequestId, &Order)> = ledger.moving().collect();
        let mut depots: Vec<DepotId> = orders
            .iter()
            .flat_map(|(_, order)| {
                order
                    .spec
                    .via
                    .iter()
                    .chain(&order.spec.destinations)
                    .copied()
            })
            .collect();
        depots.sort_unstable();
        depots.dedup();
        let problem = problem(ledger, &orders, &depots);
        self.quotas.clear();
        let near = problem.grid.ended_by(AHEAD).max(1);
        for flow in greedy(&problem)
            .flows
            .iter()
            .filter(|flow| flow.slot < near)
        {
            let key = (depots[flow.link], orders[flow.demand].0);
            *self.quotas.entry(key).or_default() += flow.bytes.get();
        }
    }
}

/// Returns the planning problem of the moving requests: the centre, and a link to each depot.
fn problem(ledger: &Ledger, orders: &[(RequestId, &Order)], depots: &[DepotId]) -> Problem {
    let left = |order: &Order| order.spec.deadline.since(ledger.now);
    let marks: Vec<Duration> = orders.iter().map(|(_, order)| left(order)).collect();
    let last = marks.iter().copied().max().unwrap_or_default().min(HORIZON) + STEP * 6;
    let grid = Grid::with_marks(&marks, STEP, last);
    let node = |id: &DepotId| {
        let known = ledger.depot(*id);
        let held: u64 = orders.iter().map(|(_, order)| held(order, *id)).sum();
        Node {
            space: Bytes::new(known.map_or(0, |depot| depot.free).saturating_add(held)),
            domains: vec![id.get()],
            ..Node::default()
        }
    };
    let link = |(place, id): (usize, &DepotId)| {
        let rate = ledger
            .depot(*id)
            .filter(|_| ledger.is_usable(*id))
            .map_or(0, |depot| depot.rate);
        Link {
            from: 0,
            to: place + 1,
            capacity: grid.volumes(ByteRate::new(rate / 100 * CAUTION_PERCENT)),
            price: Price::FREE,
        }
    };
    let place = |id: DepotId| depots.binary_search(&id).map_or(0, |place| place + 1);
    let demand = |(_, order): &(RequestId, &Order)| {
        let sink = order.spec.destinations.first().copied();
        let sink = sink.filter(|_| order.spec.code.parity() == 0);
        let is_late = left(order).is_zero();
        let at = |id: &DepotId| (place(*id), Bytes::new(held(order, *id)));
        let ends = &order.spec.destinations;
        let via = order.spec.via.iter().filter(|id| !ends.contains(id));
        Demand {
            source: 0,
            sink: sink.map(place),
            bytes: order.spec.bytes,
            code: order.spec.code,
            held: via.clone().copied().chain(sink).map(|id| at(&id)).collect(),
            release: Duration::ZERO,
            // Late requests come after all that can still be in time.
            offload_by: Some(if is_late { last } else { left(order).min(last) }),
            deliver_by: None,
            not_before: None,
            via: via.copied().map(place).collect(),
            weight: 1,
            budget: None,
            rate_max: None,
            lent: Vec::new(),
            pinned: Vec::new(),
        }
    };
    Problem {
        nodes: std::iter::once(Node::default())
            .chain(depots.iter().map(node))
            .collect(),
        links: depots.iter().enumerate().map(link).collect(),
        demands: orders.iter().map(demand).collect(),
        grid,
        ..Problem::default()
    }
}

/// Returns the bytes of a request at a depot or in flight to it.
fn held(order: &Order, depot: DepotId) -> u64 {
    let here = |place: &&Place| place.depot == depot;
    let chunks = order.chunks.iter().enumerate();
    let sizes = chunks.flat_map(|(chunk, places)| {
        places.iter().filter(here).map(move |place| Pick {
            request: RequestId::new(0),
            chunk,
            fragment: place.fragment,
        })
    });
    sizes.map(|pick| size(order, pick)).sum()
}
