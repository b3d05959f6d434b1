use alloc::vec::Vec;
use posthaste_types::{DepotId, RequestId};

use crate::{
    Mind,
    books::Release,
    contract::{Outbox, Reason},
};

impl Mind {
    /// Handles a (re)start of the driver: flights have an unknown outcome, so the depots are asked.
    pub(crate) fn on_driver_started(&mut self, out: &mut Outbox) {
        self.probing = None;
        self.trial = None;
        let depots: Vec<DepotId> = self.depots.keys().copied().collect();
        for &depot in &depots {
            self.end_flights(depot, None);
            if let Some(depot) = self.depots.get_mut(&depot) {
                (depot.failures, depot.fruitless) = (0, 0);
            }
        }
        let asked: Vec<RequestId> = self
            .requests
            .iter()
            .filter(|(_, request)| request.is_kept() && request.counts_on_depots())
            .map(|(id, _)| *id)
            .collect();
        for id in asked {
            for &depot in &depots {
                if self.depots.get(&depot).is_some_and(|depot| depot.is_up()) {
                    self.ask_if_used(id, depot, Reason::Restarted, out);
                }
            }
            if let Some(request) = self.requests.get_mut(&id)
                && request.release == Release::Commanded
            {
                // Idempotent: it is commanded again as soon as the depots confirm that it is safe.
                request.release = Release::Pending;
            }
            self.settle(id, out);
        }
        self.take_up_reservations(out);
        self.ask_for_space_again();
        self.forgets.set_due(None, self.now);
        self.release_outward_again();
        self.ask_what_is_here(out);
        self.look_now();
        self.ask_for_plan_again(out);
    }
}
