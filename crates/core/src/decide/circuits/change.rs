//! Review of a request's reservations at every tick: less if less suffices, longer if it would end
//! too early, none if none is needed. Each change needs enough consecutive looks that agree, and is
//! rare.

use core::time::Duration;
use posthaste_plan::{Load, lease};
use posthaste_types::{ByteRate, RequestId, ReservationId, Timestamp};

use crate::{
    decide,
    decide::circuits::bid::end,
    forecast,
    forecast::completion::raise::Raise,
    state::completion::Sweep,
    state::{Reservation, State, share},
};

/// Consecutive looks that must agree before anything is given back.
pub(crate) const SPARE_LOOKS: u32 = 10;

/// Consecutive looks that must agree before more time is asked for: a late request has none to
/// lose.
pub(crate) const SHORT_LOOKS: u32 = 3;

/// Most changes of one reservation, and the time between two: so long after the first, twice after
/// the second.
const CHANGES_MAX: u32 = 8;

pub(crate) const CHANGE_EVERY: Duration = Duration::from_secs(30);

/// Most quarters that may suffice for less to be asked for.
pub(crate) const WORTH_QUARTERS: u64 = 3;

/// Time to go below which less is not worth asking for.
pub(crate) const NEARLY_OVER: Duration = Duration::from_secs(60);

/// Longest extension of a reservation: another look will show more.
const LONGER_MAX: Duration = Duration::from_secs(86_400);

/// Returns until when a reservation would have to last for its request to be done; none if that
/// gains nothing or is not paid.
pub(crate) fn longer(
    state: &State,
    id: RequestId,
    reservation: ReservationId,
    sweep: &Sweep,
) -> Option<Timestamp> {
    let held = state.circuits.reservations.get(&reservation)?;
    let request = state.requests.get(&id)?;
    let load = forecast::completion::load_now(state, request, sweep.places());
    let raise = Raise {
        depots: &held.depots,
        from: held.until,
        until: held.until + LONGER_MAX,
        before: ByteRate::ZERO,
        after: held.share(),
    };
    let finish = forecast::completion::raise::finish_raised(state, sweep, &load, &raise)?;
    let before = request.finish.map(|finish| finish.p90);
    let is_better = before.is_none_or(|before| finish < before);
    let until = end(held.from, finish, Duration::ZERO);
    let more = cost_until(state, held, until)?.saturating_sub(held.cost);
    let is_paid = more == 0 || more <= decide::budget::money_to_spare(state, request);
    (is_better && is_paid && until > held.until).then_some(until)
}

/// Returns the cost of a reservation with another end; none if its circuit is no longer
/// offered.
pub(crate) fn cost_until(state: &State, held: &Reservation, until: Timestamp) -> Option<u64> {
    let circuit = state.circuits.offered.get(&held.circuit)?;
    Some(circuit.terms.cost(until.since(held.from)))
}

/// Returns the least rate that keeps the deadline well, zero if none is needed. The margin is
/// twice that for asking, so that the two don't undo each other.
pub(crate) fn needed(
    state: &State,
    id: RequestId,
    reservation: ReservationId,
    sweep: &Sweep,
) -> Option<ByteRate> {
    let held = state.circuits.reservations.get(&reservation)?;
    let request = state.requests.get(&id)?;
    let load = forecast::completion::load_now(state, request, sweep.places());
    let aim = request.aim() - forecast::completion::margin(state, request.aim()) * 2;
    let is_kept = |rate: ByteRate, by: Timestamp| {
        let finish = finish_with(state, sweep, &load, held, rate);
        finish.is_some_and(|finish| finish <= by)
    };
    if is_kept(ByteRate::ZERO, aim) {
        return Some(ByteRate::ZERO);
    }
    let by = aim.min(held.until);
    if !is_kept(held.rate.scaled(WORTH_QUARTERS, 4), by) {
        return Some(held.rate);
    }
    lease::least(held.rate, |rate| is_kept(rate, by))
}

/// Returns when a load would be done with a reservation of that rate from now on.
fn finish_with(
    state: &State,
    sweep: &Sweep,
    load: &Load,
    held: &Reservation,
    rate: ByteRate,
) -> Option<Timestamp> {
    let raise = Raise {
        depots: &held.depots,
        from: held.from.max(state.now),
        until: held.until,
        before: held.share(),
        after: share(rate, held.depots.len()),
    };
    forecast::completion::raise::finish_raised(state, sweep, load, &raise)
}

impl Reservation {
    /// Returns whether another change may be asked for.
    pub(crate) fn may_change(&self, now: Timestamp) -> bool {
        self.changes < CHANGES_MAX && self.change_at <= now
    }
}
