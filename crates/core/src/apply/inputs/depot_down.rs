use core::time::Duration;
use posthaste_types::DepotId;

use crate::{
    apply,
    apply::losses::STEADY,
    contract::{Fault, Outbox, Reason},
    decide::dispatch::patience::is_lasting,
    state::State,
};

/// Tolerance for a depot to go before its hours end, and to come after they begin.
const EARLY: Duration = Duration::from_secs(60);

const LATE: Duration = Duration::from_secs(60);

/// Handles a depot that did not answer. One that keeps doing so rests longer and longer.
pub(crate) fn on_depot_down(state: &mut State, id: DepotId, fault: Fault, out: &mut Outbox) {
    let Some(depot) = state.depots.get(&id) else {
        return;
    };
    // A depot whose hours never open does not come back by them.
    let has_hours = depot.terms.windows.next_change(state.now).is_some();
    let is_within = |at| depot.is_within_hours(at) || !has_hours;
    let is_outside = !is_within(state.now + EARLY) || !is_within(state.now);
    if depot.is_down() {
        let is_overdue = depot.is_away && !is_outside && is_within(state.now - LATE);
        if let Some(depot) = state.depots.get_mut(&id) {
            depot.answered = None;
        }
        if is_overdue {
            apply::losses::lose(state, id, Reason::DepotLost { fault }, 0, out);
        }
        return;
    }
    if is_outside {
        apply::losses::let_go(state, id, out);
        return;
    }
    // The first loss costs nothing: a relay may restart.
    let is_first = depot.losses == 0 || depot.hold_until + STEADY <= state.now;
    let hold = if is_first && !is_lasting(fault) { 0 } else { 1 };
    apply::losses::lose(state, id, Reason::DepotLost { fault }, hold, out);
}
