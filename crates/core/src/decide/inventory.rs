//! Fragments that a depot should hold and lacks.

use posthaste_types::RequestId;

use crate::state::State;

/// Counts the chunks that are not safe.
pub(crate) fn lacks(state: &State, id: RequestId) -> u32 {
    let request = state.requests.get(&id);
    request.map_or(0, |request| {
        request.replica.chunks() - request.replica.safe()
    })
}
