use posthaste_types::RequestId;

use crate::{
    apply,
    contract::{Outbox, Reason, ReleasePolicy, RequestState},
    state,
    state::{Request, State},
};

/// Handles somebody who pulled and verified everything: nothing more needs to be sent, unless
/// destinations wait for it, for which a pull does not speak. If the source is to be removed once
/// it is safe, a pull does not make it so.
pub(crate) fn on_delivered(state: &mut State, id: RequestId, out: &mut Outbox) {
    let others_wait = |request: &Request| {
        let is_open = request.is_kept() && request.state != RequestState::Delivered;
        is_open && request.whole_lanes() != 0
    };
    let is_promised =
        |request: &Request| request.spec.release == ReleasePolicy::WhenSafe && request.is_moving();
    let goes_on = |request: &Request| others_wait(request) || is_promised(request);
    let others_wait = state.requests.get(&id).is_some_and(goes_on);
    if others_wait || state::onward::is_going_on(state, id) {
        if let Some(request) = state.requests.get_mut(&id) {
            request.due.was_pulled = true;
        }
        state::memory::remember(state, id, "somebody has all of it".into(), Reason::Verified);
        return;
    }
    apply::settle::end_delivered(state, id, Reason::Verified, out);
}
