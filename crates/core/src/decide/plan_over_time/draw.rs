//! The books as a problem for a plan over time.

use alloc::{vec, vec::Vec};
use core::time::Duration;
use posthaste_plan::Supplies;
use posthaste_plan::horizon::{Demand, Grid, Link, Money, Node, Price, Problem, Rooms};
use posthaste_types::{Bytes, DepotId, RequestId};

use crate::{
    contract::DepotTerms,
    decide, forecast, state,
    state::completion::Places,
    state::completion::belief::Belief,
    state::plan_over_time::{Asked, Drawn},
    state::{Depot, Request, State},
};

/// Slots between now and the last deadline, besides those that end at deadlines.
const SLOTS: u32 = 24;

/// Shortest slot, except for those that end at deadlines.
const STEP_MIN: Duration = Duration::from_secs(1);

/// Price of a byte if no request asks for low cost.
const ANYWHERE: (Money, Bytes) = (Money::from_micro_usd(1000), Bytes::new(1 << 20));

/// Weights that put promises before newcomers.
const WEIGHTS: (u32, u32) = (2, 1);

/// Draws the problem of all that can be on time, and of a newcomer. None if it is too large, or
/// involves depots that send on to others: a plan does not know those.
pub(crate) fn draw(state: &State, newcomer: Option<(RequestId, &Request)>) -> Option<Asked> {
    let belief = match newcomer {
        Some(_) => Belief::Hopeful,
        None => Belief::P50,
    };
    let requests = plannable(state, newcomer)?;
    let depots = used_by(state, &requests)?;
    let grid = slots(state, &requests);
    let (supplies, places) = (
        forecast::completion::supplies(state, belief),
        forecast::completion::places(state),
    );
    let mut nodes = nodes(state, &depots);
    let way_out = supplies.way_out.as_ref();
    nodes[0].way_out = way_out.map(|curve| grid.carried(curve, state.now));
    let links = links(state, &requests, &depots, &grid, (&supplies, &places));
    let mut demands = Vec::new();
    let mut drawn = Vec::new();
    for &(id, request) in &requests {
        let (demand, lanes) = demand(state, request, &depots, &nodes);
        let lent = lent_over(state, request, &depots, &grid, (&supplies, &places));
        let is_newcomer = newcomer.is_some_and(|(newcomer, _)| newcomer == id);
        let weight = if is_newcomer { WEIGHTS.1 } else { WEIGHTS.0 };
        demands.push(Demand {
            weight,
            lent,
            ..demand
        });
        drawn.push(Drawn { request: id, lanes });
    }
    for demand in &demands {
        for &(node, bytes) in &demand.held {
            nodes[node].space += bytes;
        }
    }
    Some(Asked {
        at: state.now,
        newcomer: newcomer.map(|(id, _)| id),
        problem: Problem {
            grid,
            nodes,
            links,
            demands,
            ..Problem::default()
        },
        demands: drawn,
    })
}

/// Returns the requests for a plan: those that can be on time and have a way. None if a
/// newcomer has none, or there are too many.
fn plannable<'a>(
    state: &'a State,
    newcomer: Option<(RequestId, &'a Request)>,
) -> Option<Vec<(RequestId, &'a Request)>> {
    let moving = state
        .index
        .after(None)
        .filter(|urgency| !urgency.is_leftover);
    let moving = moving.filter_map(|urgency| {
        let id = urgency.request;
        let request = state.requests.get(&id)?;
        (!request.is_paused()).then_some((id, request))
    });
    let has_way = |request: &Request| {
        let depots = request
            .depot_lanes()
            .filter(|&lane| state::usable::can_use(state, request, lane));
        let direct = request.lead().filter(|_| request.is_safe_whole());
        let direct = direct.filter(|&lane| state::usable::can_use(state, request, lane));
        let is_due = request.aim() > state.now && !request.replica.is_safe();
        is_due && (direct.is_some() || depots.count() >= usize::from(request.spec.code.total()))
    };
    let all: Vec<(RequestId, &Request)> = moving
        .chain(newcomer)
        .filter(|(_, request)| has_way(request))
        .collect();
    let most = state.settings.plan_requests_max as usize;
    let is_in = |id: RequestId| all.iter().any(|(other, _)| *other == id);
    let has_newcomer = newcomer.is_none_or(|(id, _)| is_in(id));
    ((2..=most).contains(&all.len()) && has_newcomer).then_some(all)
}

