use posthaste_types::DepotId;

use crate::{
    Mind,
    contract::{DepotTerms, Outbox},
};

impl Mind {
    /// An owner said on which terms a depot is lent.
    pub(crate) fn on_depot_terms(&mut self, id: DepotId, terms: DepotTerms) {
        let now = self.now;
        let Some(depot) = self.depots.get_mut(&id) else {
            return;
        };
        depot.turns_at = terms.windows.next_change(now);
        depot.terms = terms;
        self.bring_up_to_date();
        for request in self.index.users(id) {
            self.sort_by_domain(request);
        }
        self.look_now();
    }

    /// Hours begin or end: what waited for a depot gets another chance, and plans are made anew.
    pub(crate) fn keep_hours(&mut self, out: &mut Outbox) {
        let now = self.now;
        let is_due = |turns_at: Option<_>| turns_at.is_some_and(|at| at <= now);
        let turned = self
            .depots
            .iter()
            .filter(|(_, depot)| is_due(depot.turns_at));
        for id in turned.map(|(id, _)| *id).collect::<alloc::vec::Vec<_>>() {
            let Some(depot) = self.depots.get_mut(&id) else {
                continue;
            };
            depot.turns_at = depot.terms.windows.next_change(now);
            self.unpark_all(id);
            for request in self.index.users(id) {
                self.fill_fan_out(request, out);
            }
            self.look_now();
        }
    }
}
