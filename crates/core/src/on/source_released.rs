use posthaste_types::RequestId;

use crate::{
    Mind,
    books::{Release, Request},
    contract::{Happening, Outbox, Reason, ReleasePolicy, RequestState},
};

impl Mind {
    /// Somebody else removed the source after all was safe: nothing can be sent again from here on. What lacks is made
    /// again from what the depots hold. It is the same where a file is no longer what is safe: that is at depots alone. Where it was to
    /// be removed, and could not be or is another one, some of it is left there.
    pub(crate) fn on_source_purged(&mut self, id: RequestId, reason: Reason, out: &mut Outbox) {
        self.abandon_all(id, &reason, out);
        let Some(request) = self.requests.get_mut(&id) else {
            return;
        };
        let is_ours = request.spec.release == ReleasePolicy::WhenSafe;
        let is_left = request.uncommon.release_failures > 0 || reason != Reason::Purged;
        request.release = match is_ours && is_left {
            true => Release::Left,
            false => Release::Done,
        };
        request.uncommon.release_at = None;
        request.suffice();
        request.stripes.clear();
        (request.at_risk, request.finish) = (false, None);
        request.state = RequestState::Released;
        let chunks = request.replica.chunks() - request.replica.safe();
        self.tell(out, Some(id), None, Happening::Purged, reason.clone());
        if chunks > 0 {
            if let Some(request) = self.requests.get_mut(&id) {
                request.is_thin = true;
            }
            self.tell(out, Some(id), None, Happening::Unsafe { chunks }, reason);
        }
        self.reset_push(id);
        self.deliver_if_there(id, out);
    }

    /// Handles a source that was removed from scratch, as commanded. From here on nothing can be
    /// sent again, and losses are rebuilt from what the depots hold.
    pub(crate) fn on_source_released(&mut self, id: RequestId, out: &mut Outbox) {
        let Some(request) = self.requests.get(&id) else {
            self.on_outward_released(id, out);
            return;
        };
        if request.release.is_over() || !request.is_kept() {
            return;
        }
        // A depot may have been lost since it was commanded.
        let has_it = request.state == RequestState::Delivered || request.replica.is_safe();
        let lacking = match has_it {
            true => 0,
            false => request.replica.chunks() - request.replica.safe(),
        };
        let reason = match has_it {
            true => request.reason_safe(),
            false => Reason::Purged,
        };
        self.abandon_sends(id, &reason, out);
        let Some(request) = self.requests.get_mut(&id) else {
            return;
        };
        request.release = Release::Done;
        request.stripes.clear();
        if request.state != RequestState::Delivered {
            request.state = RequestState::Released;
        }
        request.is_thin = lacking > 0;
        self.tell(out, Some(id), None, Happening::Released, reason.clone());
        if lacking > 0 {
            let happening = Happening::Unsafe { chunks: lacking };
            self.tell(out, Some(id), None, happening, reason);
        }
        self.reset_push(id);
        self.deliver_if_there(id, out);
        let request = self.requests.get(&id);
        let is_delivered = |request: &&Request| {
            request.state == RequestState::Delivered && request.lead().is_some()
        };
        if let Some(request) = request.filter(is_delivered) {
            let reason = request.reason_whole(self.now);
            self.begin_forgetting(id, reason);
        }
        self.forget_if_gone_on(id);
    }
}
