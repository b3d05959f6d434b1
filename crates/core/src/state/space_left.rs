//! Space that depots keep for a request (`docs/algorithms/placement.md`). It is what the last look
//! counted on storing there, so that no other user of the depot takes it meanwhile. Until it is
//! granted, and if it is refused, data goes as far as there is room.

use alloc::{sync::Arc, vec::Vec};
use core::time::Duration;
use posthaste_plan::reserve::AHEAD_MAX;
use posthaste_types::{Bytes, DepotId, RequestId};

use crate::{
    contract::{Command, Reason, SpaceReason},
    state::{Request, State},
};

/// Time after which an unanswered request counts as lost.
pub(crate) const ANSWER_WAIT: Duration = Duration::from_secs(120);

/// Time before refused space is asked for again: others may have left by then. A depot that did not
/// comply rests for twice as long, and twice that each time,
pub(crate) const ASK_AGAIN: Duration = Duration::from_secs(10);

/// up to 85 minutes.
pub(crate) const DOUBLINGS_MAX: u32 = 9;

/// Time before granted space is given back: forecasts swing.
pub(crate) const KEEP: Duration = Duration::from_secs(30);

/// Share of what is needed by which kept space may differ: a quarter.
pub(crate) const DIFFERS_FROM: u64 = 4;

/// Time for which it is kept beyond the forecast end: the service may be gone for good.
pub(crate) const BEYOND: Duration = Duration::from_secs(3600);

/// Span for which it is asked at once, well within what relays promise, as their clocks differ;
/// then it is prolonged.
pub(crate) const AHEAD: Duration = Duration::from_secs(AHEAD_MAX.as_secs() / 4 * 3);

/// Time left at which it is prolonged.
pub(crate) const PROLONG_AT: Duration = Duration::from_secs(1800);

/// Time before space is given back to a depot that is away.
pub(crate) const AWAY: Duration = Duration::from_secs(60);

/// Most requests for which a depot is asked to keep space at once, half of what a relay keeps:
/// others use it too. The rest go without until some of those are done.
pub(crate) const KEPT_AT_ONCE: usize = 512;

/// Times that space is given back without an answer: then its own end must suffice, which comes
/// before that.
pub(crate) const RETURNS_MAX: u32 = 9;

/// Returns space kept at a depot for requests that is not filled yet. It is free for us,
/// whatever the depot says, and so will be space being given back.
pub(crate) fn spare_at(state: &State, at: DepotId) -> Bytes {
    let all = state.spaces.at(at);
    all.map(|(request, _)| spare_of(state, request, at)).sum()
}

/// Returns such space of one request.
pub(crate) fn spare_of(state: &State, id: RequestId, at: DepotId) -> Bytes {
    let space = state.spaces.get(at, id);
    let space = space.filter(|space| space.until > state.now);
    space.map_or(Bytes::ZERO, |space| space.held - stored_at(state, id, at))
}

pub(crate) fn stored_at(state: &State, id: RequestId, at: DepotId) -> Bytes {
    let request = state.requests.get(&id);
    let lane = request.and_then(|request| Some((request, request.lane_of(at)?)));
    lane.map_or(Bytes::ZERO, |(request, lane)| {
        request.replica.stored(lane).1
    })
}

/// Returns the space of a depot that no other request may use. It is what the last look counted
/// on, or what the depot keeps if that is more.
pub(crate) fn kept_at(state: &State, id: RequestId, request: &Request, place: usize) -> Bytes {
    let lane = &request.lanes[place];
    let piece = request.piece(place);
    let planned = piece.times(lane.kept.into());
    let Some(space) = state.spaces.get(lane.depot, id) else {
        return planned;
    };
    let coming = piece.times((lane.in_flight + lane.awaited).into());
    planned.max(space.held - request.replica.stored(place).1 - coming)
}

/// Returns the space kept for a request on each of its depots.
pub(crate) fn kept_free(
    state: &State,
    id: RequestId,
    request: &Request,
) -> Arc<[(DepotId, Bytes)]> {
    if !request.is_under_way() || request.is_leftover {
        return Arc::default();
    }
    let all = (0..request.lanes.len()).map(|place| {
        let kept = kept_at(state, id, request, place);
        (request.lanes[place].depot, kept)
    });
    all.filter(|(_, kept)| *kept > Bytes::ZERO).collect()
}

/// Returns the space held for a delivery in progress at each of its destinations.
pub(crate) fn held_free(state: &State, id: RequestId, request: &Request) -> Vec<(DepotId, Bytes)> {
    let all = request.destinations().map(|lane| {
        let held = held_for_delivery(state, id, request, lane);
        (request.lanes[lane].depot, held)
    });
    all.filter(|(_, held)| *held > Bytes::ZERO).collect()
}

/// Returns the space for data stored of a request in a lane, and to come. A request that can't be
/// on time excludes no others.
pub(crate) fn space_wish(request: &Request, place: usize) -> Bytes {
    if request.is_leftover {
        return Bytes::ZERO;
    }
    let lane = &request.lanes[place];
    // Fragments from coding depots are part of the kept space.
    let coming = lane.kept.max(lane.awaited).saturating_add(lane.in_flight);
    if coming == 0 {
        return Bytes::ZERO;
    }
    let (piece, stored) = (request.piece(place), request.replica.stored(place).1);
    // Fragments on their way may be there already.
    let most = piece.times(request.replica.chunks().into());
    (stored + piece.times(coming.into())).min(most)
}

pub(crate) fn give_back(request: RequestId, depot: DepotId) -> Command {
    let why = SpaceReason::Spare;
    Command::ReleaseSpace {
        request,
        depot,
        reason: Reason::Space { why },
    }
}

/// Returns what a destination still has to get from others: the centre sends the rest, or it is
/// on its way.
pub(crate) fn lacks_there(state: &State, id: RequestId, request: &Request, lane: usize) -> Bytes {
    let fed = &request.lanes[lane];
    let arriving = state.pushes.to(fed.depot, Some(id));
    let arriving: Bytes = arriving.map(|(_, flight)| flight.bytes).sum();
    let piece = request.piece(lane);
    let sent = piece.times(u64::from(fed.kept) + u64::from(fed.in_flight));
    request.spec.bytes - request.replica.stored(lane).1 - arriving - sent
}

/// Returns the space that a delivery in progress has at a destination until all of it is there.
pub(crate) fn held_for_delivery(
    state: &State,
    id: RequestId,
    request: &Request,
    lane: usize,
) -> Bytes {
    let delivery = request
        .delivery
        .as_ref()
        .filter(|_| request.is_kept() && !request.is_paused());
    let is_held = delivery.is_some_and(|delivery| delivery.holds >> lane & 1 == 1);
    if is_held {
        lacks_there(state, id, request, lane)
    } else {
        Bytes::ZERO
    }
}
