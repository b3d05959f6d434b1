//! Brings stage-ins in: the work of one step.

pub(crate) mod budget;
pub(crate) mod ending;
pub(crate) mod fetch;
pub(crate) mod fetches;
pub(crate) mod loss;
pub(crate) mod near;
pub(crate) mod onward;
pub(crate) mod onward_end;
pub(crate) mod outlook;
pub(crate) mod outward;
pub(crate) mod refusal;
pub(crate) mod review;
pub(crate) mod slack;
pub(crate) mod take;
pub(crate) mod tell;

use alloc::collections::BTreeMap;
use posthaste_types::RequestId;

use crate::{
    apply,
    contract::{ArrivalState, Outbox},
    state::{Arrival, Outward, State},
};

/// Updates the turns of stage-ins that can't be on time (`docs/algorithms/fair-shares.md`).
fn review_turns(state: &mut State) {
    // Otherwise the review of outgoing requests has found the least served.
    if state.index.is_idle() {
        state.shares.settle(state.now, &state.settings);
    }
    let mut requests = state.arrivals.requests.values_mut();
    while let Some(arrival) = requests.find(|arrival| arrival.gets_what_is_left()) {
        arrival.turn = state.shares.turn(arrival.claim(), &state.settings);
    }
}

/// Handles the passage of time for stage-ins, then fetches.
pub(crate) fn bring_in(state: &mut State, out: &mut Outbox) {
    apply::stage_in::outward::release_outward(state, out);
    if state.arrivals.live().next().is_none() {
        state.arrivals.look_at = None;
        return;
    }
    apply::stage_in::budget::price_near(state);
    if state.arrivals.look_at.is_none_or(|at| at <= state.now) {
        review_turns(state);
        apply::stage_in::outlook::look_at_arrivals(state);
        apply::stage_in::review::review_arrivals(state, out);
        apply::stage_in::loss::find_stalled_sources(state, out);
    }
    apply::stage_in::near::probe_near(state, out);
    apply::stage_in::fetch::fetch(state, out);
    apply::stage_in::review::set_next_look(state);
}

/// Forgets the oldest finished stage-ins beyond the number kept.
pub(crate) fn forget_oldest_arrivals(state: &mut State) {
    let (requests, outward) = (&mut state.arrivals.requests, &mut state.arrivals.outward);
    let is_over = |id: &RequestId, arrival: &Arrival, outward: &BTreeMap<RequestId, Outward>| {
        let has_arrived = arrival.state == ArrivalState::Arrived;
        let is_released = outward.get(id).is_none_or(|outward| !outward.waits());
        !arrival.state.is_live() && (!has_arrived || is_released)
    };
    let over = requests
        .iter()
        .filter(|(id, arrival)| is_over(id, arrival, outward))
        .count()
        .saturating_sub(state.settings.finished_max as usize);
    for _ in 0..over {
        let oldest = requests
            .iter()
            .find(|(id, arrival)| is_over(id, arrival, outward));
        let Some(id) = oldest.map(|(id, _)| *id) else {
            break;
        };
        requests.remove(&id);
        let of = outward.remove(&id).and_then(|outward| outward.of);
        of.and_then(|of| state.arrivals.onward.remove(&of));
    }
}
