//! Pays for dear sources.

use posthaste_types::{DepotId, RequestId, Timestamp};

use crate::{
    contract::SourcePrice,
    decide,
    decide::stage_in::budget::ANY,
    forecast,
    forecast::stage_in::inbound::Inbound,
    state,
    state::{Arrival, Depot, Fetch, State},
};

/// Lets dear sources give as much as the deadline needs and the budget pays, after more urgent
/// stage-ins. Returns when it is to be here then; none without a budget.
pub(crate) fn divide_money(
    state: &mut State,
    id: RequestId,
    alone: &Inbound,
    left: &Inbound,
) -> Option<Timestamp> {
    let now = state.now;
    let has_budget = |arrival: &Arrival| arrival.has_budget() && !arrival.is_whole();
    state
        .arrivals
        .requests
        .get(&id)
        .filter(|arrival| has_budget(arrival))?;
    let mut arrival = state.arrivals.requests.remove(&id)?;
    arrival.allow(|_| ANY);
    let until = forecast::stage_in::wanted_by(state, &arrival, alone);
    decide::stage_in::budget::allot(state, &mut arrival, until, false, |arrival, by| {
        let edges = left.clone().late(arrival, now, by);
        edges.iter().all(|(_, edge)| edge.is_some())
    });
    state.arrivals.requests.insert(id, arrival);
    Some(until)
}

/// Records the cost of reading depots near the centre for stage-ins with a budget, and
/// schedules a look at those for which it changed.
pub(crate) fn price_near(state: &mut State) {
    let (depots, sources) = (&state.depots, &state.arrivals.sources);
    let requests = state.arrivals.requests.values_mut();
    let bound = requests.filter(|arrival| arrival.state.is_live() && arrival.has_budget());
    let mut is_new = false;
    for near in bound.flat_map(|arrival| &mut arrival.near) {
        let depot = depots.get(&near.depot);
        let source = sources.get(&near.source);
        let gives =
            depot.is_some_and(Depot::is_up) && source.is_some_and(|source| !source.is_down());
        let price = depot.map(|depot| SourcePrice {
            source: near.source,
            get_micro_usd: depot.prices.get_micro_usd,
            egress_micro_usd: depot.prices.egress_micro_usd,
        });
        is_new |= (near.gives, near.price) != (gives, price);
        (near.gives, near.price) = (gives, price);
    }
    if is_new {
        state::wake::look_at_arrivals_now(state);
    }
}

/// Counts a chunk that begins its way as spent.
pub(crate) fn pay_for(
    state: &mut State,
    id: RequestId,
    fetch: Fetch,
    to: Option<DepotId>,
    is_duplicate: bool,
) {
    let Some(arrival) = state.arrivals.requests.get(&id) else {
        return;
    };
    let bytes = arrival.chunk_bytes(fetch.chunk.get());
    let taker = to.and_then(|to| state.depots.get(&to));
    let stored = taker.map_or(0, |taker| taker.cost_of_sending(bytes));
    let near = arrival.near_as(fetch.source);
    let giver = near.and_then(|near| state.depots.get(&near.depot));
    let read = match giver {
        Some(giver) => giver.cost_of_reading(bytes, None),
        None => arrival.price(fetch.source, bytes),
    };
    let is_extra = !is_duplicate
        && arrival.has_budget()
        && arrival.is_extra(
            fetch.source,
            fetch.chunk,
            &decide::stage_in::budget::counting(state),
        );
    if let Some(arrival) = state.arrivals.requests.get_mut(&id) {
        arrival.pay(read.saturating_add(stored));
        if is_extra {
            arrival.take_extra(fetch.source);
        }
    }
}
