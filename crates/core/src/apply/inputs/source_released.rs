use posthaste_types::RequestId;

use crate::{
    apply,
    contract::{Happening, Outbox, Reason, RequestState},
    state::{Release, Request, State},
};

/// Handles a source that was removed from scratch, as commanded. From here on nothing can be
/// sent again, and losses are rebuilt from what the depots hold.
pub(crate) fn on_source_released(state: &mut State, id: RequestId, out: &mut Outbox) {
    let Some(request) = state.requests.get(&id) else {
        apply::stage_in::outward::on_outward_released(state, id, out);
        return;
    };
    if request.release.is_over() || !request.is_kept() {
        return;
    }
    // A depot may have been lost since it was commanded.
    let has_it = request.state == RequestState::Delivered || request.replica.is_safe();
    let lacking = match has_it {
        true => 0,
        false => request.replica.chunks() - request.replica.safe(),
    };
    let reason = match has_it {
        true => request.reason_safe(),
        false => Reason::Purged,
    };
    apply::flights::abandon_sends(state, id, &reason, out);
    let Some(request) = state.requests.get_mut(&id) else {
        return;
    };
    request.release = Release::Done;
    request.stripes.clear();
    if request.state != RequestState::Delivered {
        request.state = RequestState::Released;
    }
    request.is_thin = lacking > 0;
    apply::tell::tell(
        state,
        out,
        Some(id),
        None,
        Happening::Released,
        reason.clone(),
    );
    if lacking > 0 {
        let happening = Happening::Unsafe { chunks: lacking };
        apply::tell::tell(state, out, Some(id), None, happening, reason);
    }
    apply::push::offers::reset_push(state, id);
    apply::settle::deliver_if_there(state, id, out);
    let request = state.requests.get(&id);
    let is_delivered =
        |request: &&Request| request.state == RequestState::Delivered && request.lead().is_some();
    if let Some(request) = request.filter(is_delivered) {
        let reason = request.reason_whole(state.now);
        apply::forget::begin_forgetting(state, id, reason);
    }
    apply::stage_in::onward_end::forget_if_gone_on(state, id);
}
