use posthaste_types::{RequestId, Timestamp};

use crate::{Mind, contract::Outbox};

impl Mind {
    /// Handles a new or changed deadline of a stage-in: latest starts are judged anew.
    pub(crate) fn on_arrival_moved(
        &mut self,
        id: RequestId,
        not_before: Timestamp,
        deadline: Timestamp,
        out: &mut Outbox,
    ) {
        let live = self.arrivals.requests.get_mut(&id);
        let Some(arrival) = live.filter(|arrival| arrival.state.is_live()) else {
            return;
        };
        arrival.spec.not_before = Some(not_before);
        self.move_deadline_of_arrival(id, deadline, out);
    }
}
