use posthaste_types::DepotId;

use crate::{
    apply,
    contract::{Fault, Happening, Outbox, Reason},
    state::State,
};

/// Removes a depot: what it holds no longer counts.
pub(crate) fn on_depot_removed(state: &mut State, id: DepotId, out: &mut Outbox) {
    if !state.depots.contains_key(&id) {
        return;
    }
    apply::tell::tell(
        state,
        out,
        None,
        Some(id),
        Happening::DepotDown,
        Reason::Asked,
    );
    apply::reindex::bring_up_to_date(state);
    apply::pins::unpin(state, id, out);
    apply::losses::drop_depot(
        state,
        id,
        &Reason::DepotLost {
            fault: Fault::Unreachable,
        },
        out,
    );
    state.depots.remove(&id);
    state.crossings.forget(id);
    state.spaces.set_able(id, false);
}
