use posthaste_types::RequestId;

use crate::{
    Mind,
    contract::{Cause, Priority, Reason},
};

impl Mind {
    /// Sets the priority of a running request: it counts from the next look on, beside what was
    /// promised to others.
    pub(crate) fn on_priority_moved(&mut self, id: RequestId, to: Priority) {
        if let Some(arrival) = self.arrivals.requests.get_mut(&id) {
            if arrival.state.is_live() && arrival.spec.priority != to {
                let from = core::mem::replace(&mut arrival.spec.priority, to);
                self.remember(
                    id,
                    "priority changed".into(),
                    Reason::NewPriority { from, to },
                );
                self.look_at_arrivals_now();
            }
            return;
        }
        if let Some(request) = self.held_mut(id) {
            request.wishes.priority = to;
            return;
        }
        let Some(request) = self
            .requests
            .get_mut(&id)
            .filter(|request| !request.is_final() && request.wishes.priority != to)
        else {
            return;
        };
        let from = core::mem::replace(&mut request.wishes.priority, to);
        request.account.blame(Cause::Course, None);
        self.remember(
            id,
            "priority changed".into(),
            Reason::NewPriority { from, to },
        );
        self.look_now();
    }
}
