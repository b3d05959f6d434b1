use posthaste_types::{RequestId, Timestamp};

use crate::{Mind, contract::Outbox};

impl Mind {
    /// A user moved the deadline: everything about it is judged anew.
    pub(crate) fn on_deadline_moved(
        &mut self,
        id: RequestId,
        deadline: Timestamp,
        out: &mut Outbox,
    ) {
        let now = self.now;
        let Some(request) = self
            .requests
            .get_mut(&id)
            .filter(|request| request.is_moving())
        else {
            return;
        };
        request.spec.deadline = deadline;
        if deadline > now {
            request.missed = false;
            request.is_leftover = false;
        }
        let is_late = request.finish.is_some_and(|finish| finish.p90 > deadline);
        if is_late && !request.at_risk {
            self.say_at_risk(id, out);
        }
        self.look_now();
    }
}
