//! Ends exports from depots.

use posthaste_types::RequestId;

use crate::{
    apply,
    contract::{DeliveryReason, Reason, RequestState},
    state,
    state::State,
};

/// Lets depots drop what is at its address, once the source was removed or stays for good.
pub(crate) fn forget_if_gone_on(state: &mut State, of: RequestId) {
    if state::onward::has_gone_on(state, of)
        && let Some(by) = state::onward::goes_on_as(state, of)
    {
        let why = DeliveryReason::AtAddress { by };
        apply::forget::begin_forgetting(state, of, Reason::Delivery { why });
    }
}

/// Handles an onward copy that ended before all of it was at its address: depots keep their
/// data for pulls.
pub(crate) fn onward_ended(state: &mut State, id: RequestId) {
    let Some(of) = state::onward::comes_of(state, id) else {
        return;
    };
    let request = state.requests.get(&of);
    if request.is_some_and(|request| request.is_kept() && request.state != RequestState::Delivered)
    {
        let why = DeliveryReason::NotBrought { by: id };
        state::memory::remember(
            state,
            of,
            "stays on depots".into(),
            Reason::Delivery { why },
        );
    }
}
