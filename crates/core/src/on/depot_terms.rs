use posthaste_types::DepotId;

use crate::{
    Mind,
    books::Depot,
    contract::{DepotPrices, DepotTerms, Outbox},
};

impl Mind {
    /// An owner said on which terms a depot is lent.
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

    /// An owner said what a depot costs beyond its terms.
    pub(crate) fn on_depot_prices(&mut self, id: DepotId, prices: DepotPrices) {
        if let Some(depot) = self.depots.get_mut(&id) {
            depot.prices = prices;
            self.look_now();
        }
    }

    /// The hours of a depot begin or end: what waited for it gets another chance, and plans are made
    /// anew.
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

    /// What waited for a depot gets another chance, and plans are made anew.
    pub(super) fn give_another_chance(&mut self, id: DepotId, out: &mut Outbox) {
        self.unpark_all(id);
        for request in self.index.users(id) {
            self.fill_fan_out(request, out);
        }
        self.probe_asked(out);
        self.look_now();
    }
}
