use posthaste_types::RequestId;

use crate::{
    apply,
    contract::{ArrivalState, Command, Fault, Happening, Outbox, Reason},
    state,
    state::State,
};

/// Handles a landing: the files of a stage-in have their names.
pub(crate) fn on_landed(state: &mut State, id: RequestId, out: &mut Outbox) {
    let now = state.now;
    let arrival = state.arrivals.requests.get(&id);
    let Some(arrival) = arrival.filter(|arrival| arrival.state.is_live()) else {
        return;
    };
    let chunks = arrival.chunks();
    // Chunks still on their way, as after a restart, are no longer wanted.
    apply::stage_in::ending::quit_all(state, id, &Reason::AllHere { chunks }, out);
    apply::stage_in::near::empty_near(state, id);
    let Some(arrival) = state.arrivals.requests.get_mut(&id) else {
        return;
    };
    arrival.state = ArrivalState::Arrived;
    arrival.arrived_at = Some(now);
    let (bytes, deadline) = (arrival.spec.bytes, arrival.spec.deadline);
    let reason = match arrival.spec.not_before {
        Some(not_before) if not_before > now => Reason::CameEarly {
            not_before,
            deadline,
        },
        _ => Reason::AllHere { chunks },
    };
    arrival.bytes_here = bytes;
    arrival.account.close(now);
    arrival.close_books();
    apply::tell::tell(
        state,
        out,
        Some(id),
        None,
        Happening::Arrived { bytes },
        reason,
    );
    apply::stage_in::onward::onward_arrived(state, id, out);
    state::wake::look_at_arrivals_now(state);
}

/// Handles files that could not get their names: temporary faults are retried for a while.
pub(crate) fn on_landing_failed(state: &mut State, id: RequestId, fault: Fault, out: &mut Outbox) {
    let Some(arrival) = state.arrivals.requests.get_mut(&id) else {
        return;
    };
    if arrival.state != ArrivalState::Landing {
        return;
    }
    arrival.state = ArrivalState::Moving;
    let is_of_depots =
        state::onward::comes_of(state, id).is_some() && fault == Fault::SourceUnreadable;
    let fault = if is_of_depots {
        Fault::Unreachable
    } else {
        fault
    };
    let goes_out = state.arrivals.outward.contains_key(&id);
    let arrival = state.arrivals.requests.get_mut(&id);
    // Each time all chunks of a wrong file come again, so its own count of failures begins anew.
    let is_spoiled = fault == Fault::Corrupt
        && !goes_out
        && arrival.is_some_and(|arrival| arrival.wrong.whole_came());
    let is_away = fault.may_pass() && goes_out;
    let may_pass = matches!(
        fault,
        Fault::Full | Fault::Unwritable | Fault::Busy | Fault::Corrupt
    );
    if is_away || may_pass && !is_spoiled {
        apply::inputs::chunk_missed::hold_arrival(state, id, fault, out);
        if !is_away {
            look_what_is_there(state, id, out);
        }
    } else {
        let arrival = state.arrivals.requests.get(&id);
        let attempts = arrival.filter(|_| is_spoiled);
        let attempts = attempts.map_or(1, |arrival| arrival.wrong.wholes);
        let reason = Reason::GaveUp { fault, attempts };
        apply::stage_in::ending::end_arrival(state, id, ArrivalState::Failed, reason, out);
    }
}

/// Checks chunks that may be lost or damaged: those no longer intact are fetched again.
fn look_what_is_there(state: &mut State, id: RequestId, out: &mut Outbox) {
    let now = state.now;
    let arrival = state.arrivals.requests.get_mut(&id);
    if let Some(arrival) = arrival.filter(|arrival| arrival.state.is_live()) {
        arrival.asked_at = Some(now);
        let reason = arrival.refusal().unwrap_or(Reason::Restarted);
        out.commands.push(Command::Survey {
            request: id,
            reason,
        });
    }
}
