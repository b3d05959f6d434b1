use posthaste_types::RequestId;

use crate::{
    apply,
    contract::{Happening, Outbox, Reason, RequestState},
    state,
    state::State,
};

/// Cancels a request at a user's request. What the depots hold is deleted only while the source
/// is there.
pub(crate) fn on_request_cancelled(state: &mut State, id: RequestId, out: &mut Outbox) {
    if state::stage_ins::is_stage_in(state, id) {
        apply::stage_in::ending::cancel_arrival(state, id, out);
        return;
    }
    if let Some(held) = apply::plan_over_time::hold::release_held(state, id) {
        state.requests.insert(id, held);
    }
    let Some(request) = state.requests.get(&id) else {
        return;
    };
    // A release that failed may have removed some files: depots hold the only copy of those.
    let is_gone = request.state == RequestState::Released || request.has_tried_release();
    if request.is_final() || is_gone {
        return;
    }
    apply::ending::end(
        state,
        id,
        RequestState::Cancelled,
        Happening::Cancelled,
        Reason::Asked,
        out,
    );
}
