use posthaste_types::{ChunkIndex, DepotId, FragmentIndex, RequestId};

use crate::{Mind, books::FlightKey};

impl Mind {
    /// Handles a recalled send: nothing of it has left, so it costs nothing, and no depot is to
    /// blame. It still counts against the request's own rate limit: its replacements would come in
    /// a burst.
    pub(crate) fn on_recalled(
        &mut self,
        id: RequestId,
        depot: DepotId,
        chunk: ChunkIndex,
        fragment: FragmentIndex,
    ) {
        let key = FlightKey {
            depot,
            request: id,
            chunk,
        };
        let Some(flight) = self.land(key, fragment) else {
            return;
        };
        let sending = self.depots.get(&depot);
        let sending = sending.map_or(0, |depot| depot.cost_of_sending(flight.bytes));
        if let Some(request) = self.requests.get_mut(&id) {
            let paid = flight.keep_micro_usd.saturating_add(sending);
            request.spent_micro_usd = request.spent_micro_usd.saturating_sub(paid);
        }
        self.refresh_stripe(id, chunk);
        self.offer_mend(id, chunk);
    }
}
