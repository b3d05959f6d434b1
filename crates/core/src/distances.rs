//! Distances of depots from the centre and from destinations (`docs/algorithms/distances.md`).

use alloc::vec::Vec;
use core::time::Duration;
use posthaste_plan::distance::{self, Place};
use posthaste_types::{DepotId, Timestamp};

use crate::{
    Mind,
    books::{Depot, Request},
    contract::RankView,
};

impl Mind {
    /// Returns how far along the way to its destination the depot of each lane of a request lies.
    /// The least comes first among depots with equal forecasts.
    pub(crate) fn along(&self, request: &Request) -> Vec<u64> {
        let to = request.lead_depot();
        let places = request.lanes.iter().map(|lane| {
            let depot = self.depots.get(&lane.depot);
            depot.map_or_else(Place::default, |depot| {
                self.crossings.place(lane.depot, depot, to)
            })
        });
        let places: Vec<Place> = places.collect();
        distance::along(&places, self.whole(to))
    }

    /// Returns every depot with its distance from the centre and from `to`. Their order is that of
    /// choice if nothing else is known: landmarks last, then as far along the way as they lie.
    #[must_use]
    pub fn ranked(&self, to: Option<DepotId>, now: Timestamp) -> Vec<RankView> {
        let depots: Vec<(DepotId, &Depot)> = self
            .depots
            .iter()
            .map(|(id, depot)| (*id, depot))
            .filter(|(id, _)| Some(*id) != to)
            .collect();
        let places: Vec<Place> = depots
            .iter()
            .map(|(id, depot)| self.crossings.place(*id, depot, to))
            .collect();
        let along = distance::along(&places, self.whole(to));
        let mut ranked: Vec<(bool, u64, RankView)> = depots
            .iter()
            .zip(places)
            .zip(along)
            .map(|(((id, depot), place), along)| {
                let onward = to.and_then(|to| self.crossings.get(*id, to));
                let view = RankView {
                    depot: *id,
                    name: depot.name.clone(),
                    from_centre: place.from_centre,
                    to_destination: place.to_destination,
                    level: self.crossings.level(*id, depot, to),
                    is_landmark: depot.terms.is_landmark,
                    carries: depot.link.believed(now, &self.settings).p50,
                    measured_at: depot.link.path().measured_at(),
                    onward: onward.and_then(|onward| Some(onward.rates(now, &self.settings)?.p50)),
                    onward_at: onward.and_then(|onward| onward.path().measured_at()),
                };
                (depot.terms.is_landmark, along, view)
            })
            .collect();
        ranked.sort_by_key(|(is_landmark, along, view)| (*is_landmark, *along, view.depot));
        ranked.into_iter().map(|(_, _, view)| view).collect()
    }

    /// Returns the round trip from the centre to a destination.
    fn whole(&self, to: Option<DepotId>) -> Option<Duration> {
        self.depots.get(&to?)?.round_trip
    }
}

impl Request {
    /// Returns the destination on which plans count.
    pub(crate) fn lead_depot(&self) -> Option<DepotId> {
        Some(self.lanes[self.lead()?].depot)
    }
}
