use posthaste_types::{RequestId, Timestamp};

use crate::{
    Mind,
    contract::{Outbox, Reason},
};

impl Mind {
    /// A user moved the deadline: everything about it is judged anew.
    pub(crate) fn on_deadline_moved(
        &mut self,
        id: RequestId,
        deadline: Timestamp,
        out: &mut Outbox,
    ) {
        if self.is_stage_in(id) {
            self.move_deadline_of_arrival(id, deadline, out);
            return;
        }
        let now = self.now;
        if let Some(mut held) = self.release_held(id) {
            held.spec.deadline = deadline;
            return self.answer(id, held, true, out);
        }
        let Some(request) = self
            .requests
            .get_mut(&id)
            .filter(|request| request.is_moving())
        else {
            return;
        };
        let from = core::mem::replace(&mut request.spec.deadline, deadline);
        if deadline > now {
            request.missed = false;
            request.is_leftover = false;
        }
        let is_late = request.finish.is_some_and(|finish| finish.p90 > deadline);
        let is_at_risk = request.at_risk;
        let reason = Reason::NewDeadline { from, to: deadline };
        self.remember(id, "deadline moved".into(), reason);
        if is_late && !is_at_risk {
            self.say_at_risk(id, out);
        }
        self.unplan();
        self.look_now();
    }
}
