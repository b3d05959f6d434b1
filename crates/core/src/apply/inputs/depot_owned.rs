use alloc::string::String;
use posthaste_types::DepotId;

use crate::{apply, state, state::State};

/// Sets the owner of a depot. Requests of others that name it already send nothing more there.
pub(crate) fn on_depot_owned(state: &mut State, id: DepotId, owner: String) {
    let Some(depot) = state.depots.get_mut(&id) else {
        return;
    };
    if depot.owner == owner {
        return;
    }
    depot.owner = owner;
    apply::reindex::bring_up_to_date(state);
    for user in state.index.users(id) {
        let (Some(request), Some(depot)) = (state.requests.get_mut(&user), state.depots.get(&id))
        else {
            continue;
        };
        let lane = request.lane_of(id);
        if let Some(lane) = lane.filter(|_| !depot.is_for(&request.wishes.owner)) {
            request.bar(lane);
        }
    }
    state::wake::look_now(state);
}
