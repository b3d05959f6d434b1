//! Ends fetches from sources, and prestaging.

use alloc::vec::Vec;
use posthaste_types::{RequestId, SourceId};

use crate::state::{Fetch, State};

/// Ends one chunk's way to a depot near the centre. Returns whether it was in progress.
pub(crate) fn end_prestage(state: &mut State, id: RequestId, fetch: Fetch) -> bool {
    let arrivals = &mut state.arrivals;
    let arrival = arrivals.requests.get_mut(&id);
    let Some(ended) = arrival.and_then(|arrival| arrival.end_prestage(fetch)) else {
        return false;
    };
    if let Some(source) = arrivals.sources.get_mut(&fetch.source) {
        source.link.end_flight(&ended.flight);
    }
    true
}

/// Ends one fetch, or a chunk's way to a depot near the centre. Returns whether it was in
/// progress.
pub(crate) fn end_fetch(state: &mut State, id: RequestId, fetch: Fetch) -> bool {
    let arrivals = &mut state.arrivals;
    let Some(arrival) = arrivals.requests.get_mut(&id) else {
        return false;
    };
    let Some(flight) = arrival.fetches.remove(&fetch) else {
        return end_prestage(state, id, fetch);
    };
    if let Some(source) = arrivals.sources.get_mut(&fetch.source) {
        source.link.end_flight(&flight);
    }
    if let Some(lane) = arrival.lane_mut(fetch.source) {
        lane.in_flight -= 1;
    }
    let chunk = fetch.chunk;
    let is_wanted = arrival.state.is_live() && !arrival.here.contains(chunk.get());
    if is_wanted && arrival.fetches_of(chunk) == 0 {
        arrival.reopen(chunk);
    }
    true
}

/// Ends all fetches of one stage-in, or of all, from one source. Returns the stage-ins
/// affected.
pub(crate) fn end_fetches(
    state: &mut State,
    source: SourceId,
    of: Option<RequestId>,
) -> Vec<RequestId> {
    let all = state.arrivals.requests.iter();
    let under_way: Vec<(RequestId, Fetch)> = all
        .filter(|(id, _)| of.is_none_or(|of| of == **id))
        .flat_map(|(id, arrival)| {
            let under_way = arrival.fetches.keys().chain(arrival.prestages.keys());
            under_way.map(|fetch| (*id, *fetch))
        })
        .filter(|(_, fetch)| fetch.source == source)
        .collect();
    let mut ended = Vec::new();
    for (id, fetch) in under_way {
        end_fetch(state, id, fetch);
        if ended.last() != Some(&id) {
            ended.push(id);
        }
    }
    ended
}
