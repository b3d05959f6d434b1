use posthaste_types::{ChunkIndex, DepotId, FragmentIndex, RequestId};

use crate::{
    apply,
    contract::{Fault, Outbox},
    state::{FlightKey, State},
};

/// Handles a send that ended without the fragment being stored.
pub(crate) fn on_fragment_failed(
    state: &mut State,
    id: RequestId,
    depot: DepotId,
    chunk: ChunkIndex,
    fragment: FragmentIndex,
    fault: Fault,
    out: &mut Outbox,
) {
    let key = FlightKey {
        depot,
        request: id,
        chunk,
    };
    if let Some(pushed) = apply::flights::land_push(state, key, fragment) {
        apply::push::failures::on_push_failed(state, key, pushed, fault, out);
        apply::repair::offer_mend(state, id, chunk);
        return;
    }
    let Some(flight) = apply::flights::land(state, key, fragment) else {
        return;
    };
    if fault.is_of_source() {
        apply::source_fault::on_source_fault(state, id, fault, None, out);
        apply::stripes::refresh_stripe(state, id, chunk);
        apply::repair::offer_mend(state, id, chunk);
        return;
    }
    if let Some(request) = state.requests.get_mut(&id) {
        // It may have been sent, but it is not kept.
        let spent = &mut request.spent_micro_usd;
        *spent = spent.saturating_sub(flight.keep_micro_usd);
    }
    if let Some(request) = state.requests.get_mut(&id)
        && let Some(stripe) = request.stripes.get_mut(&chunk)
    {
        stripe.failures += 1;
        stripe.last_fault = Some(fault);
    }
    apply::stripes::refresh_stripe(state, id, chunk);
    apply::repair::offer_mend(state, id, chunk);
    apply::losses::blame(state, id, depot, flight.since, fault, out);
}
