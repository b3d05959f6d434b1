use posthaste_types::RequestId;

use crate::{
    Mind,
    books::Release,
    contract::{Happening, Outbox, Reason, RequestState},
};

impl Mind {
    /// The source left scratch, as commanded. From here on nothing can be sent again.
    pub(crate) fn on_source_released(&mut self, id: RequestId, out: &mut Outbox) {
        let Some(request) = self.requests.get(&id) else {
            return;
        };
        if request.release == Release::Done || !request.is_kept() {
            return;
        }
        let reason = Reason::AllSafe {
            losses: u32::from(request.spec.code.parity()),
        };
        self.abandon_all(id, &reason, out);
        let Some(request) = self.requests.get_mut(&id) else {
            return;
        };
        request.release = Release::Done;
        request.stripes.clear();
        if request.state != RequestState::Delivered {
            request.state = RequestState::Released;
        }
        self.tell(out, Some(id), None, Happening::Released, reason);
        self.deliver_if_there(id, out);
    }
}
