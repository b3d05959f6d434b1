use core::time::Duration;
use posthaste_types::DepotId;

use crate::Mind;

impl Mind {
    /// Sets the shortest round trip between the centre and a depot that was seen recently.
    pub(crate) fn on_distance_told(&mut self, id: DepotId, round_trip: Duration) {
        let known = self.depots.get_mut(&id);
        let is_news =
            known.is_some_and(|depot| depot.round_trip.replace(round_trip) != Some(round_trip));
        if is_news {
            self.on_distance_changed(id);
        }
    }
}
