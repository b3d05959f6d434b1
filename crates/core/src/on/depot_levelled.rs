use posthaste_types::DepotId;

use crate::Mind;

impl Mind {
    /// Somebody said how many hops from the centre a depot lies.
    pub(crate) fn on_depot_levelled(&mut self, id: DepotId, level: u8) {
        let Some(depot) = self.depots.get_mut(&id) else {
            return;
        };
        depot.level = level.max(1);
        self.bring_up_to_date();
        for request in self.index.users(id) {
            self.sort_by_level(request);
        }
        self.look_now();
    }
}
