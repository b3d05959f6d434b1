use posthaste_types::RequestId;

use crate::{
    Mind,
    contract::{Happening, Outbox, Reason, RequestState},
};

impl Mind {
    /// The destination has and verified everything: nothing more needs to be sent.
    pub(crate) fn on_delivered(&mut self, id: RequestId, out: &mut Outbox) {
        let now = self.now;
        let Some(request) = self.requests.get(&id) else {
            return;
        };
        if !request.is_kept() || request.state == RequestState::Delivered {
            return;
        }
        let reason = Reason::Verified;
        self.abandon_all(id, &reason, out);
        let Some(request) = self.requests.get_mut(&id) else {
            return;
        };
        request.stripes.clear();
        request.push = None;
        request.at_risk = false;
        request.finish = None;
        if request.safe_at.is_none() {
            request.account.close(now);
        }
        request.safe_at.get_or_insert(now);
        request.state = RequestState::Delivered;
        self.tell(out, Some(id), None, Happening::Delivered, reason);
        self.release_if_safe(id, out);
    }
}
