//! Lengthens, raises and ends reservations that are held.

use posthaste_types::{ByteRate, RequestId, ReservationId};

use crate::{
    apply,
    contract::{CircuitReason, Command, Outbox, Reason, Reserve, Step},
    decide,
    decide::circuits::OVER_WAIT,
    decide::circuits::change::{
        CHANGE_EVERY, NEARLY_OVER, SHORT_LOOKS, SPARE_LOOKS, WORTH_QUARTERS,
    },
    state,
    state::completion::Sweep,
    state::{Change, State},
};

/// Reviews what a request has reserved. Returns whether something was done about it.
pub(crate) fn review_held(
    state: &mut State,
    id: RequestId,
    sweep: &Sweep,
    out: &mut Outbox,
) -> bool {
    let mine = state.circuits.of(id).filter(|(_, held)| held.is_counted());
    let Some((held, until)) = mine
        .map(|(held, reservation)| (held, reservation.until))
        .min_by_key(|(_, until)| *until)
    else {
        return false;
    };
    let Some(request) = state.requests.get(&id) else {
        return false;
    };
    let is_auto = request.wishes.reserve == Reserve::Auto;
    if request.finish.is_none_or(|finish| finish.p90 > until) {
        return review_short(state, id, held, sweep, out);
    }
    is_auto && review_spare(state, id, held, sweep, out)
}

/// Asks for more time if it has been too short for a while.
fn review_short(
    state: &mut State,
    id: RequestId,
    reservation: ReservationId,
    sweep: &Sweep,
    out: &mut Outbox,
) -> bool {
    let now = state.now;
    let Some(held) = state.circuits.reservations.get_mut(&reservation) else {
        return false;
    };
    (held.spare_looks, held.short_looks) = (0, held.short_looks.saturating_add(1));
    let (rate, may) = (held.rate, held.may_change(now));
    if !may || held.short_looks < SHORT_LOOKS {
        return false;
    }
    let Some(until) = decide::circuits::change::longer(state, id, reservation, sweep) else {
        return false;
    };
    let why = CircuitReason::TooShort { until };
    rearrange(state, reservation, Change { rate, until }, why, out);
    true
}

/// Gives back rate that has not been needed for a while.
fn review_spare(
    state: &mut State,
    id: RequestId,
    reservation: ReservationId,
    sweep: &Sweep,
    out: &mut Outbox,
) -> bool {
    let now = state.now;
    let needed = decide::circuits::change::needed(state, id, reservation, sweep);
    let Some((needed, held)) = needed.zip(state.circuits.reservations.get_mut(&reservation)) else {
        return false;
    };
    held.short_looks = 0;
    let (from, until) = (held.rate, held.until);
    let is_none = needed == ByteRate::ZERO;
    let is_less = needed <= from.scaled(WORTH_QUARTERS, 4);
    let may = held.may_change(now) && until.since(now) > NEARLY_OVER;
    held.spare_looks = match is_none || (is_less && may) {
        true => held.spare_looks.saturating_add(1),
        false => 0,
    };
    if held.spare_looks < SPARE_LOOKS {
        return false;
    }
    if is_none {
        apply::circuits::held::give_back_reservation(state, reservation, CircuitReason::Spare, out);
    } else {
        let (why, rate) = (CircuitReason::TooLarge { from, to: needed }, needed);
        rearrange(state, reservation, Change { rate, until }, why, out);
    }
    true
}

fn rearrange(
    state: &mut State,
    reservation: ReservationId,
    change: Change,
    why: CircuitReason,
    out: &mut Outbox,
) {
    let now = state.now;
    let Some(held) = state.circuits.reservations.get_mut(&reservation) else {
        return;
    };
    held.change = Some(change);
    (held.spare_looks, held.short_looks) = (0, 0);
    held.changes += 1;
    held.change_at = now + CHANGE_EVERY * held.changes;
    let (request, name) = (held.request, held.name.clone());
    let reason = Reason::Circuit { name, why };
    apply::circuits::held::say_step(state, request, Step::Changing, reason.clone(), out);
    out.commands.push(Command::Rearrange {
        reservation,
        rate: change.rate,
        until: change.until,
        reason,
    });
}

/// Handles the end of a change: the reservation was changed as asked, or stays as it is.
pub(crate) fn end_change(state: &mut State, id: ReservationId, is_changed: bool, out: &mut Outbox) {
    let Some(held) = state.circuits.reservations.get_mut(&id) else {
        return;
    };
    let Some(change) = held.change.take() else {
        return;
    };
    let step = match is_changed {
        true => Step::Changed,
        false => Step::Unchanged,
    };
    if is_changed {
        (held.rate, held.until) = (change.rate, change.until);
        held.due = held.due.max(change.until + OVER_WAIT);
    }
    let (request, name, before) = (held.request, held.name.clone(), held.cost);
    let (rate, from, until) = (held.rate, held.from, held.until);
    let held = state.circuits.reservations.get(&id);
    let cost = held.and_then(|held| decide::circuits::change::cost_until(state, held, until));
    if let Some(cost) = cost.filter(|_| is_changed) {
        if let Some(held) = state.circuits.reservations.get_mut(&id) {
            held.cost = cost;
        }
        apply::circuits::held::charge_reservation(state, request, before, cost);
    }
    let why = match is_changed {
        true => CircuitReason::Granted { rate, from, until },
        false => CircuitReason::Kept { rate, until },
    };
    apply::circuits::held::say_step(state, request, step, Reason::Circuit { name, why }, out);
    apply::circuits::held::refresh_reserved(state, id);
    state::wake::look_now(state);
}
