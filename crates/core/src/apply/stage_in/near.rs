//! Sends chunks to depots near the centre until the stage-in may begin.

use alloc::{collections::BTreeSet, string::String, vec::Vec};
use posthaste_types::{ChunkIndex, DepotId, FragmentIndex, RequestId, SourceId};

use crate::{
    apply,
    contract::{Command, Fault, Happening, NearDepot, NearReason, Outbox, Reason},
    decide, state,
    state::{Fetch, Flight, Forget, Near, State},
};

/// Probes the path to a depot near the centre before data goes there: data at the pace of a
/// slow source shows only that rate.
pub(crate) fn probe_near(state: &mut State, out: &mut Outbox) {
    let wanted = state.arrivals.live().find_map(|(id, arrival)| {
        let may = arrival.held.iter().any(|held| held.may_prestage) && !arrival.is_paused();
        let near = arrival
            .near
            .iter()
            .filter(|near| may && decide::stage_in::near::takes_more(state, arrival, near));
        let mut wanted = near.filter_map(|near| {
            Some((
                near.depot,
                decide::stage_in::near::probe_budget(state, arrival, near)?,
            ))
        });
        wanted.next().map(|(depot, budget)| (*id, depot, budget))
    });
    if let Some((id, depot, budget)) = wanted {
        apply::probing::probe_before(state, id, depot, budget, out);
    }
}

/// Sends a source's chunks to depots near the centre, as far as it has room beside those to
/// come here.
pub(crate) fn prestage(state: &mut State, source: SourceId, order: &[RequestId], out: &mut Outbox) {
    while let Some((request, chunk, depot)) =
        decide::stage_in::near::pick_prestage(state, source, order)
    {
        start_prestage(state, request, Fetch { chunk, source }, depot, out);
    }
}

fn start_prestage(
    state: &mut State,
    request: RequestId,
    fetch: Fetch,
    depot: DepotId,
    out: &mut Outbox,
) {
    let now = state.now;
    apply::stage_in::budget::pay_for(state, request, fetch, Some(depot), false);
    let arrivals = &mut state.arrivals;
    let (Some(arrival), Some(from)) = (
        arrivals.requests.get_mut(&request),
        arrivals.sources.get_mut(&fetch.source),
    ) else {
        return;
    };
    let bytes = arrival.chunk_bytes(fetch.chunk.get());
    let flight = Flight::of_chunk(bytes, now);
    from.link.begin_flight(now, &flight);
    arrival.begin_prestage(fetch, depot, flight);
    arrival.pace(now, bytes);
    let held = arrival.held.iter().filter(|held| held.may_prestage);
    let begin_by = held.filter_map(|held| held.begin_by).min();
    let reason = Reason::Near {
        why: NearReason::ComesEarly {
            begin_by: begin_by.unwrap_or(now),
            not_before: arrival.spec.not_before.unwrap_or(now),
        },
    };
    let is_said = core::mem::replace(&mut arrival.is_near_said, true);
    if !is_said {
        apply::tell::tell(
            state,
            out,
            Some(request),
            None,
            Happening::Prestaging,
            reason.clone(),
        );
    }
    out.commands.push(Command::Prestage {
        request,
        source: fetch.source,
        chunk: fetch.chunk,
        depot,
        reason,
    });
}

/// Lets a stage-in wait at these depots.
pub(crate) fn on_may_wait(state: &mut State, id: RequestId, near: &[NearDepot]) {
    let sources = &state.arrivals.sources;
    let live = state.arrivals.requests.get_mut(&id);
    let Some(arrival) = live.filter(|arrival| arrival.state.is_live()) else {
        return;
    };
    for near in near {
        if sources.contains_key(&near.source) {
            arrival.add_near(*near);
        }
    }
    state::wake::look_at_arrivals_now(state);
}

/// Records that a depot near the centre holds a chunk. A chunk for which no stage-in waits
/// changes nothing.
pub(crate) fn on_prestaged(
    state: &mut State,
    id: RequestId,
    fetch: Fetch,
    depot: DepotId,
    out: &mut Outbox,
) {
    let now = state.now;
    if !apply::stage_in::fetches::end_prestage(state, id, fetch) {
        return;
    }
    let source = state.arrivals.sources.get_mut(&fetch.source);
    let is_back = source.is_some_and(|source| source.succeed(now));
    if let Some(arrival) = state.arrivals.requests.get_mut(&id) {
        let bytes = arrival.chunk_bytes(fetch.chunk.get());
        arrival.keep_near(fetch.chunk, depot);
        if let Some(near) = arrival.near_at(depot) {
            near.failures = 0;
        }
        if let Some(depot) = state.depots.get_mut(&depot) {
            depot.free -= bytes.min(depot.free);
        }
    }
    if is_back {
        apply::stage_in::tell::say_source_is_back(state, fetch.source, out);
    }
}

