//! Asks for rate on circuits, gives it back, and calls offers.

pub(crate) mod change;
pub(crate) mod held;

use alloc::vec::Vec;
use posthaste_types::{CircuitId, RequestId, ReservationId};

use crate::{
    apply,
    contract::{CircuitReason, Command, Outbox, Reason, ReservationState, Reserve, Step},
    decide,
    decide::circuits::bid::Bid,
    decide::circuits::{ANSWER_WAIT, LOOK_AGAIN, RETURNS_MAX},
    state,
    state::completion::Sweep,
    state::{Reservation, State},
};

/// Asks for rate if a request needs it, and checks whether its reservations are too large or
/// end too early.
pub(crate) fn review_reservations(
    state: &mut State,
    id: RequestId,
    sweep: &Sweep,
    out: &mut Outbox,
) {
    if state.circuits.is_idle() || state.circuits.is_awaited(id) {
        return;
    }
    let Some(request) = state.requests.get(&id) else {
        return;
    };
    if !request.is_under_way() || request.wishes.reserve == Reserve::Never {
        return;
    }
    if apply::circuits::change::review_held(state, id, sweep, out)
        || !decide::circuits::may_ask(state, id)
    {
        return;
    }
    let bid = decide::circuits::bid::best_bid(state, id, sweep);
    if bid.is_none()
        && let Some(request) = state.requests.get_mut(&id)
    {
        request.uncommon.asks.not_before = state.now + LOOK_AGAIN;
    }
    if let Some(bid) = bid {
        ask_for(state, id, bid, out);
    }
}

/// Asks for a reservation as found.
pub(crate) fn ask_for(state: &mut State, id: RequestId, bid: Bid, out: &mut Outbox) {
    let Some(circuit) = state.circuits.offered.get_mut(&bid.circuit) else {
        return;
    };
    circuit.fits = None;
    let name = circuit.terms.name.clone();
    state.circuits.asked += 1;
    let reservation = ReservationId::new(state.circuits.asked);
    let (rate, from, until) = (bid.rate, bid.from, bid.until);
    let Some(request) = state.requests.get_mut(&id) else {
        return;
    };
    request.uncommon.asks.count += 1;
    let why = match request.wishes.reserve {
        Reserve::Always => CircuitReason::Wished { rate, from, until },
        Reserve::Auto | Reserve::Never => CircuitReason::Needed {
            rate,
            from,
            until,
            without: bid.without,
            finish: bid.finish,
            deadline: request.spec.deadline,
        },
    };
    let held = Reservation {
        circuit: bid.circuit,
        name: name.clone(),
        depots: bid.depots,
        request: id,
        rate,
        from,
        until,
        state: ReservationState::Asked,
        change: None,
        changes: 0,
        change_at: state.now,
        spare_looks: 0,
        short_looks: 0,
        due: state.now + ANSWER_WAIT,
        returns: 0,
        cost: bid.cost,
    };
    state.circuits.reservations.insert(reservation, held);
    let reason = Reason::Circuit { name, why };
    apply::circuits::held::say_step(state, id, Step::Asked, reason.clone(), out);
    out.commands.push(Command::Reserve {
        reservation,
        circuit: bid.circuit,
        rate,
        from,
        until,
        reason,
    });
}

/// Gives back reservations no longer needed, unless another request can use the rest.
pub(crate) fn return_unneeded(state: &mut State, out: &mut Outbox) {
    if state.circuits.reservations.is_empty() {
        return;
    }
    apply::reindex::bring_up_to_date(state);
    let all = state.circuits.reservations.iter();
    let unneeded =
        all.filter(|(_, held)| held.is_live() && !decide::circuits::is_needed(state, held));
    let unneeded: Vec<ReservationId> = unneeded.map(|(id, _)| *id).collect();
    for id in unneeded {
        match decide::circuits::find_heir(state, id) {
            Some(heir) => pass_on(state, id, heir, out),
            None => {
                apply::circuits::held::give_back_reservation(state, id, CircuitReason::Spare, out)
            }
        }
    }
}

/// Passes a reservation on to another request. Its cost stays with the one that asked for it.
fn pass_on(state: &mut State, id: ReservationId, heir: RequestId, out: &mut Outbox) {
    let Some(held) = state.circuits.reservations.get_mut(&id) else {
        return;
    };
    let before = core::mem::replace(&mut held.request, heir);
    held.cost = 0;
    (held.spare_looks, held.short_looks) = (0, 0);
    let (name, rate, until) = (held.name.clone(), held.rate, held.until);
    let reason = |why| Reason::Circuit {
        name: name.clone(),
        why,
    };
    let why = reason(CircuitReason::Passed);
    apply::circuits::held::say_step(state, before, Step::Passed, why, out);
    let why = reason(CircuitReason::Carries { rate, until });
    apply::circuits::held::say_step(state, heir, Step::Granted, why, out);
    state::wake::look_now(state);
}

/// Handles reservations of which nothing was heard in time.
pub(crate) fn call_circuits(state: &mut State, out: &mut Outbox) {
    let now = state.now;
    let due = state.circuits.reservations.iter();
    let due = due.filter(|(_, held)| held.due <= now);
    let due: Vec<(ReservationId, ReservationState, CircuitId)> = due
        .map(|(id, held)| (*id, held.state, held.circuit))
        .collect();
    for (id, held_state, circuit) in due {
        match held_state {
            ReservationState::Asked | ReservationState::Granted => {
                state.circuits.put_off(circuit, now);
                apply::circuits::held::give_back_reservation(state, id, CircuitReason::Silent, out);
            }
            ReservationState::Up | ReservationState::Down => {
                apply::circuits::held::give_back_reservation(state, id, CircuitReason::Over, out);
            }
            ReservationState::Returning => return_again(state, id, out),
        }
    }
    // Nothing is due twice in one moment.
    for held in state.circuits.reservations.values_mut() {
        if held.due <= now {
            held.due = now + state.settings.tick;
        }
    }
}

/// Gives a reservation back again, so many times, as its return was not confirmed.
fn return_again(state: &mut State, id: ReservationId, out: &mut Outbox) {
    let Some(held) = state.circuits.reservations.get_mut(&id) else {
        return;
    };
    if held.returns >= RETURNS_MAX {
        state.circuits.reservations.remove(&id);
        return;
    }
    held.due = state.now + ANSWER_WAIT * (1 << held.returns);
    held.returns += 1;
    let (name, why) = (held.name.clone(), CircuitReason::Silent);
    out.commands.push(Command::GiveBack {
        reservation: id,
        reason: Reason::Circuit { name, why },
    });
}

/// Repeats the commands about reservations after a restart of the driver, which takes them up
/// and reports their state.
pub(crate) fn take_up_reservations(state: &mut State, out: &mut Outbox) {
    let now = state.now;
    for (&reservation, held) in &mut state.circuits.reservations {
        let reason = Reason::Restarted;
        if held.state == ReservationState::Returning {
            out.commands.push(Command::GiveBack {
                reservation,
                reason,
            });
            continue;
        }
        if held.state == ReservationState::Asked {
            held.due = now + ANSWER_WAIT;
        }
        out.commands.push(Command::Reserve {
            reservation,
            circuit: held.circuit,
            rate: held.rate,
            from: held.from,
            until: held.until,
            reason: reason.clone(),
        });
        if let Some(change) = held.change {
            out.commands.push(Command::Rearrange {
                reservation,
                rate: change.rate,
                until: change.until,
                reason,
            });
        }
    }
}
