//! Course of a running request: its fan-out and its route.

use alloc::vec::Vec;
use posthaste_types::RequestId;

use crate::{
    decide, forecast,
    state::completion::Sweep,
    state::{Request, Route, State},
};

/// Largest share of the time, in hundredths, that the rest may take with one depot more for it to
/// be added.
const WORTH_PERCENT: u32 = 99;

/// Returns the lane of the best depot that is not fed.
pub(crate) fn next_in_reserve(state: &State, request: &Request) -> Option<usize> {
    let mut lanes = decide::candidates::staging_lanes(state, request).into_iter();
    lanes.find(|&lane| !request.lanes[lane].is_active)
}

/// Returns whether one depot more would end the request sooner: if the uplink is the
/// bottleneck, none would.
pub(crate) fn would_help(state: &State, id: RequestId, sweep: &Sweep) -> bool {
    let Some(request) = state.requests.get(&id) else {
        return false;
    };
    let Some(next) = next_in_reserve(state, request) else {
        return false;
    };
    let uses = |lane: usize| lane == next || request.lanes[lane].is_active;
    let load = forecast::completion::load(state, request, sweep.places(), Route::Staged, uses);
    let finish = sweep.finish_slow(&load, state.now);
    let before = request.finish.map(|finish| finish.p90);
    match (before, finish) {
        (Some(before), Some(after)) => {
            let left = before.since(state.now);
            after.since(state.now) <= left / 100 * WORTH_PERCENT
        }
        (None, _) => true,
        (Some(_), None) => false,
    }
}

/// Returns the fewest depots, the best first, that keep the deadline; all if none do.
pub(crate) fn fewest(state: &State, id: RequestId, lanes: Vec<usize>, sweep: &Sweep) -> Vec<usize> {
    let Some(request) = state.requests.get(&id) else {
        return lanes;
    };
    let by = request.aim() - forecast::completion::margin(state, request.aim());
    let least = usize::from(request.spec.code.total());
    let holds = |count: &usize| {
        let uses = |lane| lanes[..*count].contains(&lane);
        let load = forecast::completion::load(state, request, sweep.places(), Route::Staged, uses);
        sweep
            .finish_slow(&load, state.now)
            .is_some_and(|finish| finish <= by)
    };
    let count = (least..lanes.len()).find(holds).unwrap_or(lanes.len());
    let coded = request.replica.missing_bytes();
    let count = decide::room::roomy(state, request, id, &lanes, count, coded);
    lanes[..count].to_vec()
}
