//! Depots that must hold their share of every chunk: obstacles for a newcomer, and later for a
//! running request (`docs/algorithms/wishes.md`).

use alloc::vec::Vec;
use posthaste_types::RequestId;

use crate::{
    contract::PinReason,
    decide::verdict::Way,
    state,
    state::{Request, State},
};

/// Returns what excludes a newcomer from its pinned depots, whatever the rates.
pub(crate) fn find_flaw_of_pins(state: &State, request: &Request) -> Option<PinReason> {
    let forbidden = &request.wishes.forbidden;
    let mut pinned = request.uncommon.pinned.iter();
    if let Some(&depot) = pinned.find(|depot| forbidden.contains(depot)) {
        let name = state::names::name_of(state, depot);
        return Some(PinReason::Forbidden { name });
    }
    let destinations = &request.spec.destinations;
    let mut pinned = request.uncommon.pinned.iter();
    if let Some(&depot) = pinned.find(|depot| destinations.contains(depot)) {
        let name = state::names::name_of(state, depot);
        return Some(PinReason::IsDestination { name });
    }
    let (code, lanes) = (request.spec.code, request.pinned_lanes());
    if lanes.count_ones() > u32::from(code.total()) {
        let pinned = lanes.count_ones();
        return Some(PinReason::TooMany { pinned, code });
    }
    let lanes: Vec<usize> = pinned_of(request).collect();
    let lost = lanes
        .iter()
        .find(|&&lane| !state::usable::may_use(state, request, lane));
    if let Some(&lane) = lost {
        return find_pin_trouble(state, None, request, lane);
    }
    lanes.iter().find_map(|&lane| {
        let depots = request.together(lane, request.pinned_lanes());
        let is_covered = depots <= 1.max(u32::from(code.parity()));
        (!is_covered).then(|| PinReason::Together {
            name: state::names::name_of(state, request.lanes[lane].depot),
            depots,
            code,
        })
    })
}

/// Returns what excludes a newcomer from its pinned depots at present.
pub(crate) fn find_pin_in_way(state: &State, request: &Request) -> Option<PinReason> {
    let mut lanes = pinned_of(request);
    let flaw = find_flaw_of_pins(state, request);
    flaw.or_else(|| lanes.find_map(|lane| find_pin_trouble(state, None, request, lane)))
}

/// Returns a pinned depot without room for its share in the space that others leave.
pub(crate) fn find_full_pin(state: &State, request: &Request, way: &Way) -> Option<PinReason> {
    let lanes = way.lanes.iter().enumerate();
    let mut pinned = lanes.filter(|(_, lane)| request.is_pinned(**lane));
    pinned.find_map(|(place, &lane)| {
        let free = way.scene.supplies.depots.get(place)?.space;
        let needed = way.proposal.column();
        let name = state::names::name_of(state, request.lanes[lane].depot);
        (free < needed).then_some(PinReason::Full { name, needed, free })
    })
}

/// Returns why the depot of a pinned lane can't accept now what it lacks.
pub(crate) fn find_pin_trouble(
    state: &State,
    id: Option<RequestId>,
    request: &Request,
    lane: usize,
) -> Option<PinReason> {
    let at = request.lanes[lane].depot;
    let name = state::names::name_of(state, at);
    let Some(depot) = state.depots.get(&at) else {
        return Some(PinReason::Down { name });
    };
    if request.uncommon.drained >> lane & 1 == 1 {
        return Some(PinReason::Drained { name });
    }
    if depot.is_loaded(request.lent(lane)) {
        return Some(PinReason::Loaded { name });
    }
    if !depot.is_open_to(request, lane, state.now) {
        return Some(PinReason::Closed { name });
    }
    if depot.is_down() {
        return Some(PinReason::Down { name });
    }
    let lacks = request.replica.room_count(lane);
    let lacks = lacks.saturating_sub(request.lanes[lane].in_flight);
    if lacks == 0 {
        return None;
    }
    if request.is_unwanted(lane) {
        return Some(PinReason::Dear { name });
    }
    let piece = request.piece(lane);
    let free = match id {
        Some(id) => state.index.space_for(id, at, depot.space()),
        None => depot.space() - state.index.kept(at),
    };
    (free < piece).then(|| PinReason::Full {
        name,
        needed: piece.times(u64::from(lacks)),
        free,
    })
}

/// Returns the lanes of pinned depots.
pub(crate) fn pinned_of(request: &Request) -> impl Iterator<Item = usize> + use<> {
    let mask = request.pinned_lanes();
    (0..request.lanes.len()).filter(move |lane| mask >> lane & 1 == 1)
}
