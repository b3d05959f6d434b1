use posthaste_types::DepotId;

use crate::{
    apply,
    contract::{DepotPrices, DepotTerms},
    state,
    state::State,
};

/// Sets the terms on which an owner lends a depot.
pub(crate) fn on_depot_terms(state: &mut State, id: DepotId, terms: DepotTerms) {
    let Some(depot) = state.depots.get_mut(&id) else {
        return;
    };
    depot.terms = terms;
    apply::reindex::bring_up_to_date(state);
    let next = state::usable::next_turn(state, id);
    if let Some(depot) = state.depots.get_mut(&id) {
        depot.turns_at = next;
    }
    for request in state.index.users(id) {
        apply::failure_domain::sort_by_domain(state, request);
    }
    state::wake::look_now(state);
}

/// Sets what a depot costs beyond its terms.
pub(crate) fn on_depot_prices(state: &mut State, id: DepotId, prices: DepotPrices) {
    if let Some(depot) = state.depots.get_mut(&id) {
        depot.prices = prices;
        state::wake::look_now(state);
    }
}
