//! Space for the next requests (`docs/algorithms/placement.md`). If it is scarce, a request is fed
//! to as many depots as it takes for others to use what is left.

use alloc::vec::Vec;
use posthaste_plan::room;
use posthaste_types::{Bytes, RequestId, Timestamp};

use crate::{
    decide,
    decide::verdict::Way,
    forecast, state,
    state::{Depot, Request, State},
};

/// Space is scarce if it suffices for fewer requests like this one than that.
const SCARCE: u64 = 8;

/// Returns whether the space left on depots, in bytes each, is scarce for a request that lacks so
/// much of a column.
pub(crate) fn is_scarce(spaces: &[u64], request: &Request, lacks: u64) -> bool {
    let total = usize::from(request.spec.code.total());
    room::column(spaces, total) < lacks.saturating_mul(SCARCE)
}

/// Returns the bytes that each depot of a full stripe still gets of a request.
pub(crate) fn lacks(request: &Request) -> u64 {
    let replica = &request.replica;
    let piece = request.spec.code.fragment_size(request.spec.chunk_size);
    let chunks = u64::from(replica.chunks() - replica.safe());
    piece.times(chunks).get()
}

/// Adds depots to those chosen for a newcomer until others can use what is left, if it is on
/// time with these too.
pub(crate) fn with_room(
    state: &State,
    request: &Request,
    way: &Way,
    chosen: Vec<usize>,
    finish: Timestamp,
) -> (Vec<usize>, Timestamp) {
    let lanes = plain(state, request, &way.lanes);
    let Some(spaces) = scarce(state, request, None, &lanes, chosen.len()) else {
        return (chosen, finish);
    };
    let all = &way.proposal.candidates[..lanes.len()];
    let load = way.proposal.load(all);
    let placed = way.scene.supplies.early(&load, way.scene.now).placed;
    let coded: Bytes = placed.iter().take(load.lanes.len()).copied().sum();
    let total = usize::from(request.spec.code.total());
    let lacks = lacks(request);
    let count = room::fewest(&spaces, chosen.len(), lacks, coded.get(), total);
    if count <= chosen.len() {
        return (chosen, finish);
    }
    let more = &all[..count];
    let by = finish.max(request.aim() - forecast::completion::margin(state, request.aim()));
    match way.scene.finish(&way.proposal, more) {
        Some(then) if then <= by => (more.to_vec(), then),
        Some(_) | None => (chosen, finish),
    }
}

/// Returns the lanes before the first that is used only for a reason. Such a lane is a
/// landmark, one nearer to the destination, or any other if money counts.
fn plain(state: &State, request: &Request, lanes: &[usize]) -> Vec<usize> {
    let is_plain = |lane: &&usize| {
        let depot = state.depots.get(&request.lanes[**lane].depot);
        !request.is_thrifty()
            && state::usable::level_of(state, request, **lane) == 1
            && depot.is_some_and(|depot| !depot.terms.is_landmark)
    };
    lanes.iter().take_while(is_plain).copied().collect()
}

/// Returns the space left on the depots of these lanes, if it is scarce and there are more than
/// are fed anyway. A newcomer has no number yet.
fn scarce(
    state: &State,
    request: &Request,
    id: Option<RequestId>,
    lanes: &[usize],
    least: usize,
) -> Option<Vec<u64>> {
    if least < usize::from(request.spec.code.total()) || least >= lanes.len() {
        return None;
    }
    let space = |&lane: &usize| {
        let at = request.lanes[lane].depot;
        let space = state.depots.get(&at).map_or(Bytes::ZERO, Depot::space);
        let left = match id {
            Some(id) => state.index.space_for(id, at, space),
            None => space - state.index.kept(at) - state.index.held(at),
        };
        left.get()
    };
    let spaces: Vec<u64> = lanes.iter().map(space).collect();
    is_scarce(&spaces, request, lacks(request)).then_some(spaces)
}

/// Returns how many lanes must be fed with `coded` bytes of a request so that others can use
/// what is left. At least the first `least` are fed.
pub(crate) fn roomy(
    state: &State,
    request: &Request,
    id: RequestId,
    lanes: &[usize],
    least: usize,
    coded: Bytes,
) -> usize {
    let lanes = plain(state, request, lanes);
    let Some(spaces) = scarce(state, request, Some(id), &lanes, least) else {
        return least;
    };
    let total = usize::from(request.spec.code.total());
    room::fewest(&spaces, least, lacks(request), coded.get(), total)
}

/// Returns whether one depot less would leave others less of the space. `fed` are the lanes
/// fed, with the one to drop last.
pub(crate) fn needs_room_on_all(
    state: &State,
    id: RequestId,
    request: &Request,
    fed: &[usize],
) -> bool {
    let Some(less) = fed.len().checked_sub(1) else {
        return false;
    };
    let others = decide::candidates::staging_lanes(state, request);
    let others = others.into_iter().filter(|lane| !fed.contains(lane));
    let lanes: Vec<usize> = fed.iter().copied().chain(others).collect();
    let kept = |&lane: &usize| request.piece(lane).times(request.lanes[lane].kept.into());
    let coded = fed.iter().map(kept).sum();
    roomy(state, request, id, &lanes, less, coded) > less
}
