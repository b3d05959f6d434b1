//! Judges by losses which code a request needs.

use posthaste_types::{DepotId, RequestId};

use crate::{
    apply,
    contract::{Happening, Outbox, Reason},
    state::State,
};

/// Reports the chosen code, before the acceptance of the request.
pub(crate) fn say_code(state: &mut State, id: RequestId, out: &mut Outbox) {
    let request = state.requests.get(&id);
    let Some((code, loss_ppb)) =
        request.and_then(|request| Some((request.spec.code, request.uncommon.loss_ppb?)))
    else {
        return;
    };
    let reason = Reason::Redundancy { code, loss_ppb };
    apply::tell::tell(
        state,
        out,
        Some(id),
        None,
        Happening::CodeChosen { code },
        reason,
    );
}

/// Judges the loss of a depot by its inventory afterwards.
pub(crate) fn judge_loss(state: &mut State, depot: DepotId, has_all: bool) {
    if let Some(depot) = state.depots.get_mut(&depot) {
        depot.history.on_back(has_all);
    }
}
