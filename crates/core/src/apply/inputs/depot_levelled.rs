use posthaste_types::DepotId;

use crate::{
    apply, state,
    state::{LEVEL_BY_DISTANCE, State},
};

/// Sets a depot's hops from the centre, or that its distances decide.
pub(crate) fn on_depot_levelled(state: &mut State, id: DepotId, level: u8) {
    let Some(depot) = state.depots.get_mut(&id) else {
        return;
    };
    depot.level = level;
    sort_users_by_level(state, id);
}

/// Handles a depot whose distance differs from the believed one.
pub(crate) fn on_distance_changed(state: &mut State, id: DepotId) {
    let depot = state.depots.get(&id);
    if depot.is_some_and(|depot| depot.level == LEVEL_BY_DISTANCE) {
        sort_users_by_level(state, id);
    }
}

fn sort_users_by_level(state: &mut State, id: DepotId) {
    apply::reindex::bring_up_to_date(state);
    for request in state.index.users(id) {
        apply::push::offers::sort_by_level(state, request);
    }
    state::wake::look_now(state);
}
