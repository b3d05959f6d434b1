use posthaste_types::RequestId;

use crate::{
    apply,
    contract::{Cause, Priority, Reason},
    state,
    state::State,
};

/// Sets the priority of a running request: it counts from the next look on, beside what was
/// promised to others.
pub(crate) fn on_priority_moved(state: &mut State, id: RequestId, to: Priority) {
    if let Some(arrival) = state.arrivals.requests.get_mut(&id) {
        if arrival.state.is_live() && arrival.spec.priority != to {
            let from = core::mem::replace(&mut arrival.spec.priority, to);
            state::memory::remember(
                state,
                id,
                "priority changed".into(),
                Reason::NewPriority { from, to },
            );
            state::wake::look_at_arrivals_now(state);
        }
        return;
    }
    if let Some(request) = apply::plan_over_time::hold::held_mut(state, id) {
        request.wishes.priority = to;
        return;
    }
    let Some(request) = state
        .requests
        .get_mut(&id)
        .filter(|request| !request.is_final() && request.wishes.priority != to)
    else {
        return;
    };
    let from = core::mem::replace(&mut request.wishes.priority, to);
    request.account.blame(Cause::Course, None);
    state::memory::remember(
        state,
        id,
        "priority changed".into(),
        Reason::NewPriority { from, to },
    );
    state::wake::look_now(state);
}