/// Returns every depot they can use, in order; none if there is only one, or too many, or
/// several levels.
fn used_by(state: &State, requests: &[(RequestId, &Request)]) -> Option<Vec<DepotId>> {
    let mut depots: Vec<DepotId> = Vec::new();
    let mut levels: Vec<u8> = Vec::new();
    for (_, request) in requests {
        let to = request.lead_depot();
        let lanes =
            (0..request.lanes.len()).filter(|&lane| state::usable::can_use(state, request, lane));
        let used = lanes.map(|lane| request.lanes[lane].depot);
        for id in used {
            depots.push(id);
            let depot = state.depots.get(&id);
            levels.extend(depot.map(|depot| state.crossings.level(id, depot, to)));
        }
    }
    depots.sort_unstable();
    depots.dedup();
    let are_alike = levels.windows(2).all(|pair| pair[0] == pair[1]);
    // On one depot turns by deadline are the best there is.
    let are_few = (2..=state.settings.plan_depots_max as usize).contains(&depots.len());
    (are_alike && are_few).then_some(depots)
}

/// Returns slots that end at each deadline.
fn slots(state: &State, requests: &[(RequestId, &Request)]) -> Grid {
    let deadlines = requests.iter();
    let marks: Vec<Duration> = deadlines
        .map(|(_, request)| request.aim().since(state.now))
        .collect();
    let end = marks.iter().copied().max().unwrap_or_default();
    Grid::with_marks(&marks, (end / SLOTS).max(STEP_MIN), end)
}

/// Returns the centre and the depots. What they hold of demands is added to their space later.
fn nodes(state: &State, depots: &[DepotId]) -> Vec<Node> {
    let known: Vec<Option<&Depot>> = depots.iter().map(|id| state.depots.get(id)).collect();
    let node = |(place, depot): (usize, &Option<&Depot>)| {
        let Some(depot) = depot else {
            return Node::default();
        };
        // The number of a name is its first place.
        let first = |name: &str| {
            let all = known.iter().enumerate().take(place + 1);
            let mut all = all.filter_map(|(at, depot)| {
                let mut names = depot.as_ref()?.terms.domains();
                Some((at, names.position(|other| other == name)?))
            });
            let (at, nth) = all.next().unwrap_or((place, 0));
            u32::try_from(at * DepotTerms::DOMAINS_MAX + nth).unwrap_or(u32::MAX)
        };
        Node {
            space: depot.free - depot.arriving,
            domains: depot.terms.domains().map(first).collect(),
            is_landmark: depot.terms.is_landmark,
            ..Node::default()
        }
    };
    let depots = known.iter().enumerate().map(node);
    [Node::default()].into_iter().chain(depots).collect()
}

/// Returns a link to each depot.
fn links(
    state: &State,
    requests: &[(RequestId, &Request)],
    depots: &[DepotId],
    grid: &Grid,
    (supplies, places): (&Supplies, &Places),
) -> Vec<Link> {
    let link = |(place, id): (usize, &DepotId)| {
        let supply = places
            .get(id)
            .map(|&place| &supplies.depots[place as usize]);
        let none = || vec![Bytes::ZERO; grid.slots()];
        Link {
            from: 0,
            to: place + 1,
            capacity: supply.map_or_else(none, |supply| grid.carried(&supply.curve, state.now)),
            price: price_of_link(state, requests, *id),
        }
    };
    depots.iter().enumerate().map(link).collect()
}

/// Returns what the request alone may send to depots that are lent for it at some hours only,
/// or below some load.
fn lent_over(
    state: &State,
    request: &Request,
    depots: &[DepotId],
    grid: &Grid,
    (supplies, places): (&Supplies, &Places),
) -> Vec<(usize, Vec<Bytes>)> {
    let shut = state::usable::shut(state, request, |depot| depots.binary_search(&depot).ok());
    let lent = shut.iter().filter_map(|shut| {
        let place = *places.get(depots.get(shut.supply)?)?;
        let mut curve = supplies.depots.get(place as usize)?.curve.clone();
        shut.close(&mut curve);
        Some((shut.supply, grid.carried(&curve, state.now)))
    });
    lent.collect()
}

