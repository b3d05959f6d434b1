//! Ends a request that failed or was cancelled.

use alloc::vec::Vec;
use posthaste_types::{DepotId, RequestId};

use crate::{
    apply,
    contract::{ArrivalState, Command, Fault, Happening, Outbox, Reason, RequestState},
    state::{Release, State},
};

/// Fails a request that can't go on; the source is untouched.
pub(crate) fn fail(state: &mut State, id: RequestId, reason: Reason, out: &mut Outbox) {
    end(
        state,
        id,
        RequestState::Failed,
        Happening::Failed,
        reason,
        out,
    );
}

pub(crate) fn end(
    state: &mut State,
    id: RequestId,
    outcome: RequestState,
    happening: Happening,
    reason: Reason,
    out: &mut Outbox,
) {
    apply::flights::abandon_all(state, id, &reason, out);
    let Some(request) = state.requests.get_mut(&id) else {
        return;
    };
    request.state = outcome;
    let used = request.lanes.iter().filter(|lane| lane.is_used);
    let used: Vec<DepotId> = used.map(|lane| lane.depot).collect();
    // If the source is gone, depots may hold the only copy: it stays until it expires.
    let is_gone = matches!(
        reason,
        Reason::Source {
            fault: Fault::SourceVanished
        } | Reason::SourceFile {
            fault: Fault::SourceVanished,
            ..
        }
    );
    let is_gone = is_gone || request.has_tried_release();
    if !is_gone && matches!(request.release, Release::Pending | Release::Kept) {
        for depot in used {
            let reason = reason.clone();
            out.commands.push(Command::Forget {
                request: id,
                depot,
                reason,
            });
        }
    }
    if let Some(request) = state.requests.get_mut(&id) {
        request.close_books();
    }
    apply::tell::tell(state, out, Some(id), None, happening, reason);
    let ended = match outcome {
        RequestState::Cancelled => ArrivalState::Cancelled,
        RequestState::Refused
        | RequestState::Moving
        | RequestState::Safe
        | RequestState::Released
        | RequestState::Delivered
        | RequestState::Failed => ArrivalState::Failed,
    };
    apply::stage_in::ending::end_onward(state, id, ended, out);
}
