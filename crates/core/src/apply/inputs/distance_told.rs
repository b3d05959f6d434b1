use core::time::Duration;
use posthaste_types::DepotId;

use crate::{apply, state::State};

/// Sets the shortest round trip between the centre and a depot that was seen recently.
pub(crate) fn on_distance_told(state: &mut State, id: DepotId, round_trip: Duration) {
    let known = state.depots.get_mut(&id);
    let is_news =
        known.is_some_and(|depot| depot.round_trip.replace(round_trip) != Some(round_trip));
    if is_news {
        apply::inputs::depot_levelled::on_distance_changed(state, id);
    }
}
