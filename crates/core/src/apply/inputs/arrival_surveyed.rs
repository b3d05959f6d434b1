use posthaste_types::{ChunkIndex, RequestId};

use crate::{state, state::State};

/// Records which chunks of a stage-in are durably here.
pub(crate) fn on_arrival_surveyed(state: &mut State, id: RequestId, chunks: &[ChunkIndex]) {
    let Some(arrival) = state.arrivals.requests.get_mut(&id) else {
        return;
    };
    if arrival.asked_at.take().is_none() || !arrival.state.is_live() {
        return;
    }
    arrival.found(chunks.iter().map(|chunk| chunk.get()));
    state::wake::look_at_arrivals_now(state);
}
