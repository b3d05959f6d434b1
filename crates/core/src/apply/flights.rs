//! Ends sends: fragments that landed, and those that nobody waits for any more.

use alloc::vec::Vec;
use posthaste_types::{ChunkIndex, DepotId, FragmentIndex, RequestId};

use crate::{
    apply,
    contract::{Command, Outbox, Reason},
    state::{Flight, FlightKey, Forwarded, State},
};

/// Removes a push from the books.
pub(crate) fn land_push(
    state: &mut State,
    key: FlightKey,
    fragment: FragmentIndex,
) -> Option<Forwarded> {
    let flight = state.pushes.end(key, fragment)?;
    if let Some(depot) = state.depots.get_mut(&key.depot) {
        depot.arriving -= flight.bytes;
    }
    if let Some(request) = state.requests.get_mut(&key.request) {
        let lane = request.lane_of(key.depot);
        if flight.is_piece {
            lane.into_iter()
                .for_each(|lane| request.end_piece(lane, key.chunk));
            return Some(flight);
        }
        let is_delivery = lane.is_some_and(|lane| request.is_destination(lane));
        let push = match (flight.is_mend, is_delivery) {
            (true, _) => &mut request.mend,
            (false, true) => &mut request.delivery,
            (false, false) => &mut request.push,
        };
        if let Some(push) = push {
            push.flying -= 1;
            push.offer(key.chunk);
        }
    }
    Some(flight)
}

/// Stops everything in flight for the request.
pub(crate) fn abandon_all(state: &mut State, id: RequestId, reason: &Reason, out: &mut Outbox) {
    let Some(request) = state.requests.get(&id) else {
        return;
    };
    let depots: Vec<_> = request.lanes.iter().map(|lane| lane.depot).collect();
    for depot in depots {
        if end_flights(state, depot, Some(id)) > 0 {
            let reason = reason.clone();
            out.commands.push(Command::Abandon {
                request: id,
                depot,
                reason,
            });
        }
    }
}

/// Stops what the centre sends for the request; depots go on among themselves if it sends
/// nothing.
pub(crate) fn abandon_sends(state: &mut State, id: RequestId, reason: &Reason, out: &mut Outbox) {
    let Some(request) = state.requests.get(&id) else {
        return;
    };
    let fed = request.lanes.iter().filter(|lane| lane.in_flight > 0);
    let depots: Vec<_> = fed.map(|lane| lane.depot).collect();
    for depot in depots {
        end_flights(state, depot, Some(id));
        out.commands.push(Command::Abandon {
            request: id,
            depot,
            reason: reason.clone(),
        });
    }
}

/// Removes a flight from the books.
pub(crate) fn land(state: &mut State, key: FlightKey, fragment: FragmentIndex) -> Option<Flight> {
    let flight = state.transfers.end(key, fragment)?;
    if let Some(depot) = state.depots.get_mut(&key.depot) {
        depot.link.end_flight(&flight);
    }
    if let Some(request) = state.requests.get_mut(&key.request)
        && let Some(lane) = request.lane_of(key.depot)
    {
        request.end_flight(lane, key.chunk);
    }
    Some(flight)
}

/// Ends what depots get from a coding depot, of one request or of all: it ends together with
/// the sends to that one. Returns the chunks concerned.
fn end_pieces_from(
    state: &mut State,
    depot: DepotId,
    id: Option<RequestId>,
) -> Vec<(RequestId, ChunkIndex)> {
    let pieces = state.pushes.pieces_from(depot, id);
    for (key, fragment) in &pieces {
        land_push(state, *key, *fragment);
    }
    pieces
        .iter()
        .map(|(key, _)| (key.request, key.chunk))
        .collect()
}

/// Ends the flights of a request to a depot and puts their fragments back. Returns their
/// number.
pub(crate) fn end_flights(state: &mut State, depot: DepotId, id: Option<RequestId>) -> usize {
    let ended = state.transfers.end_all(depot, id);
    for (key, flight) in &ended {
        if let Some(depot) = state.depots.get_mut(&depot) {
            depot.link.end_flight(flight);
        }
        if let Some(request) = state.requests.get_mut(&key.request)
            && let Some(lane) = request.lane_of(depot)
        {
            request.end_flight(lane, key.chunk);
            if let Some(tuning) = &mut request.lanes[lane].tuning {
                tuning.interrupt();
            }
        }
    }
    let chunks: Vec<(RequestId, ChunkIndex)> = ended
        .iter()
        .map(|(key, _)| (key.request, key.chunk))
        .collect();
    let pushed: Vec<_> = state.pushes.to(depot, id).collect();
    for (key, flight) in &pushed {
        land_push(state, *key, flight.fragment);
    }
    let pushed = pushed.iter().map(|(key, _)| (key.request, key.chunk));
    let mut chunks: Vec<(RequestId, ChunkIndex)> = chunks.into_iter().chain(pushed).collect();
    chunks.extend(end_pieces_from(state, depot, id));
    for &(request, chunk) in &chunks {
        apply::stripes::refresh_stripe(state, request, chunk);
    }
    chunks.len()
}
