//! Reservations for a request (`docs/algorithms/circuits.md`): whether, how much and when. Rate is
//! reserved if its user wished it, or its deadline asks for it and the time to set it up pays.
//! Meanwhile data goes at best effort, and again when the reservation is refused, fails or is over.

pub(crate) mod bid;
pub(crate) mod change;

use core::time::Duration;
use posthaste_types::{RequestId, ReservationId};

use crate::{
    contract::Reserve,
    state::{Circuits, Request, Reservation, State},
};

/// Most reservations that a request may ask for in all: one refused so often gets none.
const ASKS_MAX: u32 = 8;

/// Most reservations of a request at a time.
const LIVE_MAX: usize = 4;

/// Time before a look that found nothing to ask for is repeated.
pub(crate) const LOOK_AGAIN: Duration = Duration::from_secs(10);

/// Time after which an unanswered request counts as lost.
pub(crate) const ANSWER_WAIT: Duration = Duration::from_secs(120);

/// Time within which a circuit reports that its time is over.
pub(crate) const OVER_WAIT: Duration = Duration::from_secs(30);

/// Times that a reservation is given back without an answer: then its own end must suffice.
pub(crate) const RETURNS_MAX: u32 = 5;

/// Most requests searched for one that can use what another one leaves.
const HEIRS_MAX: usize = 32;

/// Returns whether a request may ask for rate now, and wants it.
pub(crate) fn may_ask(state: &State, id: RequestId) -> bool {
    let Some(request) = state.requests.get(&id) else {
        return false;
    };
    let (asks, mine) = (request.uncommon.asks, state.circuits.of(id).count());
    let may = asks.count < ASKS_MAX
        && asks.not_before <= state.now
        && mine < LIVE_MAX
        && state.circuits.reservations.len() < Circuits::RESERVATIONS_MAX
        && !state.circuits.offered.is_empty();
    let is_late = request.late_ticks >= state.settings.behind_ticks && !request.missed;
    may && match request.wishes.reserve {
        Reserve::Auto => is_late,
        Reserve::Always => is_late || mine == 0,
        Reserve::Never => false,
    }
}

/// Returns whether its request still sends to where it leads.
pub(crate) fn is_needed(state: &State, held: &Reservation) -> bool {
    let request = state.requests.get(&held.request);
    request.is_some_and(|request| {
        let mut lanes = request.lanes.iter();
        request.is_under_way()
            || lanes.any(|lane| lane.in_flight > 0 && held.depots.contains(&lane.depot))
    })
}

/// Returns the most urgent request that sends to the same depots, has no reservation and may
/// use this one. It gives back what it does not need.
pub(crate) fn find_heir(state: &State, id: ReservationId) -> Option<RequestId> {
    let held = state.circuits.reservations.get(&id)?;
    let is_firm = held.is_counted() && held.change.is_none() && held.until > state.now;
    let mut next = state.index.after(None).take(HEIRS_MAX);
    let heir = next.find(|urgency| {
        let request = state.requests.get(&urgency.request);
        let has_own = state.circuits.of(urgency.request).next().is_some();
        request.is_some_and(|request| may_inherit(request, held)) && !has_own
    });
    heir.filter(|_| is_firm).map(|urgency| urgency.request)
}

/// Returns whether a request that sends to the depots of a reservation may use what another one
/// leaves of it. One with a budget may not: it would have to pay.
fn may_inherit(request: &Request, held: &Reservation) -> bool {
    let mut lanes = request.lanes.iter().enumerate();
    let is_fed = lanes.any(|(place, lane)| {
        lane.is_active && request.is_on_route(place) && held.depots.contains(&lane.depot)
    });
    let is_free = request.wishes.budget_micro_usd.is_none();
    is_fed && is_free && request.is_under_way() && request.wishes.reserve != Reserve::Never
}
