use alloc::string::String;
use posthaste_types::{RequestId, Timestamp};

use crate::{
    Mind,
    contract::{Outbox, Reason},
};

impl Mind {
    /// Moves the deadline at a user's request: everything about it is judged anew.
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
        self.rebind(id, Some(deadline), None, "deadline moved".into(), out);
    }

    /// Sets when the source is to be purged, as if the deadline were moved.
    pub(crate) fn on_purge_moved(
        &mut self,
        id: RequestId,
        purge_at: Option<Timestamp>,
        out: &mut Outbox,
    ) {
        self.rebind(id, None, Some(purge_at), "purge moved".into(), out);
    }

    /// Sets when a rule of the site purges the source. If that is known already, only the reason is
    /// new.
    pub(crate) fn on_purge_foreseen(
        &mut self,
        id: RequestId,
        purge_at: Option<Timestamp>,
        rule: String,
        out: &mut Outbox,
    ) {
        let Some(known) = self
            .requests
            .get(&id)
            .map(|request| request.uncommon.purge_at)
        else {
            return;
        };
        let reason = Reason::Foreseen { purge_at, rule };
        self.remember(id, "purge foreseen".into(), reason);
        if known != purge_at {
            self.on_purge_moved(id, purge_at, out);
        }
    }

    /// Sets another deadline, or another purge; without one it stays as it is.
    fn rebind(
        &mut self,
        id: RequestId,
        wished: Option<Timestamp>,
        purge_at: Option<Option<Timestamp>>,
        what: String,
        out: &mut Outbox,
    ) {
        let now = self.now;
        if let Some(mut held) = self.release_held(id) {
            let wished = wished.unwrap_or(held.wished_deadline);
            held.bind(wished, purge_at.unwrap_or(held.uncommon.purge_at));
            return self.answer(id, held, true, out);
        }
        let request = self.requests.get_mut(&id);
        let Some(request) = request.filter(|request| !request.is_final()) else {
            return;
        };
        let from = request.spec.deadline;
        let wished = wished.unwrap_or(request.wished_deadline);
        let purge_at = purge_at.unwrap_or(request.uncommon.purge_at);
        if !request.is_moving() {
            // A safe request has kept its deadline; a purge still bounds the time for its repair.
            request.uncommon.purge_at = purge_at;
            return;
        }
        request.bind(wished, purge_at);
        let to = request.spec.deadline;
        if to > now {
            request.missed = false;
            request.take_turn();
        }
        let is_late = request.finish.is_some_and(|finish| finish.p90 > to);
        let is_at_risk = request.at_risk;
        self.remember(id, what, Reason::NewDeadline { from, to });
        self.remember_binding(id);
        if is_late && !is_at_risk {
            self.say_at_risk(id, out);
        }
        self.unplan();
        self.look_now();
    }

    /// Records which of deadline and purge binds, if both are known.
    pub(crate) fn remember_binding(&mut self, id: RequestId) {
        let binding = self.requests.get(&id).and_then(|request| request.binding());
        if let Some(reason) = binding {
            self.remember(id, "what binds".into(), reason);
        }
    }
}
