//! Order of requests at a depot, and what that leaves to others.

use alloc::vec::Vec;
use posthaste_types::{Bytes, DepotId};

use crate::{
    Settings,
    decide::dispatch::placing::{Placing, Rank},
    state::{Depot, Request, State, Tuning, Urgency},
};

/// Returns the rank at the depot of each lane; it is not looked up if a lane would not be open
/// to the first either.
pub(crate) fn ranks(state: &State, mine: Urgency) -> Vec<Rank> {
    let Some(request) = state.requests.get(&mine.request) else {
        return Vec::new();
    };
    let rank = |place: usize| {
        let id = request.lanes[place].depot;
        let is_open = state.depots.get(&id).is_some_and(|depot| {
            let (rank, bytes) = (Rank::First, Bytes::ZERO);
            is_open(request, place, rank, depot, bytes, &state.settings)
        });
        if is_open {
            rank(state, mine, id)
        } else {
            Rank::First
        }
    };
    (0..request.lanes.len()).map(rank).collect()
}

pub(crate) fn rank(state: &State, mine: Urgency, depot: DepotId) -> Rank {
    let Some(first) = state.index.next_for(depot, None) else {
        return Rank::First;
    };
    if mine <= first {
        return Rank::First;
    }
    let first = state.requests.get(&first.request);
    let lane = first.and_then(|first| Some(&first.lanes[first.lane_of(depot)?]));
    let tuning = lane.and_then(|lane| lane.tuning.as_deref());
    Rank::Behind {
        at_once: tuning.map(Tuning::at_once),
    }
}

/// Returns whether the request may send a fragment of `bytes` to the depot of a lane, as far as
/// space and rests of the depot allow. The depot must be fed, the optimizer must want one more than
/// is in flight now, and it must fit the window. Behind a more urgent request, only what that one
/// leaves of the path is filled. More would share its rate.
pub(crate) fn is_open(
    request: &Request,
    lane: usize,
    rank: Rank,
    depot: &Depot,
    bytes: Bytes,
    settings: &Settings,
) -> bool {
    let fed = &request.lanes[lane];
    let is_fed = fed.is_active
        && fed.asked_at.is_none()
        && request.is_on_route(lane)
        && request.quota_left(lane) != Some(0);
    let has_turn = || {
        let tuning = fed.tuning.as_deref();
        let (is_raised, is_filled) = match rank {
            // Fragments of others beyond a window must not keep out more urgent ones.
            Rank::First => {
                let is_raised = depot.link.raised > 0 || tuning.is_some_and(Tuning::is_raised);
                (is_raised, false)
            }
            Rank::Behind { at_once } => {
                let is_filled = at_once.is_some_and(|most| depot.link.flights >= most.into());
                (false, is_filled)
            }
        };
        let span = if is_raised {
            settings.window_raised
        } else {
            settings.window
        };
        tuning.is_none_or(|tuning| fed.in_flight < u32::from(tuning.at_once()))
            && !is_filled
            && depot.link.has_window(bytes, span, settings)
    };
    is_fed && depot.is_up() && has_turn()
}

impl Placing<'_> {
    /// Returns the level of a lane: depots nearer the destination are fed from the centre only if
    /// no other can take it.
    pub(crate) fn level(&self, lane: usize) -> u8 {
        let (id, to) = (self.request.lanes[lane].depot, self.request.lead_depot());
        let depot = self.depots.get(&id);
        depot.map_or(u8::MAX, |depot| self.crossings.level(id, depot, to))
    }
}
