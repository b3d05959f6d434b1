//! Reports events, and remembers them with their requests.

use posthaste_types::{DepotId, RequestId};

use crate::{
    contract::{Decision, Event, Fault, Happening, Outbox, Reason},
    state,
    state::State,
};

/// Reports an event, and remembers it with its request.
pub(crate) fn tell(
    state: &mut State,
    out: &mut Outbox,
    request: Option<RequestId>,
    depot: Option<DepotId>,
    happening: Happening,
    reason: Reason,
) {
    let event = Event {
        at: state.now,
        request,
        depot,
        happening,
        reason,
    };
    if let Some(request) = request {
        state::memory::remember_event(state, request, &event, 0);
    }
    out.events.push(event);
}

/// Note of the decision that names what stays, until the release is known to have failed.
pub(crate) const FILE_STAYS: &str = "a file stays";

/// Tells that a release failed, and which files stay.
pub(crate) fn tell_kept(
    state: &mut State,
    id: RequestId,
    fault: Fault,
    reason: Reason,
    out: &mut Outbox,
) {
    let decisions = match state.arrivals.requests.get_mut(&id) {
        Some(arrival) => Some(&mut arrival.decisions),
        None => (state.requests.get_mut(&id)).map(|request| &mut request.decisions),
    };
    let is_named = |last: &Decision| *last.note == *FILE_STAYS;
    let named = decisions.and_then(|decisions| {
        let is_last = decisions.to_vec().last().is_some_and(is_named);
        is_last.then(|| decisions.pop())?
    });
    let Some(Reason::SourceFile { what, .. }) = named.map(|named| named.reason) else {
        return tell(state, out, Some(id), None, Happening::ReleaseFailed, reason);
    };
    let told = Reason::SourceFile { fault, what };
    tell(state, out, Some(id), None, Happening::ReleaseFailed, told);
    if matches!(reason, Reason::ReleaseAgain { .. }) {
        state::memory::remember(state, id, "the release is tried again".into(), reason);
    }
}
