//! Refreshes which fragments of a chunk are wanted, and by whom.

use alloc::vec::Vec;
use posthaste_types::{ChunkIndex, RequestId};

use crate::{
    apply,
    state::{State, Stripe},
};

/// Recomputes what a chunk being sent lacks, after something about it changed.
pub(crate) fn refresh_stripe(state: &mut State, id: RequestId, chunk: ChunkIndex) {
    if let Some(placing) = apply::dispatch::placing::placing(state, id)
        && let Some(stripe) = placing.request.stripes.remove(&chunk)
    {
        let (wanted, taken) = placing.mask(chunk);
        if wanted != 0 || placing.request.is_flying(chunk) {
            placing.request.replica.open(chunk);
            placing.request.stripes.insert(
                chunk,
                Stripe {
                    wanted,
                    taken,
                    ..stripe
                },
            );
        } else {
            placing.request.replica.put_back(chunk);
        }
    }
}

/// Recomputes what every chunk of the request being sent lacks.
pub(crate) fn refresh_stripes(state: &mut State, id: RequestId) {
    let open = state
        .requests
        .get(&id)
        .map(|request| request.stripes.keys().copied());
    let open: Vec<ChunkIndex> = open.into_iter().flatten().collect();
    for chunk in open {
        refresh_stripe(state, id, chunk);
    }
}
