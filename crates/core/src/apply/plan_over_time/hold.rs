//! Requests that wait for a plan.

use posthaste_types::RequestId;

use crate::state::{Request, State};

/// Removes and returns a newcomer whose answer waits.
pub(crate) fn release_held(state: &mut State, id: RequestId) -> Option<Request> {
    state.planning.held.remove(&id)
}

/// Returns a newcomer whose answer waits.
pub(crate) fn held_mut(state: &mut State, id: RequestId) -> Option<&mut Request> {
    state.planning.held.get_mut(&id)
}
