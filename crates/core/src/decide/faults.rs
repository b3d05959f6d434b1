//! Chunks that depots can rebuild without a file of the source.

use alloc::vec::Vec;
use posthaste_types::{ChunkIndex, DepotId, FragmentIndex, RequestId};

use crate::{
    state,
    state::{Request, State},
};

/// Returns the lanes from which depots may read to rebuild a chunk, and those that may rebuild
/// one, as masks. They need not be up now. A request with a budget uses free depots only, a store
/// can't rebuild, and a depot that is too small takes nothing.
pub(crate) fn rebuilders(state: &State, request: &Request) -> (u64, u64) {
    let bytes = (request.replica).bytes_of(ChunkIndex::new(0), FragmentIndex::new(0));
    let lanes = request.depot_lanes();
    lanes.fold((0, 0), |(givers, takers), lane| {
        let Some(depot) = state.depots.get(&request.lanes[lane].depot) else {
            return (givers, takers);
        };
        let gives = state::usable::gives_for(request, depot);
        let is_wished = !request.is_barred(lane) && state::usable::takes_for(request, depot);
        let takes = is_wished && !depot.stores && depot.capacity >= bytes;
        (
            givers | u64::from(gives) << lane,
            takers | u64::from(takes) << lane,
        )
    })
}

/// Returns a depot's inventory without chunks that changed since it was asked for.
pub(crate) fn without_renewed<T: Copy>(
    state: &State,
    id: RequestId,
    depot: DepotId,
    held: &[(ChunkIndex, T)],
) -> Vec<(ChunkIndex, T)> {
    let request = state.requests.get(&id);
    let asked = request.and_then(|request| {
        let lane = request.lane_of(depot)?;
        Some((&request.uncommon.renewed, request.lanes[lane].asked_at?))
    });
    let is_of_now = |chunk: &ChunkIndex| {
        asked.is_none_or(|(renewed, asked)| renewed.get(chunk).is_none_or(|at| *at < asked))
    };
    let held = held.iter().filter(|(chunk, _)| is_of_now(chunk));
    held.copied().collect()
}
