use alloc::vec::Vec;
use posthaste_types::{DepotId, RequestId};

use crate::{
    apply,
    contract::{Outbox, Reason},
    state,
    state::{Release, State},
};

/// Handles a (re)start of the driver: flights have an unknown outcome, so the depots are asked.
pub(crate) fn on_driver_started(state: &mut State, out: &mut Outbox) {
    state.probing = None;
    state.trial = None;
    let depots: Vec<DepotId> = state.depots.keys().copied().collect();
    for &depot in &depots {
        apply::flights::end_flights(state, depot, None);
        if let Some(depot) = state.depots.get_mut(&depot) {
            (depot.failures, depot.fruitless) = (0, 0);
        }
    }
    let asked: Vec<RequestId> = state
        .requests
        .iter()
        .filter(|(_, request)| request.is_kept() && request.counts_on_depots())
        .map(|(id, _)| *id)
        .collect();
    for id in asked {
        for &depot in &depots {
            if state.depots.get(&depot).is_some_and(|depot| depot.is_up()) {
                apply::depots::ask_if_used(state, id, depot, Reason::Restarted, out);
            }
        }
        if let Some(request) = state.requests.get_mut(&id)
            && request.release == Release::Commanded
        {
            // Idempotent: it is commanded again as soon as the depots confirm that it is safe.
            request.release = Release::Pending;
        }
        apply::settle::settle(state, id, out);
    }
    apply::circuits::take_up_reservations(state, out);
    apply::spaces::ask_for_space_again(state);
    state.forgets.set_due(None, state.now);
    apply::stage_in::outward::release_outward_again(state);
    apply::stage_in::review::ask_what_is_here(state, out);
    state::wake::look_now(state);
    apply::plan_over_time::answer::ask_for_plan_again(state, out);
}
