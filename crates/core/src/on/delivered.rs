use posthaste_types::RequestId;

use crate::{
    Mind,
    books::Request,
    contract::{Happening, Outbox, Reason, ReleasePolicy, RequestState},
};

impl Mind {
    /// Handles a recipient that pulled and verified everything: nothing more needs to be sent. With
    /// several recipients, one does not speak for the others. If the source is to be removed once
    /// it is safe, a pull does not make it so.
    pub(crate) fn on_delivered(&mut self, id: RequestId, out: &mut Outbox) {
        let others_wait = |request: &Request| {
            let is_open = request.is_kept() && request.state != RequestState::Delivered;
            is_open && request.whole_lanes().count_ones() > 1
        };
        let is_promised = |request: &Request| {
            request.spec.release == ReleasePolicy::WhenSafe && request.is_moving()
        };
        let goes_on = |request: &Request| others_wait(request) || is_promised(request);
        let others_wait = self.requests.get(&id).is_some_and(goes_on);
        if others_wait || self.is_going_on(id) {
            self.remember(id, "somebody has all of it".into(), Reason::Verified);
            return;
        }
        self.end_delivered(id, Reason::Verified, out);
    }

    /// Ends a request whose recipient has everything: nothing more needs to be sent.
    pub(crate) fn end_delivered(&mut self, id: RequestId, reason: Reason, out: &mut Outbox) {
        let now = self.now;
        let Some(request) = self.requests.get(&id) else {
            return;
        };
        if !request.is_kept() || request.state == RequestState::Delivered {
            return;
        }
        self.abandon_all(id, &reason, out);
        let Some(request) = self.requests.get_mut(&id) else {
            return;
        };
        request.stripes.clear();
        (request.push, request.delivery, request.mend) = (None, None, None);
        request.at_risk = false;
        request.finish = None;
        (request.due.at_risk, request.due.finish) = (false, None);
        if request.safe_at.is_none() {
            request.account.close(now);
        }
        request.safe_at.get_or_insert(now);
        request.state = RequestState::Delivered;
        self.tell(out, Some(id), None, Happening::Delivered, reason.clone());
        self.release_if_safe(id, out);
        self.begin_forgetting(id, reason);
    }
}
