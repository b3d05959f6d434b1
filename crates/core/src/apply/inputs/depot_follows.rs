use posthaste_types::DepotId;

use crate::state::State;

/// Records whether a depot can send on what it still receives. Flights go on as they are.
pub(crate) fn on_depot_follows(state: &mut State, id: DepotId, follows: bool) {
    if let Some(depot) = state.depots.get_mut(&id) {
        depot.follows = follows;
    }
}
