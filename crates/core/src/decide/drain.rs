//! Fragments that only a drained depot holds.

use posthaste_types::{ChunkIndex, DepotId, FragmentIndex};

use crate::{
    contract::{Drain, DrainView, RequestState},
    state::{Depot, Request, State},
};

/// Returns the lanes of a request to drained depots, as a mask. Data wanted at a destination
/// still goes there.
pub(crate) fn drained_lanes(state: &State, request: &Request) -> u64 {
    let is_drained = |lane: &usize| {
        let depot = state.depots.get(&request.lanes[*lane].depot);
        depot.is_some_and(Depot::is_draining)
    };
    let lanes = request.depot_lanes().filter(is_drained);
    lanes.fold(0, |mask, lane| mask | 1 << lane)
}

/// Counts fragments of a request that lie at the depot and at no other that stays. Visits every
/// chunk.
pub(crate) fn only_at(state: &State, request: &Request, depot: DepotId) -> u64 {
    let is_wanted = request.is_kept() && request.state != RequestState::Delivered;
    let Some(lane) = request.lane_of(depot).filter(|_| is_wanted) else {
        return 0;
    };
    let others = request.replica.live() & !(1 << lane);
    let stays = |other: &usize| {
        let depot = state.depots.get(&request.lanes[*other].depot);
        others >> other & 1 == 1 && depot.is_some_and(|depot| !depot.is_draining())
    };
    let others: alloc::vec::Vec<usize> = (0..request.lanes.len()).filter(stays).collect();
    let is_elsewhere = |chunk: ChunkIndex, fragment: FragmentIndex| {
        others.iter().any(|&other| {
            let held = request.replica.fragment_at(other, chunk);
            held == Some(FragmentIndex::WHOLE) || held == Some(fragment)
        })
    };
    let only = request.replica.held(lane);
    only.filter(|&(chunk, fragment)| !is_elsewhere(chunk, fragment))
        .count() as u64
}

pub(crate) fn under_way_to(state: &State, id: DepotId) -> u64 {
    (state.transfers.to(id, None).count() + state.pushes.to(id, None).count()) as u64
}

/// Returns the progress of a depot's drain, while it is drained.
pub(crate) fn drain_view(state: &State, id: DepotId, depot: &Depot) -> Option<DrainView> {
    depot.is_draining().then(|| DrainView {
        drain: depot.drain(),
        is_own: depot.drain_asked == Drain::Off,
        under_way: under_way_to(state, id),
        only_there: depot.only_here,
    })
}