/// Records that a depot near the centre did not accept a chunk: it gets none for a while.
pub(crate) fn on_prestage_failed(
    state: &mut State,
    id: RequestId,
    fetch: Fetch,
    depot: DepotId,
    fault: Fault,
) {
    if !apply::stage_in::fetches::end_prestage(state, id, fetch) {
        return;
    }
    if let Some(source) = state.arrivals.sources.get_mut(&fetch.source) {
        source.link.progress_at = state.now;
    }
    let (now, name) = (state.now, state::names::name_of(state, depot));
    let settings = &state.settings;
    let arrival = state.arrivals.requests.get_mut(&id);
    let near = arrival.and_then(|arrival| arrival.near_at(depot));
    if near.is_some_and(|near| near.fail(now, settings)) {
        let reason = Reason::DepotLost { fault };
        state::memory::remember_of(
            state,
            id,
            name,
            0,
            String::from("takes nothing for a while"),
            reason,
        );
    }
    state::wake::look_at_arrivals_now(state);
}

/// Asks a depot that is back what it holds of stage-ins that wait there.
pub(crate) fn ask_near(state: &mut State, depot: DepotId, out: &mut Outbox) {
    let waits = |near: &Near| near.depot == depot && near.held.len() > 0;
    let live = state.arrivals.live();
    let waiting = live.filter(|(_, arrival)| arrival.near.iter().any(waits));
    out.commands
        .extend(waiting.map(|(request, _)| Command::Inventory {
            request: *request,
            depot,
            reason: Reason::DepotBack,
        }));
}

/// Replaces what a depot near the centre holds of a stage-in by its report.
pub(crate) fn found_near(
    state: &mut State,
    id: RequestId,
    depot: DepotId,
    held: &[(ChunkIndex, FragmentIndex)],
) {
    let Some(arrival) = state.arrivals.requests.get_mut(&id) else {
        return;
    };
    let held: BTreeSet<u32> = held.iter().map(|(chunk, _)| chunk.get()).collect();
    let near = arrival.near.iter().find(|near| near.depot == depot);
    let believed = near.into_iter().flat_map(|near| near.held.members());
    let lost: Vec<u32> = believed.filter(|chunk| !held.contains(chunk)).collect();
    for chunk in lost {
        arrival.leave_near(chunk);
    }
    state::wake::look_at_arrivals_now(state);
}

/// Handles a chunk lost or corrupt at a depot near the centre: it is read from its sources
/// again.
pub(crate) fn lose_near(state: &mut State, id: RequestId, chunk: ChunkIndex) {
    if let Some(arrival) = state.arrivals.requests.get_mut(&id) {
        arrival.leave_near(chunk.get());
    }
    state::wake::look_at_arrivals_now(state);
}

/// Stops counting on depots near the centre that are gone for good.
pub(crate) fn leave_hopeless_near(state: &mut State, id: RequestId) {
    let Some(arrival) = state.arrivals.requests.get_mut(&id) else {
        return;
    };
    let is_lost = |near: &Near| {
        let source = state.arrivals.sources.get(&near.source);
        state.depots.get(&near.depot).is_none()
            || source.is_none_or(|source| source.is_hopeless(&state.settings))
    };
    let near = arrival.near.iter();
    let lost = near.filter(|near| near.held.len() > 0 && is_lost(near));
    let lost: Vec<SourceId> = lost.map(|near| near.source).collect();
    for source in lost {
        arrival.leave_all_near(source);
    }
}

/// Tells depots near the centre that they need not keep a stage-in that is over.
pub(crate) fn empty_near(state: &mut State, id: RequestId) {
    let now = state.now;
    let Some(arrival) = state.arrivals.requests.get(&id) else {
        return;
    };
    let forget = Forget {
        destinations: 0,
        until: arrival.spec.deadline.max(now) + NearDepot::KEPT,
        due: now,
        told: 0,
    };
    let used = arrival.near.iter().filter(|near| near.is_used);
    for depot in used.map(|near| near.depot) {
        state.forgets.insert((id, depot), forget);
    }
}
