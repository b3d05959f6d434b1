use posthaste_types::DepotId;

use crate::{Mind, books::LEVEL_BY_DISTANCE};

impl Mind {
    /// Sets a depot's hops from the centre, or that its distances decide.
    pub(crate) fn on_depot_levelled(&mut self, id: DepotId, level: u8) {
        let Some(depot) = self.depots.get_mut(&id) else {
            return;
        };
        depot.level = level;
        self.sort_users_by_level(id);
    }

    /// Handles a depot whose distance differs from the believed one.
    pub(crate) fn on_distance_changed(&mut self, id: DepotId) {
        let depot = self.depots.get(&id);
        if depot.is_some_and(|depot| depot.level == LEVEL_BY_DISTANCE) {
            self.sort_users_by_level(id);
        }
    }

    fn sort_users_by_level(&mut self, id: DepotId) {
        self.bring_up_to_date();
        for request in self.index.users(id) {
            self.sort_by_level(request);
        }
        self.look_now();
    }
}
