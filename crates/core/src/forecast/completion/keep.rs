//! Promised space: each look keeps it where the careful forecast places the rest of a request
//! (`docs/algorithms/placement.md`).

use alloc::vec::Vec;
use posthaste_plan::{Load, Outcome, Supplies};
use posthaste_types::{Bytes, RequestId, Timestamp};

use crate::{
    state,
    state::completion::{Fares, Places, Promised, Sweep},
    state::{Request, State},
};

/// Space of a depot that belongs to a request.
pub(crate) struct Mine {
    /// Place of the depot among the supplies.
    pub(crate) place: usize,
    /// Space for data still to be sent there.
    pub(crate) kept: Bytes,
    /// Space for data on its way.
    pub(crate) used: Bytes,
}

/// Returns space kept for a request to its supplies.
pub(crate) fn give_back(supplies: &mut Supplies, mine: &[Mine]) {
    for Mine { place, kept, used } in mine {
        if let Some(supply) = supplies.depots.get_mut(*place) {
            supply.give_back(*kept, *used);
        }
    }
}

impl Promised {
    /// Promises a load by its deadline, for which space is kept where it was `placed`.
    pub(crate) fn promise_kept(&mut self, load: &Load, deadline: Timestamp, placed: &Outcome) {
        self.careful.promise_kept(load, deadline, placed);
        if let Some(hopeful) = &mut self.hopeful {
            hopeful.promise_kept(load, deadline, placed);
        }
    }

    /// Returns space kept for a request to its supplies.
    pub(crate) fn give_back(&mut self, mine: &[Mine]) {
        for scene in self.hopeful.iter_mut().chain([&mut self.careful]) {
            give_back(&mut scene.supplies, mine);
        }
    }
}

impl Sweep {
    /// Returns space kept for a request to its supplies.
    pub(crate) fn give_back(&mut self, mine: &[Mine]) {
        self.promised.give_back(mine);
        for supplies in [&mut self.slow, &mut self.middle, &mut self.fast] {
            give_back(supplies, mine);
        }
    }
}

impl Fares {
    /// Returns what goes straight to the destination on which plans count, at the slow rate.
    pub(crate) fn straight(&self, request: &Request, places: &Places) -> Bytes {
        let lead = request.lead().map(|lane| request.lanes[lane].depot);
        let lead = lead.and_then(|depot| places.get(&depot));
        let mut placed = self.load.placed(&self.slow);
        let found = placed.find(|(at, _)| lead.is_some_and(|lead| *lead as usize == *at));
        found.map_or(Bytes::ZERO, |(_, bytes)| bytes)
    }

    /// Keeps space where the careful look placed the load.
    pub(crate) fn keep(&self, request: &mut Request, places: &Places) {
        for place in 0..request.lanes.len() {
            let piece = request.piece(place);
            let lane = &mut request.lanes[place];
            let supply = places.get(&lane.depot).map(|supply| *supply as usize);
            let mut placed = self.load.placed(&self.slow);
            let placed = placed.find(|(at, _)| Some(*at) == supply);
            let pieces = placed.map_or(0, |(_, placed)| placed.pieces(piece));
            let pieces = u32::try_from(pieces).unwrap_or(u32::MAX);
            lane.kept = pieces.saturating_sub(lane.in_flight);
        }
    }
}

/// Returns the space of each depot that is kept for a request, or on its way to be used by it.
pub(crate) fn space_of(state: &State, id: RequestId, places: &Places) -> Vec<Mine> {
    let Some(request) = state.requests.get(&id) else {
        return Vec::new();
    };
    let lanes = request.lanes.iter().enumerate();
    let mine = lanes.filter_map(|(lane, fed)| {
        let kept = match request.is_leftover {
            true => Bytes::ZERO,
            false => state::space_left::kept_at(state, id, request, lane),
        };
        if kept == Bytes::ZERO && fed.in_flight == 0 {
            return None;
        }
        Some(Mine {
            place: *places.get(&fed.depot)? as usize,
            kept,
            used: request.piece(lane).times(fed.in_flight.into()),
        })
    });
    mine.collect()
}
