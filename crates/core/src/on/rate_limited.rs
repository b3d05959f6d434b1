use posthaste_types::{ByteRate, RequestId};

use crate::{
    Mind,
    contract::{Cause, Reason},
};

impl Mind {
    /// Sets, changes or removes a user's rate limit on a request. It holds from the next fragment
    /// on, and everything about the request is judged anew.
    pub(crate) fn on_rate_limited(&mut self, id: RequestId, to: Option<ByteRate>) {
        if self.is_stage_in(id) {
            self.limit_arrival(id, to);
            return;
        }
        let now = self.now;
        if let Some(request) = self.held_mut(id) {
            request.wishes.rate_max = to;
            request.uncommon.throttle.set_rate(now, to);
            return;
        }
        let Some(request) = self
            .requests
            .get_mut(&id)
            .filter(|request| !request.is_final() && request.wishes.rate_max != to)
        else {
            return;
        };
        let from = core::mem::replace(&mut request.wishes.rate_max, to);
        request.uncommon.throttle.set_rate(now, to);
        request.account.blame(Cause::Course, None);
        let reason = Reason::NewLimit { from, to };
        self.remember(id, "limit changed".into(), reason);
        self.look_now();
    }
}
