//! Space of destinations for data that is safe already. Depots keep it until all of it is there. So
//! a delivery begins if it fits as a whole, and has that space until it ends.

use core::time::Duration;
use posthaste_types::{Bytes, RequestId};

use crate::{
    state,
    state::{Depot, Request, State},
};

/// Multiple of others' data bound for a destination and not safe yet that stays free there.
/// Requests that come meanwhile have a deadline, and safe data has none.
const ROOM_TIMES: u64 = 8;

/// Time after it is safe for which it leaves them that room: if some always come, it would wait for
/// ever.
const ROOM_LASTS: Duration = Duration::from_secs(3600);

/// Most requests that are looked at for that, the most urgent first.
const MOVING_MAX: usize = 64;

/// Chunks by which a delivery may fall short before it loses its space: promises are counted in
/// whole chunks.
const SHORT_MAX: u64 = 4;

/// Returns the space of a destination for data that is safe already. Promises to data that is
/// not safe come first, then deliveries that began. If no moment was promised for the delivery,
/// requests that may come meanwhile also come first, for a while.
pub(crate) fn space_to_deliver(
    state: &State,
    id: RequestId,
    request: &Request,
    lane: usize,
) -> Bytes {
    let at = request.lanes[lane].depot;
    let space = state.depots.get(&at).map_or(Bytes::ZERO, Depot::space);
    let left = space - state.index.kept(at);
    if request.promised_by().is_some() {
        return left;
    }
    let held = state::space_left::held_for_delivery(state, id, request, lane);
    let left = left - (state.index.held(at) - held);
    let has_waited = request
        .safe_at
        .is_some_and(|at| at + ROOM_LASTS <= state.now);
    if has_waited || held > Bytes::ZERO {
        return left;
    }
    // A delivery that does not fit as a whole frees no depot, and is in the way of others.
    let lacks = state::space_left::lacks_there(state, id, request, lane);
    if left < lacks {
        return Bytes::ZERO;
    }
    if !request.is_moving() && frees_much(state, request, lacks) {
        return left;
    }
    let moving = state.index.after(None).take(MOVING_MAX);
    let moving = moving.filter_map(|urgency| state.requests.get(&urgency.request));
    let is_other = |other: &&Request| !core::ptr::eq(*other, request);
    let here = moving.filter(is_other);
    let here = here.filter(|other| other.lead_depot() == Some(at));
    let rest: Bytes = here.map(|other| other.replica.unsafe_bytes()).sum();
    left.min(space - rest.times(ROOM_TIMES))
}

/// Returns whether all of a delivery has its space at a destination, beside promises and other
/// deliveries that began. A delivery that has its space keeps it though some chunks less fit.
pub(crate) fn fits_there(state: &State, id: RequestId, request: &Request, lane: usize) -> bool {
    let at = request.lanes[lane].depot;
    let space = state.depots.get(&at).map_or(Bytes::ZERO, Depot::space);
    let held = state::space_left::held_for_delivery(state, id, request, lane);
    let others = state.index.held(at) - held;
    let spare = match held {
        Bytes::ZERO => Bytes::ZERO,
        _ => request.spec.chunk_size.times(SHORT_MAX),
    };
    let lacks = state::space_left::lacks_there(state, id, request, lane) - spare;
    space >= state.index.kept(at) + others + lacks
}

/// Returns whether depots free much more space than the destination takes: twice as much, and
/// enough to have half as much again as now.
fn frees_much(state: &State, request: &Request, lacks: Bytes) -> bool {
    if request.wishes.keep_until.is_some() {
        return false;
    }
    let depots = request.depot_lanes();
    let (frees, has) = depots.fold((Bytes::ZERO, Bytes::ZERO), |(frees, has), lane| {
        let depot = state.depots.get(&request.lanes[lane].depot);
        let space = depot.map_or(Bytes::ZERO, Depot::space);
        (frees + request.replica.stored(lane).1, has + space)
    });
    lacks.times(2) <= frees && has <= frees.times(2)
}
