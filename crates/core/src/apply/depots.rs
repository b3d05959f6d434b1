//! Depots that come back, go, or get another chance.

use posthaste_types::{DepotId, RequestId};

use crate::{
    apply,
    contract::{Cause, Command, Happening, Outbox, Reason},
    state,
    state::{Depot, Request, State},
};

/// Handles the beginning or end of a depot's hours: requests that waited for it get another
/// chance, and plans are recomputed.
pub(crate) fn keep_hours(state: &mut State, id: DepotId, out: &mut Outbox) {
    let now = state.now;
    let is_due = |depot: &Depot| depot.turns_at.is_some_and(|at| at <= now);
    if !state.depots.get(&id).is_some_and(is_due) {
        return;
    }
    let next = state::usable::next_turn(state, id);
    if let Some(depot) = state.depots.get_mut(&id) {
        depot.turns_at = next;
    }
    give_another_chance(state, id, out);
}

/// Gives requests that waited for a depot another chance, and recomputes plans.
pub(crate) fn give_another_chance(state: &mut State, id: DepotId, out: &mut Outbox) {
    unpark_all(state, id);
    for request in state.index.users(id) {
        apply::fan_out::fill_fan_out(state, request, out);
    }
    apply::probing::probe_asked(state, out);
    state::wake::look_now(state);
}

/// Records that a depot used by a moving request is back.
pub(crate) fn remember_back(state: &mut State, id: RequestId, depot: DepotId) {
    let is_missed = state.requests.get(&id).is_some_and(|request| {
        let lane = request.lane_of(depot);
        request.is_moving() && lane.is_some_and(|lane| request.lanes[lane].is_used)
    });
    if is_missed {
        state::memory::remember_depot(state, id, depot, Happening::DepotUp, Reason::DepotBack, 0);
        state::memory::blame_for(state, id, Cause::Loss, Some(depot));
    }
}

/// Asks what the depot holds of the request, if anything was ever sent there.
pub(crate) fn ask_if_used(
    state: &mut State,
    id: RequestId,
    depot: DepotId,
    reason: Reason,
    out: &mut Outbox,
) {
    let now = state.now;
    let Some(request) = state.requests.get_mut(&id) else {
        return;
    };
    let Some(lane) = request.lane_of(depot) else {
        return;
    };
    if request.lanes[lane].is_used {
        request.lanes[lane].asked_at = Some(now);
        if !request.uncommon.stored_since_asked.is_empty() {
            request.uncommon.stored_since_asked.remove(&depot);
        }
        out.commands.push(Command::Inventory {
            request: id,
            depot,
            reason: request.reason_to_ask(reason),
        });
    } else {
        request.replica.set_live(lane, true);
        apply::push::offers::reset_push(state, id);
    }
}

/// Gives chunks that waited for this depot another chance.
pub(crate) fn unpark_all(state: &mut State, depot: DepotId) {
    apply::reindex::bring_up_to_date(state);
    apply::push::offers::revive_pushes(state, depot);
    for id in state.index.users(depot) {
        let has_parked = |request: &Request| request.is_moving() && request.replica.has_parked();
        if state.requests.get(&id).is_some_and(has_parked)
            && let Some(request) = state.requests.get_mut(&id)
        {
            request.replica.unpark();
        }
    }
}
