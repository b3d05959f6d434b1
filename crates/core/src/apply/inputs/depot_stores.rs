use posthaste_types::DepotId;

use crate::{apply, state::State};

/// Records whether a depot lies in a store. Flights go on as they are.
pub(crate) fn on_depot_stores(state: &mut State, id: DepotId, stores: bool) {
    let Some(depot) = state.depots.get_mut(&id) else {
        return;
    };
    if core::mem::replace(&mut depot.stores, stores) != stores {
        apply::push::offers::revive_pushes(state, id);
    }
}
