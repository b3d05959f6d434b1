use posthaste_types::{ByteRate, ReservationId};

use crate::{
    apply,
    contract::{CircuitReason, Command, News, Outbox, Reason, ReservationState, Step},
    decide,
    decide::circuits::{ANSWER_WAIT, OVER_WAIT},
    state,
    state::State,
};

/// Handles news of a reservation, asked for or unasked.
pub(crate) fn on_reservation_told(
    state: &mut State,
    id: ReservationId,
    news: News,
    out: &mut Outbox,
) {
    let Some(held_state) = state.circuits.reservations.get(&id).map(|held| held.state) else {
        give_back_unknown(id, news, out);
        return;
    };
    let is_asked = held_state == ReservationState::Asked;
    let may_rise = matches!(
        held_state,
        ReservationState::Granted | ReservationState::Down
    );
    match news {
        News::Granted if is_asked => grant(state, id, out),
        News::Up if is_asked => {
            grant(state, id, out);
            bring_up(state, id, out);
        }
        News::Up if may_rise => bring_up(state, id, out),
        News::Down if held_state == ReservationState::Up => bring_down(state, id, out),
        News::Changed => apply::circuits::change::end_change(state, id, true, out),
        News::Unchanged => apply::circuits::change::end_change(state, id, false, out),
        News::Refused { fits } if is_asked => {
            let step = (Step::Refused, CircuitReason::Refused { fits });
            end_asked(state, id, fits, step, out);
        }
        News::Unobtainable { why } if is_asked => {
            let step = (Step::Unobtainable, CircuitReason::Unobtainable { why });
            end_asked(state, id, None, step, out);
        }
        // It was granted before: a refusal now means its loss.
        News::Refused { .. } | News::Failed => {
            end_reservation(state, id, CircuitReason::Failed, out);
        }
        News::Unobtainable { why } => {
            end_reservation(state, id, CircuitReason::Unobtainable { why }, out);
        }
        News::Over => end_reservation(state, id, CircuitReason::Over, out),
        News::Granted | News::Up | News::Down => {}
    }
}

fn grant(state: &mut State, id: ReservationId, out: &mut Outbox) {
    let Some(held) = state.circuits.reservations.get_mut(&id) else {
        return;
    };
    held.state = ReservationState::Granted;
    held.due = held.from.max(state.now) + ANSWER_WAIT;
    let (request, cost, circuit) = (held.request, held.cost, held.circuit);
    let (name, rate, from, until) = (held.name.clone(), held.rate, held.from, held.until);
    if let Some(circuit) = state.circuits.offered.get_mut(&circuit) {
        circuit.refusals = 0;
    }
    apply::circuits::held::charge_reservation(state, request, 0, cost);
    let why = CircuitReason::Granted { rate, from, until };
    apply::circuits::held::say_step(
        state,
        request,
        Step::Granted,
        Reason::Circuit { name, why },
        out,
    );
    state::wake::look_now(state);
}

/// Brings up a reservation whose rate is available: the depots to which it leads are fed.
fn bring_up(state: &mut State, id: ReservationId, out: &mut Outbox) {
    let Some(held) = state.circuits.reservations.get_mut(&id) else {
        return;
    };
    held.state = ReservationState::Up;
    held.due = held.until + OVER_WAIT;
    let (request, circuit, depots) = (held.request, held.circuit, held.depots.clone());
    let (name, rate, until) = (held.name.clone(), held.rate, held.until);
    let why = CircuitReason::Carries { rate, until };
    apply::circuits::held::say_step(state, request, Step::Up, Reason::Circuit { name, why }, out);
    if depots
        .iter()
        .any(|depot| decide::routes::is_trial_of(state, *depot))
    {
        // The way being tried may not lie on the circuit, and shows nothing from now on.
        apply::routes::end_trial(state, out);
    }
    apply::routes::take_ways_of(state, circuit, &depots, out);
    let request = state.requests.get_mut(&request);
    if let Some(request) = request.filter(|request| request.is_moving()) {
        for place in 0..request.lanes.len() {
            let leads = depots.contains(&request.lanes[place].depot);
            if leads && request.is_on_route(place) && !request.lanes[place].is_active {
                request.lanes[place].is_active = true;
                request.replica.unpark();
            }
        }
    }
    apply::circuits::held::refresh_reserved(state, id);
    state::wake::look_now(state);
}

fn bring_down(state: &mut State, id: ReservationId, out: &mut Outbox) {
    let Some(held) = state.circuits.reservations.get_mut(&id) else {
        return;
    };
    held.state = ReservationState::Down;
    let (request, name) = (held.request, held.name.clone());
    let why = CircuitReason::Interrupted;
    apply::circuits::held::say_step(
        state,
        request,
        Step::Down,
        Reason::Circuit { name, why },
        out,
    );
    apply::circuits::held::refresh_reserved(state, id);
    state::wake::look_now(state);
}

/// Handles a refusal. The rate that would fit is asked for at the next look, if it is useful.
fn end_asked(
    state: &mut State,
    id: ReservationId,
    fits: Option<ByteRate>,
    (step, why): (Step, CircuitReason),
    out: &mut Outbox,
) {
    let Some(held) = state.circuits.reservations.remove(&id) else {
        return;
    };
    state.circuits.put_off(held.circuit, state.now);
    let less = fits.filter(|fits| *fits < held.rate && *fits > ByteRate::ZERO);
    if let Some(circuit) = state.circuits.offered.get_mut(&held.circuit)
        && less.is_some()
    {
        (circuit.fits, circuit.not_before) = (less, state.now);
    }
    let reason = Reason::Circuit {
        name: held.name,
        why,
    };
    apply::circuits::held::say_step(state, held.request, step, reason, out);
    state::wake::look_now(state);
}

/// Ends a reservation, as planned or not.
fn end_reservation(state: &mut State, id: ReservationId, why: CircuitReason, out: &mut Outbox) {
    let Some(held) = state.circuits.reservations.get_mut(&id) else {
        return;
    };
    let was = core::mem::replace(&mut held.state, ReservationState::Returning);
    let (request, circuit, name) = (held.request, held.circuit, held.name.clone());
    match was {
        // A return is already reported and paid, and a reservation only asked for costs
        // nothing.
        ReservationState::Returning | ReservationState::Asked => {}
        ReservationState::Granted | ReservationState::Up | ReservationState::Down => {
            apply::circuits::held::settle_cost(state, id);
        }
    }
    apply::circuits::held::refresh_reserved(state, id);
    state.circuits.reservations.remove(&id);
    if was == ReservationState::Returning {
        return;
    }
    if why != CircuitReason::Over {
        state.circuits.put_off(circuit, state.now);
    }
    apply::circuits::held::say_step(
        state,
        request,
        Step::Ended,
        Reason::Circuit { name, why },
        out,
    );
    state::wake::look_now(state);
}

/// Gives back a reservation that is unknown here, so that nothing stays reserved in vain.
fn give_back_unknown(id: ReservationId, news: News, out: &mut Outbox) {
    match news {
        News::Granted | News::Up | News::Changed => {
            let (name, why) = (alloc::format!("{id}"), CircuitReason::Spare);
            out.commands.push(Command::GiveBack {
                reservation: id,
                reason: Reason::Circuit { name, why },
            });
        }
        News::Refused { .. }
        | News::Unobtainable { .. }
        | News::Unchanged
        | News::Down
        | News::Over
        | News::Failed => {}
    }
}
