use posthaste_types::DepotId;

use crate::{Mind, contract::Outbox};

impl Mind {
    /// Records that a person asks for a probe: it starts as soon as the link is idle and no other
    /// probe runs.
    pub(crate) fn on_probe_asked(&mut self, id: DepotId, out: &mut Outbox) {
        if let Some(depot) = self.depots.get_mut(&id) {
            depot.link.is_probe_asked = depot.is_up();
        }
        self.probe_asked(out);
    }
}
