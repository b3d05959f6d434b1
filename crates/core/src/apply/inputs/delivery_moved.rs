//! Moves the time by which a request must be delivered.

use posthaste_types::{RequestId, Timestamp};

use crate::{
    apply,
    contract::{DeliveryReason, Outbox, Reason},
    state,
    state::State,
};

/// Sets, changes or removes the deliver-by at a user's request.
pub(crate) fn on_delivery_moved(
    state: &mut State,
    id: RequestId,
    deliver_by: Option<Timestamp>,
    out: &mut Outbox,
) {
    if let Some(mut held) = apply::plan_over_time::hold::release_held(state, id) {
        held.wishes.deliver_by = deliver_by;
        return apply::admission::answer(state, id, held, true, out);
    }
    let Some(request) = state.requests.get_mut(&id) else {
        return;
    };
    if request.is_final() || request.lead().is_none() || request.delivery.is_none() {
        return;
    }
    let from = core::mem::replace(&mut request.wishes.deliver_by, deliver_by);
    let due = &mut request.due;
    (due.is_leftover, due.at_risk, due.missed) = (false, false, false);
    (due.late_ticks, due.on_time_ticks, due.safe_by) = (0, 0, None);
    let to = deliver_by;
    state::memory::remember(
        state,
        id,
        "delivery moved".into(),
        Reason::Delivery {
            why: DeliveryReason::NewDeliverBy { from, to },
        },
    );
    apply::reindex::bring_up_to_date(state);
    apply::delivery::outlook::look_at_deliveries(state);
    state::wake::look_now(state);
}
