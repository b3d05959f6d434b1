use posthaste_types::{ChunkIndex, RequestId, SourceId};

use crate::{
    apply,
    contract::{ArrivalState, Fault, Outbox, Reason},
    state,
    state::{Fetch, State},
};

/// Handles a chunk that was asked of a source and did not come.
pub(crate) fn on_chunk_missed(
    state: &mut State,
    request: RequestId,
    source: SourceId,
    chunk: ChunkIndex,
    fault: Fault,
    out: &mut Outbox,
) {
    if !apply::stage_in::fetches::end_fetch(state, request, Fetch { chunk, source }) {
        return;
    }
    let is_onward = state::onward::comes_of(state, request).is_some();
    let (mut is_near, mut is_spoiled) = (false, false);
    if let Some(arrival) = state.arrivals.requests.get_mut(&request) {
        is_near = arrival.near_as(source).is_some();
        is_spoiled = fault == Fault::Corrupt
            && !is_near
            && !is_onward
            && arrival.wrong.came(Fetch { chunk, source });
    }
    match fault {
        Fault::SourceChanged
        | Fault::SourcesDiffer
        | Fault::SourceVanished
        | Fault::SourceUnreadable
        | Fault::Corrupt
            if is_near =>
        {
            apply::stage_in::near::lose_near(state, request, chunk);
        }
        Fault::SourceVanished | Fault::SourceUnreadable if is_onward => {
            // Depots may give it later, and the path of others to that address is as good as
            // before.
            hold_arrival(state, request, Fault::Unreachable, out);
        }
        Fault::SourceChanged | Fault::SourcesDiffer => {
            let name = state::stage_ins::name_of_source(state, source);
            let reason = Reason::SourceLost { name, fault };
            apply::stage_in::ending::end_arrival(state, request, ArrivalState::Failed, reason, out);
        }
        Fault::SourceVanished | Fault::SourceUnreadable => {
            apply::stage_in::loss::drop_source(state, request, source, chunk, fault, out);
        }
        Fault::Corrupt if is_spoiled => {
            apply::stage_in::loss::drop_source(state, request, source, chunk, fault, out);
        }
        Fault::NamesMeet => {
            let reason = Reason::GaveUp { fault, attempts: 1 };
            apply::stage_in::ending::end_arrival(state, request, ArrivalState::Failed, reason, out);
        }
        Fault::Full | Fault::Unwritable => hold_arrival(state, request, fault, out),
        Fault::Unreachable
        | Fault::Unauthenticated
        | Fault::Corrupt
        | Fault::Busy
        | Fault::SourceStalled
        | Fault::Unremovable
        | Fault::SourceBusy
        | Fault::Other => apply::stage_in::loss::on_source_failure(state, source, fault, out),
    }
}

/// Pauses a stage-in whose data the centre could not accept, and fails it after too many times.
pub(crate) fn hold_arrival(state: &mut State, id: RequestId, fault: Fault, out: &mut Outbox) {
    let (now, settings) = (state.now, &state.settings);
    let Some(arrival) = state.arrivals.requests.get_mut(&id) else {
        return;
    };
    if arrival.held_until > now {
        return;
    }
    arrival.local_failures += 1;
    let attempts = arrival.local_failures;
    let pause = settings.hold * (1 << (attempts - 1).min(16));
    arrival.held_until = now + pause.min(settings.hold_max);
    // Results have nowhere else to go: a repair there is awaited as long as that helps.
    let may_help = fault.may_pass() || now < arrival.spec.deadline;
    let goes_on = may_help && state.arrivals.outward.contains_key(&id);
    if attempts >= settings.fruitless_max && !goes_on {
        let reason = Reason::GaveUp { fault, attempts };
        apply::stage_in::ending::end_arrival(state, id, ArrivalState::Failed, reason, out);
    }
}
