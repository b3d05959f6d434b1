//! Stage-ins: which chunk comes from which source, and when it must begin to be here in time.
//!
//! `outlook` forecasts, forward and backward, from the rates of sources in `inbound`. `fetch` asks
//! sources for chunks; `near` sends them to depots near the centre meanwhile. `outward` removes the
//! source of exports, and `onward` exports from depots. `review` handles the passage of time, and
//! `loss` sources that fail. `bargain` makes counter-offers for refused stage-ins. `purse` holds
//! budgets, and the share of dear sources; `ending` finishes a stage-in.

use alloc::string::String;
use posthaste_types::{RequestId, SourceId, Timestamp};

use crate::{state, state::State};

/// Returns the name that people use for a source.
pub(crate) fn name_of_source(state: &State, source: SourceId) -> String {
    let known = state.arrivals.sources.get(&source);
    known.map_or_else(|| alloc::format!("{source}"), |source| source.name.clone())
}

/// Returns when a stage-in next needs something done, if nothing happens before.
pub(crate) fn next_arrival_alarm(state: &State) -> Option<Timestamp> {
    let paced = state.arrivals.live().filter_map(|(_, arrival)| {
        let waits = arrival.may_read() && arrival.paced_until > state.now && arrival.open() > 0;
        waits.then_some(arrival.paced_until)
    });
    let release = state::onward::next_outward_release(state);
    paced.chain(state.arrivals.look_at).chain(release).min()
}

/// Returns whether the number is that of a stage-in.
#[must_use]
pub(crate) fn is_stage_in(state: &State, request: RequestId) -> bool {
    state.arrivals.requests.contains_key(&request)
}
