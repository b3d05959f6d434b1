//! Copies to an address from the depots of a request. Such a copy is answered together with that
//! request, and begins when it is safe. Once it has arrived, the depots need not keep anything.

use posthaste_types::{RequestId, Timestamp};

use crate::{
    apply,
    contract::{ArrivalSpec, ArrivalState, DeliveryReason, Happening, Outbox, Reason},
    decide, state,
    state::{Arrival, Onward, Outward, State},
};

/// Onward copy, weighed with its request and not accepted yet.
pub(crate) struct Weighed {
    pub(crate) id: RequestId,
    pub(crate) arrival: Arrival,
}

/// Makes the stage-in that is submitted next an outgoing copy, read from the depots of a
/// request.
pub(crate) fn on_goes_on(state: &mut State, id: RequestId, of: RequestId) {
    let is_taken = state.arrivals.onward.contains_key(&of);
    if is_taken || state.arrivals.requests.contains_key(&id) {
        return;
    }
    let outward = Outward {
        of: Some(of),
        ..Outward::new(false)
    };
    state.arrivals.outward.entry(id).or_insert(outward);
    let onward = Onward { id, spec: None };
    state.arrivals.onward.insert(of, onward);
}

/// Keeps a copy until the request from whose depots it comes is answered. Returns it if that
/// has happened.
pub(crate) fn keep_onward(
    state: &mut State,
    id: RequestId,
    spec: ArrivalSpec,
) -> Option<ArrivalSpec> {
    let Some(of) = state::onward::comes_of(state, id) else {
        return Some(spec);
    };
    if state.requests.contains_key(&of) {
        return Some(spec);
    }
    if let Some(onward) = state.arrivals.onward.get_mut(&of) {
        onward.spec = Some(spec);
    }
    None
}

/// Weighs the onward copy of a newcomer that would be safe then. None if it has none.
///
/// # Errors
///
/// Reason why the copy can't be on time.
pub(crate) fn weigh_onward(
    state: &mut State,
    of: RequestId,
    safe_at: Option<Timestamp>,
) -> Result<Option<Weighed>, Reason> {
    let onward = state.arrivals.onward.get(&of);
    let Some((id, spec)) = onward.and_then(|onward| Some((onward.id, onward.spec.clone()?))) else {
        return Ok(None);
    };
    let mut arrival = apply::stage_in::take::new_arrival(state, spec, &[]);
    arrival.is_leftover = decide::stage_in::admission::judge(state, &arrival, safe_at)?;
    Ok(Some(Weighed { id, arrival }))
}

/// Accepts the weighed copy, as its request is accepted.
pub(crate) fn take_onward(state: &mut State, of: RequestId, weighed: Weighed, out: &mut Outbox) {
    let Weighed { id, arrival } = weighed;
    if let Some(onward) = state.arrivals.onward.get_mut(&of) {
        onward.spec = None;
    }
    apply::stage_in::take::take_arrival(state, id, arrival, out);
    let why = DeliveryReason::GoesOn { by: id };
    state::memory::remember(
        state,
        of,
        "goes on to its address".into(),
        Reason::Delivery { why },
    );
}

/// Refuses the onward copy of a refused request.
pub(crate) fn refuse_onward(state: &mut State, of: RequestId, out: &mut Outbox) {
    let onward = state.arrivals.onward.get_mut(&of);
    let Some((id, spec)) = onward.and_then(|onward| Some((onward.id, onward.spec.take()?))) else {
        return;
    };
    let arrival = apply::stage_in::take::new_arrival(state, spec, &[]);
    let why = DeliveryReason::StaysBehind { of };
    refuse_arrival(state, id, arrival, Reason::Delivery { why }, out);
}

/// Marks a request as delivered once all of it is at its address. Depots keep what was left
/// out, which lies there alone.
pub(crate) fn onward_arrived(state: &mut State, id: RequestId, out: &mut Outbox) {
    let arrival = state.arrivals.requests.get(&id);
    if arrival.is_some_and(|arrival| arrival.left_out.files > 0) {
        apply::stage_in::onward_end::onward_ended(state, id);
    } else if let Some(of) = state::onward::comes_of(state, id) {
        let why = DeliveryReason::AtAddress { by: id };
        apply::settle::end_delivered(state, of, Reason::Delivery { why }, out);
    }
}

/// Refuses a stage-in.
pub(crate) fn refuse_arrival(
    state: &mut State,
    id: RequestId,
    mut arrival: Arrival,
    reason: Reason,
    out: &mut Outbox,
) {
    arrival.state = ArrivalState::Refused;
    arrival.close_books();
    state
        .arrivals
        .requests
        .insert(id, alloc::boxed::Box::new(arrival));
    apply::tell::tell(state, out, Some(id), None, Happening::Refused, reason);
}
