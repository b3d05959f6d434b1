use posthaste_types::DepotId;

use crate::Mind;

impl Mind {
    /// A depot said whether it can send on what it still receives. What is under way goes on as it is.
    pub(crate) fn on_depot_follows(&mut self, id: DepotId, follows: bool) {
        if let Some(depot) = self.depots.get_mut(&id) {
            depot.follows = follows;
        }
    }
}
