//! Rate that is held: its cost, and giving it back.

use posthaste_types::{RequestId, ReservationId};

use crate::{
    apply,
    contract::{CircuitReason, Command, Happening, Outbox, Reason, ReservationState, Step},
    decide::circuits::ANSWER_WAIT,
    state,
    state::State,
};

/// Reports a step of a request's reservation.
pub(crate) fn say_step(
    state: &mut State,
    request: RequestId,
    step: Step,
    reason: Reason,
    out: &mut Outbox,
) {
    let happening = Happening::Reservation { step };
    apply::tell::tell(state, out, Some(request), None, happening, reason);
}

/// Gives a reservation back, and reports why.
pub(crate) fn give_back_reservation(
    state: &mut State,
    id: ReservationId,
    why: CircuitReason,
    out: &mut Outbox,
) {
    let now = state.now;
    let Some(held) = state.circuits.reservations.get_mut(&id) else {
        return;
    };
    let was = core::mem::replace(&mut held.state, ReservationState::Returning);
    (held.change, held.due) = (None, now + ANSWER_WAIT);
    held.returns = 1;
    let (request, name) = (held.request, held.name.clone());
    if was != ReservationState::Asked {
        settle_cost(state, id);
    }
    let reason = Reason::Circuit { name, why };
    say_step(state, request, Step::Returned, reason.clone(), out);
    out.commands.push(Command::GiveBack {
        reservation: id,
        reason,
    });
    refresh_reserved(state, id);
    state::wake::look_now(state);
}

/// Sets the rate reserved now on the links of a reservation.
pub(crate) fn refresh_reserved(state: &mut State, id: ReservationId) {
    let Some(held) = state.circuits.reservations.get(&id) else {
        return;
    };
    for depot in held.depots.clone() {
        let rate = state.circuits.carried(depot);
        if let Some(depot) = state.depots.get_mut(&depot) {
            depot.link.set_reserved(state.now, rate, &state.settings);
        }
    }
}

/// Settles the cost of a reservation: only its used part is paid.
pub(crate) fn settle_cost(state: &mut State, id: ReservationId) {
    let now = state.now;
    let Some(held) = state.circuits.reservations.get_mut(&id) else {
        return;
    };
    let whole = held.until.since(held.from).as_micros().max(1);
    let used = held.until.min(now).since(held.from).as_micros();
    let paid = u128::from(held.cost) * used / whole;
    let paid = u64::try_from(paid).unwrap_or(u64::MAX);
    let (request, before) = (held.request, core::mem::replace(&mut held.cost, paid));
    charge_reservation(state, request, before, paid);
}

/// Changes the cost of a reservation that a request bears.
pub(crate) fn charge_reservation(state: &mut State, request: RequestId, before: u64, after: u64) {
    if before != after
        && let Some(request) = state.requests.get_mut(&request)
    {
        let spent = request.spent_micro_usd.saturating_sub(before);
        request.spent_micro_usd = spent.saturating_add(after);
    }
}
