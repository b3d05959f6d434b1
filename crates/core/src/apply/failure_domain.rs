//! Sorts the depots of requests into groups that fail together.

use posthaste_types::RequestId;

use crate::{
    apply,
    contract::{Happening, Outbox, Reason},
    state,
    state::State,
};

/// Reports that fragments lie closer together than the parity covers, once for each fragment
/// more.
pub(crate) fn say_crowded(state: &mut State, id: RequestId, out: &mut Outbox) {
    let request = state.requests.get(&id);
    let Some(request) = request.filter(|request| request.uncommon.is_crowd_unsaid) else {
        return;
    };
    let (most, code) = (request.crowd_max(), request.code_now());
    if let Some(request) = state.requests.get_mut(&id) {
        request.uncommon.is_crowd_unsaid = false;
    }
    let reason = Reason::OnlyKinHaveRoom { most, code };
    apply::tell::tell(state, out, Some(id), None, Happening::Crowded, reason);
}

/// Re-evaluates which depots of a request fail together, as terms changed.
pub(crate) fn sort_by_domain(state: &mut State, id: RequestId) {
    let kin = state
        .requests
        .get(&id)
        .map(|request| state::failure_domain::kin(state, request));
    if let Some((request, kin)) = state.requests.get_mut(&id).zip(kin) {
        request.set_kin(kin);
        apply::stripes::refresh_stripes(state, id);
    }
}
