use posthaste_types::{ByteRate, RequestId};

use crate::{
    apply,
    contract::{Cause, Reason},
    state,
    state::State,
};

/// Sets, changes or removes a user's rate limit on a request. It holds from the next fragment
/// on, and everything about the request is judged anew.
pub(crate) fn on_rate_limited(state: &mut State, id: RequestId, to: Option<ByteRate>) {
    if state::stage_ins::is_stage_in(state, id) {
        apply::stage_in::review::limit_arrival(state, id, to);
        return;
    }
    let now = state.now;
    if let Some(request) = apply::plan_over_time::hold::held_mut(state, id) {
        request.wishes.rate_max = to;
        request.uncommon.throttle.set_rate(now, to);
        return;
    }
    let Some(request) = state
        .requests
        .get_mut(&id)
        .filter(|request| !request.is_final() && request.wishes.rate_max != to)
    else {
        return;
    };
    let from = core::mem::replace(&mut request.wishes.rate_max, to);
    request.uncommon.throttle.set_rate(now, to);
    request.account.blame(Cause::Course, None);
    let reason = Reason::NewLimit { from, to };
    state::memory::remember(state, id, "limit changed".into(), reason);
    state::wake::look_now(state);
}
