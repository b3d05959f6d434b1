//! Depots near the centre, on which a stage-in waits until it is welcome
//! (`docs/algorithms/just-in-time-arrival.md`). This part decides what goes there, follows its
//! fate, and tells them when it is over.

use posthaste_types::{Bytes, ChunkIndex, DepotId, RequestId, SourceId};

use crate::{
    decide, forecast,
    state::{Arrival, Depot, Near, State},
};

/// Most chunks on their way to one depot near the centre for one stage-in: enough to hide the round
/// trip, and little memory.
const FLIGHTS_MAX: u32 = 4;

/// Returns whether a depot accepts more of a stage-in that waits there.
pub(crate) fn takes_more(state: &State, arrival: &Arrival, near: &Near) -> bool {
    let depot = state.depots.get(&near.depot);
    let source = state.arrivals.sources.get(&near.source);
    let needed = near.flying + arrival.spec.chunk_size;
    let is_usable = |depot: &Depot| {
        let is_open = depot.is_up() && !depot.is_draining();
        let is_open = is_open && depot.is_for(&arrival.owner);
        is_open && depot.is_open(state.now) && depot.space() >= needed
    };
    let is_paid = |depot: &Depot| !arrival.has_budget() || (depot.is_free() && depot.gives_free());
    depot.is_some_and(|depot| is_usable(depot) && is_paid(depot))
        && source.is_some_and(|source| !source.is_down())
        && near.resume_at <= state.now
}

/// Returns whether nothing at all is known of the rate of a depot near the centre; then a
/// beginning is made.
pub(crate) fn is_near_unknown(state: &State, near: &Near) -> bool {
    let source = state.arrivals.sources.get(&near.source);
    let depot = state.depots.get(&near.depot);
    source.is_some_and(|source| !source.link.is_measured())
        && depot.is_some_and(|depot| !depot.link.is_measured())
}

/// Returns the bytes that may be sent to measure the rate of a depot near the centre. None if
/// it is known, or a probe was tried.
pub(crate) fn probe_budget(state: &State, arrival: &Arrival, near: &Near) -> Option<Bytes> {
    let settings = &state.settings;
    let depot = state.depots.get(&near.depot)?;
    let is_known = depot.link.is_measured() || depot.link.probed_at.is_some();
    if is_known || arrival.spec.rate_max.is_some() {
        return None;
    }
    let share = u128::from(arrival.spec.bytes.get()) * u128::from(settings.probe_permille);
    let budget = Bytes::new(u64::try_from(share / 1000).unwrap_or(u64::MAX));
    let budget = (budget - arrival.probed).min(settings.probe_bytes_max);
    (budget >= settings.probe_bytes_min).then_some(budget)
}

pub(crate) fn pick_prestage(
    state: &State,
    id: SourceId,
    order: &[RequestId],
) -> Option<(RequestId, ChunkIndex, DepotId)> {
    let source = state.arrivals.sources.get(&id)?;
    if !source.is_open(state.now) || source.is_hopeless(&state.settings) {
        return None;
    }
    order.iter().find_map(|request| {
        let arrival = state.arrivals.requests.get(request)?;
        let may = arrival.asked_at.is_none() && arrival.paced_until <= state.now;
        let may = may && !arrival.is_paused();
        if !may || !arrival.uses(id) || arrival.near_as(id).is_some() {
            return None;
        }
        let chunk =
            decide::stage_in::fetch::next_far(state, id, arrival, |held| held.may_prestage)?;
        let bytes = arrival.chunk_bytes(chunk.get());
        if !decide::stage_in::fetch::has_room(state, source, bytes) {
            return None;
        }
        let depot = nearest(state, arrival, bytes)?;
        Some((*request, chunk, depot))
    })
}

/// Returns the depot near the centre from which one chunk more would be here first.
fn nearest(state: &State, arrival: &Arrival, bytes: Bytes) -> Option<DepotId> {
    let takes = |near: &&Near| {
        let is_to_be_probed = probe_budget(state, arrival, near).is_some();
        near.in_flight < FLIGHTS_MAX && !is_to_be_probed && takes_more(state, arrival, near)
    };
    let near = arrival.near.iter().filter(takes);
    let first = near.min_by_key(|near| {
        let source = state.arrivals.sources.get(&near.source);
        let rate = source
            .map(|source| forecast::stage_in::near::rates_of(state, source, Some(near.depot)).p50);
        let there = near.missing() + near.flying + bytes;
        (rate.map(|rate| rate.time_for(there)), near.depot)
    });
    first.map(|near| near.depot)
}
