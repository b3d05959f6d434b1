//! Forecasts: the books as the planner sees them, and the answers put back.
//!
//! A look at everything goes through the requests that move, the most urgent first. Each takes its
//! share of what the more urgent ones left: early, for its forecast, and late, for what it was
//! promised. A newcomer finds what is left at the end.

pub(crate) mod ahead;
pub(crate) mod keep;
pub(crate) mod raise;
pub(crate) mod spread;

use alloc::{vec, vec::Vec};
use core::time::Duration;
use posthaste_plan::{Curve, Lane, Load, Scene, Supplies, Supply, Whole};
use posthaste_types::{ByteRate, DepotId, RequestId, Timestamp};

use crate::{
    forecast, state,
    state::completion::belief::Belief,
    state::completion::{Fares, HOURS_AHEAD, Places, Promised, Sweep},
    state::{Depot, Request, Route, State, Urgency},
};

/// Returns whether the depot has a place in plans: it is up, expected, or may come back.
fn counts(state: &State, depot: &Depot) -> bool {
    depot.is_expected() || depot.is_hoped_for(&state.settings)
}

/// Returns what the depots offer, lost ones only under a hopeful belief, without the space that
/// is kept.
pub(crate) fn supplies(state: &State, belief: Belief) -> Supplies {
    let spread = forecast::completion::spread::spread(state);
    let counted = state
        .depots
        .iter()
        .filter(|(_, depot)| counts(state, depot));
    let curve = |id: &DepotId, depot: &Depot| {
        let rate = belief.rate(depot, spread);
        let mut curve = match (depot.is_expected(), belief) {
            (true, _) => Curve::constant(rate),
            (false, Belief::Hopeful) => {
                let mut curve = Curve::constant(rate);
                curve.close(state.now, depot.may_be_back_at(state.now));
                curve
            }
            (false, _) => Curve::constant(ByteRate::ZERO),
        };
        forecast::completion::raise::raise(state, *id, depot, &mut curve);
        let (from, until) = (state.now, state.now + HOURS_AHEAD);
        depot.close(&mut curve, from, until);
        curve
    };
    Supplies {
        depots: counted
            .map(|(id, depot)| {
                let mut supply = Supply::new(curve(id, depot), depot.space());
                supply.keep(state.index.kept(*id) + state.index.held(*id));
                supply
            })
            .collect(),
        way_out: state.settings.egress.map(Curve::constant),
        pace: None,
    }
}

/// Returns the place of each depot that counts among the supplies.
pub(crate) fn places(state: &State) -> Places {
    let counted = state
        .depots
        .iter()
        .filter(|(_, depot)| counts(state, depot));
    counted.map(|(id, _)| *id).zip(0..).collect()
}

/// Returns what a request still has to send: whole to its destination, and when staged in
/// fragments to the depots that `uses` accepts.
pub(crate) fn load(
    state: &State,
    request: &Request,
    places: &Places,
    route: Route,
    uses: impl Fn(usize) -> bool,
) -> Load {
    let place = |lane: usize| Some(*places.get(&request.lanes[lane].depot)? as usize);
    let bytes = request.replica.unsafe_bytes();
    let there = request
        .depot_lanes()
        .filter(|&lane| state::usable::can_use(state, request, lane));
    let stands_in = state::failure_domain::stands_in(state, request, there.count());
    let destination = request.lead().filter(|_| request.is_safe_whole());
    let destination = (destination.or(stands_in)).filter(|&lane| !request.is_barred(lane));
    let whole = destination.and_then(|lane| {
        let chunks = request.replica.room_count(lane);
        let left = request.spec.chunk_size.times(chunks.into()).min(bytes);
        let lane = Lane {
            quota: request.quota_bytes(lane),
            ..Lane::new(place(lane)?, left, request.spec.chunk_size)
        };
        let code = request.code_now();
        Some(Whole { lane, code })
    });
    let lanes = request.depot_lanes();
    let lanes = lanes.filter(|&lane| uses(lane) && !request.is_barred(lane));
    let lanes =
        lanes.filter(|&lane| stands_in.is_none() || state::usable::can_use(state, request, lane));
    let lanes = lanes.filter_map(|lane| {
        Some(Lane {
            supply: place(lane)?,
            room: request.share_of_domain(lane, request.replica.room(lane)),
            quota: request.quota_bytes(lane),
            piece: request.piece(lane),
            is_pinned: request.is_pinned(lane) || stands_in.is_some(),
        })
    });
    let rate_max = request.wishes.rate_max;
    let shut = state::usable::shut(state, request, |depot| Some(*places.get(&depot)? as usize));
    let (bytes, lanes, whole) = match (route, whole) {
        (Route::Direct, Some(Whole { lane, .. })) => {
            (bytes, vec![Lane::new(lane.supply, bytes, lane.piece)], None)
        }
        (Route::Direct, None) => (bytes, Vec::new(), None),
        (Route::Staged, whole) => (request.replica.missing_bytes(), lanes.collect(), whole),
    };
    Load {
        bytes,
        lanes,
        whole,
        rate_max,
        shut,
    }
}

