use posthaste_types::DepotId;

use crate::{
    apply,
    contract::{Drain, DrainReason, Happening, Outbox, Reason},
    state,
    state::State,
};

/// Drains a depot, or ends its drain. Flights to it end as they would have, and what it holds
/// counts as before; forecasts no longer count on it.
pub(crate) fn on_depot_drained(
    state: &mut State,
    id: DepotId,
    drain: Drain,
    is_own: bool,
    out: &mut Outbox,
) {
    let now = state.now;
    let Some(depot) = state.depots.get_mut(&id) else {
        return;
    };
    let before = depot.drain();
    if is_own {
        depot.drain_own = drain;
    } else {
        depot.drain_asked = drain;
    }
    let after = depot.drain();
    if after == before {
        return;
    }
    (depot.only_here, depot.is_said_empty) = (None, false);
    depot.counts_at = (after != Drain::Off).then_some(now);
    let (happening, why) = match after {
        Drain::Off => (Happening::DepotUndrained, DrainReason::Ended),
        drain @ (Drain::Keep | Drain::Move) => (
            Happening::DepotDraining,
            DrainReason::Begun { drain, is_own },
        ),
    };
    let reason = Reason::Drained { why };
    apply::tell::tell(
        state,
        out,
        None,
        Some(id),
        happening.clone(),
        reason.clone(),
    );
    apply::plan_over_time::follow::unplan(state);
    apply::reindex::bring_up_to_date(state);
    for request in state.index.users(id) {
        apply::drains::drain_for(state, request, id, &happening, &reason, out);
    }
    apply::depots::unpark_all(state, id);
    state::wake::look_now(state);
}
