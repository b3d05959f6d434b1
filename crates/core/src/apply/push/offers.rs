//! Offers of fragments that may go on between depots, after something about them changed.

use alloc::{boxed::Box, collections::BTreeSet};
use posthaste_types::{ChunkIndex, DepotId, RequestId};

use crate::{
    apply, decide,
    decide::push::is_ripe,
    state::{Push, Request, State},
};

/// Re-evaluates whether some depots lie nearer than others, as depots changed, or joined a
/// request.
pub(crate) fn sort_by_level(state: &mut State, id: RequestId) {
    let Some(request) = state.requests.get(&id) else {
        return;
    };
    let levels: BTreeSet<u8> = decide::push::sights(state, request)
        .iter()
        .map(|at| at.level)
        .collect();
    let can_push = levels.len() > 1 && request.is_kept() && request.replica.chunks() > 0;
    if can_push == request.push.is_some() {
        return reset_push(state, id);
    }
    // Levels may have been equal for a while, with something still in progress.
    let lanes = request.depot_lanes().map(|lane| request.lanes[lane].depot);
    let flying = lanes.map(|depot| {
        let all = state.pushes.to(depot, Some(id));
        all.filter(|(_, flight)| !flight.is_piece).count()
    });
    let flying = u32::try_from(flying.sum::<usize>()).unwrap_or(u32::MAX);
    if let Some(request) = state.requests.get_mut(&id) {
        request.push = can_push.then(|| Box::new(Push::new(request.replica.chunks(), flying)));
        state.pushes.offer(id);
    }
}

/// Offers a chunk of which a fragment was stored: it may go on.
pub(crate) fn offer_push(state: &mut State, id: RequestId, chunk: ChunkIndex) {
    let has_push = |request: &Request| request.push.is_some() && is_ripe(request, chunk);
    if state.requests.get(&id).is_some_and(has_push)
        && let Some(request) = state.requests.get_mut(&id)
        && let Some(push) = &mut request.push
    {
        push.offer(chunk);
        state.pushes.offer(id);
    }
    apply::delivery::offer_delivery(state, id, chunk);
    apply::repair::offer_mend(state, id, chunk);
}

/// Resets the push of a request whose holdings changed at many places.
pub(crate) fn reset_push(state: &mut State, id: RequestId) {
    apply::repair::begin_mend(state, id);
    let goes_on = |request: &Request| request.goes_on().next().is_some();
    if state.requests.get(&id).is_some_and(goes_on)
        && let Some(request) = state.requests.get_mut(&id)
    {
        let chunks = request.replica.chunks();
        request.goes_on_mut().for_each(|push| push.reset(chunks));
        state.pushes.offer(id);
    }
}

/// Gives chunks that waited for a depot another chance, as it is up again or has space.
pub(crate) fn revive_pushes(state: &mut State, depot: DepotId) {
    for id in state.index.users(depot) {
        let waits = |request: &Request| request.goes_on().any(Push::is_waiting);
        if state.requests.get(&id).is_some_and(waits)
            && let Some(request) = state.requests.get_mut(&id)
        {
            request.goes_on_mut().for_each(Push::revive);
            state.pushes.offer(id);
        }
    }
}
