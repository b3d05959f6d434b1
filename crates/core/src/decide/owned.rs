//! Depots that belong to an owner: requests of others use none of them, whatever they name. Those
//! without which a request is not what was asked for are answered as if there were none.

use alloc::vec::Vec;
use posthaste_types::DepotId;

use crate::state::{Request, State};

/// Returns the depots that a newcomer names and that belong to another owner.
pub(crate) fn foreign(state: &State, request: &Request) -> Vec<DepotId> {
    let spec = &request.spec;
    let pinned = request.uncommon.pinned.iter();
    let named = pinned.chain(&spec.via).chain(&spec.destinations).copied();
    named.filter(|id| is_foreign(state, request, *id)).collect()
}

/// Returns whether a depot belongs to another owner.
pub(crate) fn is_foreign(state: &State, request: &Request, depot: DepotId) -> bool {
    let depot = state.depots.get(&depot);
    depot.is_some_and(|depot| !depot.is_for(&request.wishes.owner))
}
