use posthaste_types::RequestId;

use crate::{
    apply,
    contract::Outbox,
    decide, state,
    state::{Request, State},
};

/// Accepts a stage-out of a user, which starts within this step, or refuses it with the reason.
/// A known number is ignored, so that a replay does no harm.
pub(crate) fn on_request_submitted(
    state: &mut State,
    id: RequestId,
    mut request: Request,
    out: &mut Outbox,
) {
    let lent = state.lent.remove(&id);
    let is_known = state.requests.contains_key(&id) || state.planning.is_held(id);
    if is_known || state::stage_ins::is_stage_in(state, id) {
        return;
    }
    let foreign = decide::owned::foreign(state, &request);
    if !foreign.is_empty() {
        request = request.without(foreign, state.now);
    }
    if let Some(lent) = lent.filter(|lent| !lent.is_empty()) {
        request.uncommon.lent = lent;
        apply::lent::wind_for_lent(state, &request);
    }
    apply::admission::answer(state, id, request, true, out);
}
