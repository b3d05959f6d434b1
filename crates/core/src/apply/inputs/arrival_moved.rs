use posthaste_types::{RequestId, Timestamp};

use crate::{apply, contract::Outbox, state::State};

/// Handles a new or changed deadline of a stage-in: latest starts are judged anew.
pub(crate) fn on_arrival_moved(
    state: &mut State,
    id: RequestId,
    not_before: Timestamp,
    deadline: Timestamp,
    out: &mut Outbox,
) {
    let live = state.arrivals.requests.get_mut(&id);
    let Some(arrival) = live.filter(|arrival| arrival.state.is_live()) else {
        return;
    };
    arrival.spec.not_before = Some(not_before);
    apply::stage_in::review::move_deadline_of_arrival(state, id, deadline, out);
}
