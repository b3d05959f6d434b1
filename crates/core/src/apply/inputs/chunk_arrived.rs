use posthaste_types::{ChunkIndex, RequestId, SourceId};

use crate::{
    apply,
    contract::Outbox,
    state::{Fetch, State},
};

/// Handles a chunk that was read from a source, written to its file, and its digest noted. One
/// that is no longer awaited changes nothing: what is here is asked before anything counts on
/// it.
pub(crate) fn on_chunk_arrived(
    state: &mut State,
    request: RequestId,
    source: SourceId,
    chunk: ChunkIndex,
    out: &mut Outbox,
) {
    if !apply::stage_in::fetches::end_fetch(state, request, Fetch { chunk, source }) {
        return;
    }
    let now = state.now;
    let is_back = state
        .arrivals
        .sources
        .get_mut(&source)
        .is_some_and(|source| source.succeed(now));
    if let Some(arrival) = state.arrivals.requests.get_mut(&request)
        && arrival.state.is_live()
    {
        arrival.local_failures = 0;
        arrival.wrong.chunks.remove(&Fetch { chunk, source });
        if arrival.take(chunk.get()) {
            let bytes = arrival.chunk_bytes(chunk.get());
            if let Some(lane) = arrival.lane_mut(source) {
                lane.arrived += 1;
                lane.bytes += bytes;
            }
            state
                .shares
                .charge(arrival.claim(), bytes, now, &state.settings);
        }
    }
    if is_back {
        apply::stage_in::tell::say_source_is_back(state, source, out);
    }
}
