use posthaste_types::DepotId;

use crate::{Mind, contract::Outbox};

impl Mind {
    /// Records that a person asks for a probe from one depot to another: it begins once neither
    /// sends or receives anything.
    pub(crate) fn on_crossing_probe_asked(&mut self, from: DepotId, to: DepotId, out: &mut Outbox) {
        let is_up = |id| self.depots.get(&id).is_some_and(|depot| depot.is_up());
        if from != to && is_up(from) && is_up(to) {
            self.crossings.ask(from, to);
        }
        self.probe_asked(out);
    }
}
