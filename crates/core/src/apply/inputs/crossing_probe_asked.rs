use posthaste_types::DepotId;

use crate::{apply, contract::Outbox, state::State};

/// Records that a person asks for a probe from one depot to another: it begins once neither
/// sends or receives anything.
pub(crate) fn on_crossing_probe_asked(
    state: &mut State,
    from: DepotId,
    to: DepotId,
    out: &mut Outbox,
) {
    let is_up = |id| state.depots.get(&id).is_some_and(|depot| depot.is_up());
    if from != to && is_up(from) && is_up(to) {
        state.crossings.ask(from, to);
    }
    apply::probing::probe_asked(state, out);
}
