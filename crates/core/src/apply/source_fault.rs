//! Sources that can't be read, and files that are left out.

use alloc::string::String;
use posthaste_types::RequestId;

use crate::{
    apply,
    contract::{Fault, Happening, Outbox, Reason, ReleasePolicy, RequestState},
    state::{Release, State},
};

/// Handles a fault of the source: no depot can help, and the source stays as it is. While
/// depots have yet to report what they hold, which may be all of it, nothing is sent and
/// nothing is given up.
pub(crate) fn on_source_fault(
    state: &mut State,
    id: RequestId,
    fault: Fault,
    what: Option<String>,
    out: &mut Outbox,
) {
    let Some(request) = state
        .requests
        .get(&id)
        .filter(|request| !request.is_final())
    else {
        return;
    };
    let is_gone = fault == Fault::SourceVanished && request.safe_at.is_some();
    let is_ours = request.spec.release == crate::contract::ReleasePolicy::WhenSafe;
    let is_removed = request.release == Release::Commanded || request.release.is_over();
    if is_gone && is_ours && is_removed {
        // It vanishes because it is removed. What became of that is still to be heard, or was.
    } else if is_gone {
        // Files removed by a release that failed are gone as well.
        on_source_purged(state, id, Reason::Purged, out);
    } else if request.is_asking() {
        if let Some(request) = state.requests.get_mut(&id) {
            request.uncommon.awaits_inventories = true;
        }
    } else if request.safe_at.is_none() || request.is_moving() {
        let named = |what| Reason::SourceFile { fault, what };
        let reason = what.map_or(Reason::Source { fault }, named);
        apply::ending::fail(state, id, reason, out);
    }
}

/// Somebody else removed the source after all was safe: nothing can be sent again from here on. What lacks is made
/// again from what the depots hold. It is the same where a file is no longer what is safe: that is at depots alone. Where it was to
/// be removed, and could not be or is another one, some of it is left there.
pub(crate) fn on_source_purged(state: &mut State, id: RequestId, reason: Reason, out: &mut Outbox) {
    apply::flights::abandon_all(state, id, &reason, out);
    let Some(request) = state.requests.get_mut(&id) else {
        return;
    };
    let is_ours = request.spec.release == ReleasePolicy::WhenSafe;
    let is_left = request.uncommon.release_failures > 0 || reason != Reason::Purged;
    request.release = match is_ours && is_left {
        true => Release::Left,
        false => Release::Done,
    };
    request.uncommon.release_at = None;
    request.suffice();
    request.stripes.clear();
    (request.at_risk, request.finish) = (false, None);
    request.state = RequestState::Released;
    let chunks = request.replica.chunks() - request.replica.safe();
    apply::tell::tell(
        state,
        out,
        Some(id),
        None,
        Happening::Purged,
        reason.clone(),
    );
    if chunks > 0 {
        if let Some(request) = state.requests.get_mut(&id) {
            request.is_thin = true;
        }
        apply::tell::tell(
            state,
            out,
            Some(id),
            None,
            Happening::Unsafe { chunks },
            reason,
        );
    }
    apply::push::offers::reset_push(state, id);
    apply::settle::deliver_if_there(state, id, out);
}
