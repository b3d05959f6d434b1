//! Looks at everything that moves, slice by slice, and keeps the forecasts.

use alloc::vec::Vec;
use posthaste_types::{DepotId, RequestId};

use crate::{
    apply, forecast, state,
    state::State,
    state::completion::{Fares, PROMISED_AGE_MAX, Promised, QUICK, Sweep},
};

/// Ages what is known of every link until now.
pub(crate) fn look_at_links(state: &mut State) {
    let all: Vec<DepotId> = state.depots.keys().copied().collect();
    for id in all {
        look_at_link(state, id);
    }
}

/// Ages what is known of the link to one depot.
pub(crate) fn look_at_link(state: &mut State, id: DepotId) {
    if let Some(depot) = state.depots.get_mut(&id) {
        depot.link.look(state.now, &state.settings);
    }
}

/// Forecasts when a request ends after more urgent ones; a waiting one uses no supplies.
pub(crate) fn look_at(state: &mut State, sweep: &mut Sweep, id: RequestId) -> Option<Fares> {
    sweep.give_back(&forecast::completion::keep::space_of(
        state,
        id,
        sweep.places(),
    ));
    apply::delivery::review_lead(state, id);
    let request = state.requests.get(&id)?;
    let fares = sweep.fares(
        forecast::completion::load_now(state, request, sweep.places()),
        state.now,
    );
    let finish = fares.forecast();
    let is_due = fares.middle.moves_at(state.now);
    let request = state.requests.get_mut(&id)?;
    (request.finish, request.is_due) = (finish, is_due);
    request.due.straight = fares.straight(request, sweep.places());
    fares.keep(request, sweep.places());
    let is_counted = !request.is_paused();
    state::memory::keep_account(state, id, sweep.after.is_none());
    is_counted.then_some(fares)
}

/// Ends a look at everything: what is left is for newcomers.
pub(crate) fn end_sweep(state: &mut State, sweep: Sweep) {
    state.promised = Some(sweep.promised);
}

/// Forecasts everything at once, as long as that is quick.
pub(crate) fn look_ahead(state: &mut State) {
    if state.index.moving() > QUICK {
        return;
    }
    let mut sweep = forecast::completion::begin_sweep(state);
    while let Some(urgency) = forecast::completion::next_in(state, &sweep) {
        let fares = look_at(state, &mut sweep, urgency.request);
        forecast::completion::pass(state, &mut sweep, urgency, fares.as_ref());
    }
    end_sweep(state, sweep);
}

/// Returns the capacity left for newcomers: now if that is quick, else at the last full look.
pub(crate) fn left_for_newcomers(state: &mut State) -> Promised {
    let is_fresh = state.promised.as_ref().is_some_and(|promised| {
        !promised.is_stale && state.now.since(promised.at) < PROMISED_AGE_MAX
    });
    if !is_fresh {
        look_ahead(state);
    }
    let promised = state.promised.take();
    let mut promised =
        promised.unwrap_or_else(|| forecast::completion::begin_sweep(state).promised);
    promised.careful.now = state.now;
    if let Some(hopeful) = &mut promised.hopeful {
        hopeful.now = state.now;
    }
    promised
}
