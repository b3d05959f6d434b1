//! Depots by their distance.

use alloc::vec::Vec;
use posthaste_plan::distance::{self, Place};
use posthaste_types::{DepotId, Timestamp};

use crate::{Mind, contract::RankView, forecast, state::Depot};

impl Mind {
    /// Returns every depot with its distance from the centre and from `to`. Their order is that of
    /// choice if nothing else is known: landmarks last, then as far along the way as they lie.
    #[must_use]
    pub fn ranked(&self, to: Option<DepotId>, now: Timestamp) -> Vec<RankView> {
        let depots: Vec<(DepotId, &Depot)> = self
            .state
            .depots
            .iter()
            .map(|(id, depot)| (*id, depot))
            .filter(|(id, _)| Some(*id) != to)
            .collect();
        let places: Vec<Place> = depots
            .iter()
            .map(|(id, depot)| self.state.crossings.place(*id, depot, to))
            .collect();
        let along = distance::along(&places, forecast::distances::whole(&self.state, to));
        let mut ranked: Vec<(bool, u64, RankView)> = depots
            .iter()
            .zip(places)
            .zip(along)
            .map(|(((id, depot), place), along)| {
                let onward = to.and_then(|to| self.state.crossings.get(*id, to));
                let view = RankView {
                    depot: *id,
                    name: depot.name.clone(),
                    from_centre: place.from_centre,
                    to_destination: place.to_destination,
                    level: self.state.crossings.level(*id, depot, to),
                    is_landmark: depot.terms.is_landmark,
                    carries: depot.link.believed(now, &self.state.settings).p50,
                    measured_at: depot.link.path().measured_at(),
                    onward: onward
                        .and_then(|onward| Some(onward.rates(now, &self.state.settings)?.p50)),
                    onward_at: onward.and_then(|onward| onward.path().measured_at()),
                };
                (depot.terms.is_landmark, along, view)
            })
            .collect();
        ranked.sort_by_key(|(is_landmark, along, view)| (*is_landmark, *along, view.depot));
        ranked.into_iter().map(|(_, _, view)| view).collect()
    }
}
