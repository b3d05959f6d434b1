use posthaste_types::DepotId;

use crate::{apply, contract::Outbox, state::State};

/// Records that a person asks for a probe: it starts as soon as the link is idle and no other
/// probe runs.
pub(crate) fn on_probe_asked(state: &mut State, id: DepotId, out: &mut Outbox) {
    if let Some(depot) = state.depots.get_mut(&id) {
        depot.link.is_probe_asked = depot.is_up();
    }
    apply::probing::probe_asked(state, out);
}
