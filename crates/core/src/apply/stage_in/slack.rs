//! Slack account of a stage-in: each cause that moved its finish is charged.

use posthaste_types::{RequestId, SourceId};

use crate::{
    contract::{Cause, Party},
    forecast,
    state::{Seen, State},
};

/// Blames a source, lost or back, for the coming change in the finish of a stage-in.
pub(crate) fn blame_source(state: &mut State, id: RequestId, source: SourceId) {
    if let Some(arrival) = state.arrivals.requests.get_mut(&id) {
        let party = Party::Source { source };
        arrival.account.blame(Cause::Loss, Some(party));
    }
}

/// Charges what moved the finish of a stage-in since the last look. `is_first`: none comes
/// before it.
pub(crate) fn keep_account_of_arrival(state: &mut State, id: RequestId, is_first: bool) {
    let Some(arrival) = state.arrivals.requests.get(&id) else {
        return;
    };
    let finish = arrival.finish.map(|finish| finish.p90);
    let lanes = arrival.lanes.iter().filter(|lane| !lane.is_gone);
    let seen = lanes.filter_map(|lane| {
        let source = state.arrivals.sources.get(&lane.source)?;
        let rates = forecast::stage_in::near::rates_of(state, source, lane.near);
        Some(Seen {
            party: Party::Source {
                source: lane.source,
            },
            rate: rates.p10,
            is_measured: source.link.is_measured(),
            told: rates.p50,
        })
    });
    let seen = seen.collect();
    if let Some(arrival) = state.arrivals.requests.get_mut(&id) {
        if arrival.is_paused() {
            arrival.account.blame(Cause::Paused, None);
        }
        if arrival.local_failures > 0 {
            arrival.account.blame(Cause::Refusal, None);
        }
        arrival.account.note(finish, seen, is_first);
    }
}
