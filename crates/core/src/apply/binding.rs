//! Remembers which limit binds a request: its deadline, its delivery, or a purge.

use alloc::string::String;
use posthaste_types::{RequestId, Timestamp};

use crate::{
    contract::{DeliveryReason, Reason},
    state,
    state::State,
};

/// Records which of being safe and being delivered in time leaves less time, if both are
/// wished.
pub(crate) fn remember_what_binds(state: &mut State, id: RequestId) {
    let Some(request) = state.requests.get(&id) else {
        return;
    };
    let finishes = request.due.finish.zip(request.finish);
    let Some(((due, safe), deliver_by)) = finishes.zip(request.deliver_by()) else {
        return;
    };
    let deadline = request.spec.deadline;
    let slack = |by: Timestamp, finish: Timestamp| by.slack_micros(finish);
    let is_delivery = slack(deliver_by, due.p90) <= slack(deadline, safe.p90);
    let reason = Reason::Delivery {
        why: DeliveryReason::Binds {
            deadline,
            deliver_by,
            is_delivery,
        },
    };
    state::memory::remember(state, id, String::from("what binds"), reason);
}

/// Records which of deadline and purge binds, if both are known.
pub(crate) fn remember_binding(state: &mut State, id: RequestId) {
    let binding = state
        .requests
        .get(&id)
        .and_then(|request| request.binding());
    if let Some(reason) = binding {
        state::memory::remember(state, id, "what binds".into(), reason);
    }
}
