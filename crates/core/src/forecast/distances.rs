//! Distances of depots from the centre and from destinations (`docs/algorithms/distances.md`).

use alloc::vec::Vec;
use core::time::Duration;
use posthaste_plan::distance::{self, Place};
use posthaste_types::DepotId;

use crate::state::{Request, State};

/// Returns how far along the way to its destination the depot of each lane of a request lies.
/// The least comes first among depots with equal forecasts.
pub(crate) fn along(state: &State, request: &Request) -> Vec<u64> {
    let to = request.lead_depot();
    let places = request.lanes.iter().map(|lane| {
        let depot = state.depots.get(&lane.depot);
        depot.map_or_else(Place::default, |depot| {
            state.crossings.place(lane.depot, depot, to)
        })
    });
    let places: Vec<Place> = places.collect();
    distance::along(&places, whole(state, to))
}

/// Returns the round trip from the centre to a destination.
pub(crate) fn whole(state: &State, to: Option<DepotId>) -> Option<Duration> {
    state.depots.get(&to?)?.round_trip
}

impl Request {
    /// Returns the destination on which plans count.
    pub(crate) fn lead_depot(&self) -> Option<DepotId> {
        Some(self.lanes[self.lead()?].depot)
    }
}
