//! Pieces that relays encode: what they failed, and what was said of them.

use posthaste_types::RequestId;

use crate::{
    contract::{Fault, Reason},
    state,
    state::{FlightKey, State},
};

/// Handles a coded fragment that did not reach its depot, or never will.
pub(crate) fn on_piece_failed(state: &mut State, key: FlightKey, fault: Fault) {
    if let Some(request) = state.requests.get_mut(&key.request)
        && let Some(stripe) = request.stripes.get_mut(&key.chunk)
    {
        stripe.failures += 1;
        stripe.last_fault = Some(fault);
    }
}

/// Reports once for a request that depots code its chunks.
pub(crate) fn say_scattered(state: &mut State, id: RequestId) {
    let request = state.requests.get_mut(&id);
    if let Some(request) = request.filter(|request| request.uncommon.is_scatter_unsaid) {
        (
            request.uncommon.is_scatter_unsaid,
            request.uncommon.is_scattered,
        ) = (false, true);
        let what = "depots code its chunks".into();
        state::memory::remember(state, id, what, Reason::CodedThere);
    }
}
