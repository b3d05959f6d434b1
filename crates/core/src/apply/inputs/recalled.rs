use posthaste_types::{ChunkIndex, DepotId, FragmentIndex, RequestId};

use crate::{
    apply,
    state::{FlightKey, State},
};

/// Handles a recalled send: nothing of it has left, so it costs nothing, and no depot is to
/// blame. It still counts against the request's own rate limit: its replacements would come in
/// a burst.
pub(crate) fn on_recalled(
    state: &mut State,
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
    let Some(flight) = apply::flights::land(state, key, fragment) else {
        return;
    };
    let sending = state.depots.get(&depot);
    let sending = sending.map_or(0, |depot| depot.cost_of_sending(flight.bytes));
    if let Some(request) = state.requests.get_mut(&id) {
        let paid = flight.keep_micro_usd.saturating_add(sending);
        request.spent_micro_usd = request.spent_micro_usd.saturating_sub(paid);
    }
    apply::stripes::refresh_stripe(state, id, chunk);
    apply::repair::offer_mend(state, id, chunk);
}
