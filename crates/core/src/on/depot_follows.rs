use posthaste_types::DepotId;

use crate::Mind;

impl Mind {
    /// Records whether a depot can send on what it still receives. Flights go on as they are.
    pub(crate) fn on_depot_follows(&mut self, id: DepotId, follows: bool) {
        if let Some(depot) = self.depots.get_mut(&id) {
            depot.follows = follows;
        }
    }
}
