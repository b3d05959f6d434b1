use posthaste_types::DepotId;

use crate::Mind;

impl Mind {
    /// Records whether a depot lies in a store. Flights go on as they are.
    pub(crate) fn on_depot_stores(&mut self, id: DepotId, stores: bool) {
        let Some(depot) = self.depots.get_mut(&id) else {
            return;
        };
        if core::mem::replace(&mut depot.stores, stores) != stores {
            self.revive_pushes(id);
        }
    }

    /// Returns whether a depot lies in a store.
    pub(crate) fn stores(&self, id: DepotId) -> bool {
        self.depots.get(&id).is_some_and(|depot| depot.stores)
    }
}
