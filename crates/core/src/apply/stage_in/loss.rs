//! Sources that fail: they rest for a while, and their chunks are asked of others.

use posthaste_types::{ChunkIndex, RequestId, SourceId};

use crate::{
    apply,
    contract::{Command, Fault, Happening, Outbox, Reason},
    state,
    state::{Source, State},
};

/// Multiple of the stall time without a chunk that a source is allowed while all of its chunks go
/// on to depots near the centre.
const ONWARD_STALLS: u32 = 12;

/// Handles a source's failure to give a chunk.
pub(crate) fn on_source_failure(state: &mut State, id: SourceId, fault: Fault, out: &mut Outbox) {
    let now = state.now;
    let Some(source) = state.arrivals.sources.get_mut(&id) else {
        return;
    };
    let was_down = source.is_down();
    if source.fail(now, fault, &state.settings) {
        leave_source(state, id, fault, was_down, out);
    }
}

/// Declares sources lost that have chunks on their way and deliver none.
pub(crate) fn find_stalled_sources(state: &mut State, out: &mut Outbox) {
    let (now, stall) = (state.now, state.settings.stall);
    let arrivals = &state.arrivals;
    // Chunks going on to a depot near the centre may have been read long ago.
    let is_fetched_from = |id: SourceId| {
        let mut live = arrivals.live();
        live.any(|(_, arrival)| arrival.fetches.keys().any(|fetch| fetch.source == id))
    };
    let is_stalled = |id: SourceId, source: &Source| {
        let since = source.link.progress_at;
        source.link.flights > 0
            && since + stall <= now
            && (is_fetched_from(id) || since + stall * ONWARD_STALLS <= now)
    };
    let sources = arrivals.sources.iter();
    let stalled = sources.filter(|(id, source)| is_stalled(**id, source));
    let stalled: alloc::vec::Vec<SourceId> = stalled.map(|(id, _)| *id).collect();
    for id in stalled {
        let Some(source) = state.arrivals.sources.get_mut(&id) else {
            continue;
        };
        let was_down = source.is_down();
        source.lose(now, &state.settings);
        leave_source(state, id, Fault::Unreachable, was_down, out);
    }
}

/// Asks others for what was asked of a lost source.
fn leave_source(state: &mut State, id: SourceId, fault: Fault, was_down: bool, out: &mut Outbox) {
    let reason = Reason::SourceLost {
        name: state::stage_ins::name_of_source(state, id),
        fault,
    };
    keep_hope(state, id, fault);
    for request in apply::stage_in::fetches::end_fetches(state, id, None) {
        out.commands.push(Command::Quit {
            request,
            source: id,
            reason: reason.clone(),
        });
    }
    for request in state.arrivals.users(id) {
        if let Some(arrival) = state.arrivals.requests.get_mut(&request) {
            arrival.last_fault = Some(fault);
        }
        apply::stage_in::slack::blame_source(state, request, id);
    }
    if !was_down {
        let name = state::stage_ins::name_of_source(state, id);
        apply::stage_in::tell::tell_users(state, id, &Happening::SourceLeft { name }, &reason, out);
    }
    state::wake::look_at_arrivals_now(state);
}

/// Retries an outgoing path for as long as its fault may pass: results have nowhere else to go.
fn keep_hope(state: &mut State, id: SourceId, fault: Fault) {
    let users = state.arrivals.users(id);
    let goes_out = |request: &RequestId| state.arrivals.outward.contains_key(request);
    let is_way_out = fault.may_pass() && users.iter().any(goes_out);
    if is_way_out && let Some(source) = state.arrivals.sources.get_mut(&id) {
        let most = state.settings.fruitless_max.saturating_sub(1);
        source.losses = source.losses.min(most);
    }
}

/// Drops a source for everything that lies where this chunk does, as it no longer holds that.
pub(crate) fn drop_source(
    state: &mut State,
    request: RequestId,
    id: SourceId,
    chunk: ChunkIndex,
    fault: Fault,
    out: &mut Outbox,
) {
    let name = state::stage_ins::name_of_source(state, id);
    let reason = Reason::SourceLost {
        name: name.clone(),
        fault,
    };
    if !apply::stage_in::fetches::end_fetches(state, id, Some(request)).is_empty() {
        out.commands.push(Command::Quit {
            request,
            source: id,
            reason: reason.clone(),
        });
    }
    let Some(arrival) = state.arrivals.requests.get_mut(&request) else {
        return;
    };
    arrival.last_fault = Some(fault);
    arrival.forget_holder(chunk, id);
    apply::stage_in::slack::blame_source(state, request, id);
    let happening = Happening::SourceLeft { name };
    apply::tell::tell(state, out, Some(request), None, happening, reason);
    state::wake::look_at_arrivals_now(state);
}
