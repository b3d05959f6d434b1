//! Choice of paths between depots to probe. Such a path may come to carry a push or delivery of a
//! request, was not measured recently, and is idle. Both ends must be idle; a depot fed from the
//! centre may be the sender while no deadline is in danger.

use alloc::vec::Vec;
use posthaste_types::{Bytes, DepotId, RequestId, Timestamp};

use crate::{
    decide,
    decide::probing::{PROBE_SPAN, for_money, is_open},
    state::{Depot, Request, State},
};

/// Most depots of a request that are considered as senders, and as receivers: the first of them.
const ENDS_MAX: usize = 16;

/// Returns the path between two depots that is most worth a probe for the request, and what
/// that may cost.
pub(crate) fn find_stale_crossing(
    state: &State,
    id: RequestId,
) -> Option<(DepotId, DepotId, Bytes)> {
    let settings = &state.settings;
    let request = state.requests.get(&id)?;
    if request.push.is_none() && request.delivery.is_none() {
        return None;
    }
    let takers = takers(state, request);
    if takers.is_empty() {
        return None;
    }
    let (left, money) = decide::probing::probe_allowance(state, request)?;
    let givers = givers(state, request);
    let pairs = givers.iter().flat_map(|from| {
        let takers = takers.iter().filter(|to| {
            let is_further = request.push.is_some() && to.level > from.level;
            from.depot != to.depot && (to.is_destination || is_further)
        });
        takers.map(|to| (from.depot, to.depot))
    });
    let stale = pairs.filter_map(|(from, to)| {
        let since = state.crossings.stale_since(from, to, state.now, settings)?;
        let most = left.min(for_money(state.depots.get(&to)?, money));
        (most >= settings.probe_bytes_min).then_some((since, from, to, most))
    });
    // Never measured comes first, then the oldest.
    let (_, from, to, most): (Option<Timestamp>, _, _, _) = stale.min()?;
    let known = state.crossings.rates(from, to, state.now, settings);
    let rate = known.unwrap_or_else(|| settings.prior.quantiles(None)).p90;
    let wanted = rate.volume(PROBE_SPAN).max(settings.probe_bytes_min);
    Some((from, to, wanted.min(most).min(settings.probe_bytes_max)))
}

/// Returns depots from which something of the request goes on, or will, and that send nothing
/// now.
fn givers(state: &State, request: &Request) -> Vec<End> {
    let ends = probe_ends(state, request, |lane, depot| {
        let is_fed = request.lanes[lane].is_active && request.is_on_route(lane);
        let holds = request.replica.stored(lane).0 > 0;
        let is_calm = depot.link.flights == 0 || !request.at_risk;
        (is_fed || holds) && is_calm && !request.is_destination(lane) && !depot.stores
    });
    let ends = ends.filter(|end| !state.pushes.is_sending(end.depot));
    ends.take(ENDS_MAX).collect()
}

/// Returns depots to which something of the request should go from others, and that receive
/// nothing now.
fn takers(state: &State, request: &Request) -> Vec<End> {
    let is_delivered = request.delivery.is_some();
    let first = request
        .depot_lanes()
        .map(|lane| level_at(state, request, lane))
        .min();
    let ends = probe_ends(state, request, |lane, depot| {
        let is_wanted = match request.is_destination(lane) {
            true => is_delivered,
            false => request.push.is_some() && Some(level_at(state, request, lane)) > first,
        };
        let is_idle = depot.link.flights == 0 && depot.arriving == Bytes::ZERO;
        is_wanted && is_idle && !depot.is_draining()
    });
    ends.take(ENDS_MAX).collect()
}

fn level_at(state: &State, request: &Request, lane: usize) -> u8 {
    let id = request.lanes[lane].depot;
    let depot = state.depots.get(&id);
    depot.map_or(u8::MAX, |depot| {
        state.crossings.level(id, depot, request.lead_depot())
    })
}

/// Returns depots of the request that are up and open for as long as a probe takes.
fn probe_ends(
    state: &State,
    request: &Request,
    is_one: impl Fn(usize, &Depot) -> bool,
) -> impl Iterator<Item = End> {
    let lanes = request.lanes.iter().enumerate();
    lanes.filter_map(move |(place, lane)| {
        let depot = state.depots.get(&lane.depot)?;
        let is_there = depot.is_up() && lane.asked_at.is_none() && depot.resume_at <= state.now;
        let is_end = is_there && is_open(depot, state.now) && is_one(place, depot);
        is_end.then_some(End {
            depot: lane.depot,
            level: level_at(state, request, place),
            is_destination: request.is_destination(place),
        })
    })
}

/// End of a path between depots.
struct End {
    pub(crate) depot: DepotId,
    pub(crate) level: u8,
    pub(crate) is_destination: bool,
}
