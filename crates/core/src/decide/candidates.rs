//! Depots that a request could use, best first.

use alloc::vec::Vec;
use posthaste_plan::Load;

use crate::{
    decide, forecast, state,
    state::completion::Promised,
    state::{Request, State},
};

/// Multiple of what a request may put on a depot from which its space is ample.
const AMPLE: u64 = 2;

/// Returns the load that a request just accepted puts on the depots, which no newcomer gets.
pub(crate) fn promised_load(state: &State, request: &Request, left: &Promised) -> Load {
    forecast::completion::load(state, request, &left.places, request.route, |lane| {
        request.lanes[lane].is_active
    })
}

/// Returns lanes to depots that can be staged to, best first.
///
/// The order puts pinned depots first, then those that open in time, the user's before
/// landmarks, and those open now. Next come those near the centre before those of a higher
/// level, and one of each failure domain before a second. Next come cheap ones, if money or
/// redundancy was wished, those with ample space, and fast ones. Depots alike in all that go by
/// price, then in the user's order.
pub(crate) fn staging_lanes(state: &State, request: &Request) -> Vec<usize> {
    best_first(state, request, |lane| {
        state::usable::can_use(state, request, lane)
    })
}

/// Returns the staging lanes and those of lost depots that may come back.
pub(crate) fn hoped_lanes(state: &State, request: &Request) -> Vec<usize> {
    best_first(state, request, |lane| {
        state::usable::may_use(state, request, lane)
    })
}

fn best_first(state: &State, request: &Request, may: impl Fn(usize) -> bool) -> Vec<usize> {
    let lanes = (0..request.lanes.len()).filter(|&lane| !request.is_destination(lane) && may(lane));
    let to = request.lead_depot();
    let mut lanes: Vec<_> = lanes
        .filter_map(|lane| {
            let id = request.lanes[lane].depot;
            let depot = state.depots.get(&id)?;
            let level = state.crossings.level(id, depot, to);
            let rate = core::cmp::Reverse(depot.link.rates.p50);
            let is_open = depot.is_open_to(request, lane, state.now);
            let is_closed = !depot.is_expected() || !is_open;
            let cost = decide::prices::price(state, request, depot);
            let price = if request.is_thrifty() { cost } else { 0 };
            let opens_at = depot.next_turn_of(request, lane, state.now);
            let is_too_late = !is_open && opens_at.is_none_or(|at| at >= request.spec.deadline);
            let is_pinned = request.is_pinned(lane);
            let reach = (
                !is_pinned,
                is_too_late,
                depot.terms.is_landmark,
                is_closed,
                level,
            );
            // With one fragment of a chunk a depot, the next request needs space on several.
            let ample = request.replica.room(lane).times(AMPLE);
            let space = core::cmp::Reverse((depot.space() - state.index.kept(id)).min(ample));
            Some((reach, price, (space, rate), cost, lane))
        })
        .collect();
    let along = forecast::distances::along(state, request);
    lanes.sort_unstable_by_key(|&(reach, price, rate, cost, lane)| {
        (reach, price, rate, along.get(lane).copied(), cost, lane)
    });
    let (mut first, mut more, mut taken) = (Vec::new(), Vec::new(), 0);
    let most = request.domain_max;
    for &(reach, _, _, _, lane) in &lanes {
        // The rest of a chunk finds its places among depots that are no worse.
        let among = match request.uncommon.groups.is_empty() {
            true => u64::MAX,
            false => {
                let no_worse = lanes.iter().filter(|other| other.0 <= reach);
                no_worse.fold(0, |mask, other| mask | 1 << other.4)
            }
        };
        if request.is_pinned(lane) || request.is_free_among(taken, lane, most, among) {
            first.push(lane);
            taken |= 1 << lane;
        } else {
            more.push(lane);
        }
    }
    first.extend(more);
    first
}
