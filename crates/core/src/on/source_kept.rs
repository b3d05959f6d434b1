use posthaste_types::RequestId;

use crate::{
    Mind,
    books::Release,
    contract::{Fault, Happening, Outbox, Reason},
};

impl Mind {
    /// The source could not be removed; it stays, and people are told.
    pub(crate) fn on_source_kept(&mut self, id: RequestId, fault: Fault, out: &mut Outbox) {
        let Some(request) = self.requests.get_mut(&id) else {
            return;
        };
        if request.release != Release::Commanded {
            return;
        }
        request.release = Release::Kept;
        let reason = Reason::GaveUp { fault, attempts: 1 };
        self.tell(out, Some(id), None, Happening::ReleaseFailed, reason);
        self.deliver_if_there(id, out);
    }
}
