//! Reports events, and remembers them with their requests.

use posthaste_types::{DepotId, RequestId};

use crate::{
    contract::{Event, Happening, Outbox, Reason},
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
