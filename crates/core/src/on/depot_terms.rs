use posthaste_types::DepotId;

use crate::{
    Mind,
    books::Depot,
    contract::{DepotPrices, DepotTerms, Outbox},
};

impl Mind {
    /// Sets the terms on which an owner lends a depot.
    pub(crate) fn on_depot_terms(&mut self, id: DepotId, terms: DepotTerms) {
        let Some(depot) = self.depots.get_mut(&id) else {
            return;
        };
        depot.terms = terms;
        self.bring_up_to_date();
        let next = self.next_turn(id);
        if let Some(depot) = self.depots.get_mut(&id) {
            depot.turns_at = next;
        }
        for request in self.index.users(id) {
            self.sort_by_domain(request);
        }
        self.look_now();
    }

    /// Sets what a depot costs beyond its terms.
    pub(crate) fn on_depot_prices(&mut self, id: DepotId, prices: DepotPrices) {
        if let Some(depot) = self.depots.get_mut(&id) {
            depot.prices = prices;
            self.look_now();
        }
    }

    /// Handles the beginning or end of a depot's hours: requests that waited for it get another
    /// chance, and plans are recomputed.
    pub(crate) fn keep_hours(&mut self, id: DepotId, out: &mut Outbox) {
        let now = self.now;
        let is_due = |depot: &Depot| depot.turns_at.is_some_and(|at| at <= now);
        if !self.depots.get(&id).is_some_and(is_due) {
            return;
        }
        let next = self.next_turn(id);
        if let Some(depot) = self.depots.get_mut(&id) {
            depot.turns_at = next;
        }
        self.give_another_chance(id, out);
    }

    /// Gives requests that waited for a depot another chance, and recomputes plans.
    pub(super) fn give_another_chance(&mut self, id: DepotId, out: &mut Outbox) {
        self.unpark_all(id);
        for request in self.index.users(id) {
            self.fill_fan_out(request, out);
        }
        self.probe_asked(out);
        self.look_now();
    }
}
