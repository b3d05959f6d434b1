//! Removes the source of exports.

use posthaste_types::RequestId;

use crate::{
    apply,
    contract::{ArrivalState, Command, Fault, Happening, Outbox, Reason},
    state::{Outward, Release, State},
};

/// Makes the stage-in that is submitted next an export. A known stage-in keeps its direction.
pub(crate) fn on_goes_out(state: &mut State, id: RequestId, releases: bool) {
    if !state.arrivals.requests.contains_key(&id) {
        let outward = &mut state.arrivals.outward;
        outward.entry(id).or_insert(Outward::new(releases));
    }
}

/// Commands the removal of an exported source, if that was asked for and all of it has arrived.
pub(crate) fn release_outward(state: &mut State, out: &mut Outbox) {
    let (now, requests) = (state.now, &state.arrivals.requests);
    for (id, outward) in &mut state.arrivals.outward {
        let arrival = requests.get(id);
        let arrival = arrival.filter(|arrival| arrival.state == ArrivalState::Arrived);
        let is_due = outward.releases
            && outward.release == Release::Pending
            && outward.release_at.is_none_or(|at| at <= now);
        if let Some(arrival) = arrival.filter(|_| is_due) {
            (outward.release, outward.release_at) = (Release::Commanded, None);
            let chunks = arrival.chunks();
            out.commands.push(Command::Release {
                request: *id,
                reason: Reason::AllHere { chunks },
            });
        }
    }
}

/// Records that the source of an export was removed, as commanded.
pub(crate) fn on_outward_released(state: &mut State, id: RequestId, out: &mut Outbox) {
    let Some(outward) = state.arrivals.outward.get_mut(&id) else {
        return;
    };
    if outward.release != Release::Commanded {
        return;
    }
    outward.release = Release::Done;
    if let Some(arrival) = state.arrivals.requests.get_mut(&id) {
        arrival.state = ArrivalState::Released;
        let chunks = arrival.chunks();
        let reason = Reason::AllHere { chunks };
        apply::tell::tell(state, out, Some(id), None, Happening::Released, reason);
    }
}

/// Records that the source of an export could not be removed.
pub(crate) fn on_outward_kept(state: &mut State, id: RequestId, fault: Fault, out: &mut Outbox) {
    let now = state.now;
    let Some(outward) = state.arrivals.outward.get_mut(&id) else {
        return;
    };
    if outward.release != Release::Commanded {
        return;
    }
    outward.failures += 1;
    let reason = Release::failed(fault, outward.failures, now);
    (outward.release, outward.release_at) = Release::after(&reason);
    apply::tell::tell_kept(state, id, fault, reason, out);
}

/// Commands a release again after a restart: its outcome is unknown.
pub(crate) fn release_outward_again(state: &mut State) {
    for outward in state.arrivals.outward.values_mut() {
        if outward.release == Release::Commanded {
            outward.release = Release::Pending;
        }
    }
}