/// Returns the price of a byte to a depot: sending it, its share of a PUT, and keeping it to
/// the end. Equal everywhere if no request asked for low cost: then the fewest bytes are sent,
/// and soon. If requests differ, the dearest counts.
fn price_of_link(state: &State, requests: &[(RequestId, &Request)], id: DepotId) -> Price {
    let Some(depot) = state.depots.get(&id) else {
        return Price::FREE;
    };
    if !requests.iter().any(|(_, request)| request.is_thrifty()) {
        return Price::new(ANYWHERE.0, ANYWHERE.1);
    }
    let prices = requests.iter().filter_map(|(_, request)| {
        let lane = request.lane_of(id)?;
        let bytes = request.piece(lane).min(request.spec.bytes);
        let keeps = request.keeps(state.now).as_secs();
        let cost = Money::from_micro_usd(depot.cost(bytes, keeps));
        Some(Price::new(cost, bytes))
    });
    prices.max().unwrap_or(Price::FREE)
}

/// Returns what is left of a budget, with the flights' share, which counts as still to be sent.
fn budget_left(state: &State, request: &Request) -> Option<Money> {
    request.wishes.budget_micro_usd?;
    let lanes = request.lanes.iter().enumerate();
    let flying = lanes.map(|(place, lane)| {
        let piece = decide::budget::piece(state, request, place).unwrap_or(0);
        piece.saturating_mul(u64::from(lane.in_flight))
    });
    let left = flying.fold(request.money_left(), u64::saturating_add);
    Some(Money::from_micro_usd(left))
}

/// Returns the rest of a request as a demand, with what its lanes hold. Flights count as still
/// to be sent: the rates of their depots count in full.
fn demand(
    state: &State,
    request: &Request,
    depots: &[DepotId],
    nodes: &[Node],
) -> (Demand, Vec<Option<(usize, u32)>>) {
    let place = |lane: usize| depots.binary_search(&request.lanes[lane].depot).ok();
    let usable = |lane: usize| place(lane).filter(|_| state::usable::can_use(state, request, lane));
    let lanes = 0..request.lanes.len();
    let lanes: Vec<Option<(usize, u32)>> = lanes
        .map(|lane| Some((usable(lane)?, request.replica.stored(lane).0)))
        .collect();
    let via = request
        .depot_lanes()
        .filter_map(usable)
        .map(|place| place + 1);
    let via: Vec<usize> = via.collect();
    let has_enough = via.len() >= usize::from(request.spec.code.total());
    let pinned = request
        .depot_lanes()
        .filter(|&lane| request.is_pinned(lane));
    // A pinned depot that is away gets its share when it is back, which a plan does not know.
    let pinned = pinned.filter_map(usable).map(|place| place + 1);
    let demand = Demand {
        source: 0,
        sink: (request.lead().filter(|_| request.is_safe_whole()))
            .and_then(usable)
            .map(|place| place + 1),
        bytes: request.spec.bytes.min(request.replica.unsafe_bytes()),
        code: request.spec.code,
        held: Vec::new(),
        release: Duration::ZERO,
        offload_by: Some(request.aim().since(state.now)),
        // Destinations take it from depots, which a plan does not know: the time at which it
        // must be safe is its aim.
        deliver_by: None,
        not_before: None,
        via: if has_enough { via } else { Vec::new() },
        weight: 1,
        budget: budget_left(state, request),
        rate_max: request.wishes.rate_max,
        lent: Vec::new(),
        pinned: if has_enough {
            pinned.collect()
        } else {
            Vec::new()
        },
    };
    let held = held(request, &demand, nodes, |lane| {
        usable(lane).map(|place| place + 1)
    });
    (Demand { held, ..demand }, lanes)
}

/// Returns what depots hold of chunks that are not safe, as far as it counts. That is a column
/// each, and in a failure domain no more than may be lost.
fn held(
    request: &Request,
    demand: &Demand,
    nodes: &[Node],
    node_of: impl Fn(usize) -> Option<usize>,
) -> Vec<(usize, Bytes)> {
    let chunks = request.replica.chunks() - request.replica.safe();
    let mut held: Vec<(usize, Bytes)> = Vec::new();
    let mut rooms = Rooms::new(demand.domain_max());
    for lane in request.depot_lanes() {
        let Some(node) = node_of(lane).filter(|node| demand.via.contains(node)) else {
            continue;
        };
        let column = request.piece(lane).times(u64::from(chunks));
        let is_live = request.replica.live() >> lane & 1 == 1;
        let here = (column - request.replica.room(lane)).min(demand.column());
        let here = here.min(Bytes::new(rooms.left(&nodes[node])));
        if is_live && here > Bytes::ZERO {
            rooms.take(&nodes[node], here.get());
            held.push((node, here));
        }
    }
    held
}