/// Returns what the request still has to send at present.
pub(crate) fn load_now(state: &State, request: &Request, places: &Places) -> Load {
    load(state, request, places, request.route, |place| {
        request.lanes[place].is_active
    })
}

/// Begins a look at everything.
pub(crate) fn begin_sweep(state: &State) -> Sweep {
    let spread = forecast::completion::spread::spread(state);
    let is_certain = |depot: &Depot| {
        let rate = |belief: Belief| belief.rate(depot, spread);
        !counts(state, depot) || (depot.is_expected() && rate(Belief::Hopeful) == rate(Belief::P10))
    };
    let scene = |belief| Scene {
        now: state.now,
        supplies: supplies(state, belief),
    };
    let slow = supplies(state, Belief::P10);
    Sweep {
        goes_on: state.now,
        after: None,
        middle: supplies(state, Belief::P50),
        fast: supplies(state, Belief::P90),
        promised: Promised {
            at: state.now,
            is_stale: false,
            places: places(state),
            careful: Scene {
                now: state.now,
                supplies: slow.clone(),
            },
            hopeful: (!state.depots.values().all(is_certain)).then(|| scene(Belief::Hopeful)),
        },
        slow,
    }
}

/// Returns the next request of a sweep.
pub(crate) fn next_in(state: &State, sweep: &Sweep) -> Option<Urgency> {
    state.index.after(sweep.after).next()
}

/// Passes over the request: the sweep goes on to the next one.
pub(crate) fn pass(state: &State, sweep: &mut Sweep, urgency: Urgency, fares: Option<&Fares>) {
    sweep.after = Some(urgency);
    if let Some((request, fares)) = state.requests.get(&urgency.request).zip(fares) {
        sweep.take(fares, request);
    }
}

/// Returns what would be left for a newcomer if another request had this deadline. Visits every
/// request that moves.
pub(crate) fn left_with(state: &State, other: RequestId, deadline: Timestamp) -> Promised {
    let mut promised = begin_sweep(state).promised;
    for urgency in state.index.after(None) {
        let Some(request) = state.requests.get(&urgency.request) else {
            continue;
        };
        promised.give_back(&forecast::completion::keep::space_of(
            state,
            urgency.request,
            &promised.places,
        ));
        if !request.is_leftover && !request.is_paused() {
            let load = load_now(state, request, &promised.places);
            let is_other = urgency.request == other;
            let by = if is_other { deadline } else { urgency.deadline };
            promised.promise(&load, by);
        }
    }
    promised
}

/// Returns the plan's margin before the deadline: a twentieth of what is left, within limits.
pub(crate) fn margin(state: &State, deadline: Timestamp) -> Duration {
    const LEAST: Duration = Duration::from_secs(1);
    const MOST: Duration = Duration::from_secs(60);
    let left = deadline.since(state.now);
    (left / 20).clamp(LEAST, MOST).min(left / 2)
}
