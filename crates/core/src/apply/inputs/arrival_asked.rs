use alloc::vec::Vec;
use posthaste_types::RequestId;

use crate::{
    apply,
    contract::{ArrivalSpec, Holding, Outbox, Reason, WouldBuy},
    decide, forecast,
    forecast::stage_in::Quantile,
    state,
    state::{Arrival, State},
};

/// Refuses a stage-in, with the budget that would suffice if the budget is the obstacle.
fn refuse_dear_arrival(
    state: &mut State,
    id: RequestId,
    arrival: Arrival,
    reason: Reason,
    out: &mut Outbox,
) {
    let would_buy = if let Reason::OverBudget {
        needed,
        finish: Some(finish),
        ..
    } = reason
    {
        let micro_usd = needed;
        alloc::vec![WouldBuy::Budget { micro_usd, finish }]
    } else {
        Vec::new()
    };
    apply::stage_in::onward::refuse_arrival(state, id, arrival, reason, out);
    if !would_buy.is_empty() {
        state::memory::remember(state, id, "offered".into(), Reason::Offered { would_buy });
    }
}

/// Accepts a stage-in of a user, or refuses it with the reason. A known number is ignored, so
/// that a replay does no harm.
pub(crate) fn on_arrival_asked(
    state: &mut State,
    id: RequestId,
    spec: ArrivalSpec,
    holdings: &[Holding],
    out: &mut Outbox,
) {
    if state.arrivals.requests.contains_key(&id) || state.requests.contains_key(&id) {
        return;
    }
    let purse = state.arrivals.purses.remove(&id);
    let Some(spec) = apply::stage_in::onward::keep_onward(state, id, spec) else {
        return;
    };
    let mut arrival = apply::stage_in::take::new_arrival(state, spec, holdings);
    if let Some(purse) = purse {
        arrival.set_purse(purse);
    }
    let from = forecast::stage_in::onward::readable_from(state, id, Quantile::P10);
    match decide::stage_in::budget::judge_within(state, &mut arrival, from) {
        Err(reason) => refuse_dear_arrival(state, id, arrival, reason, out),
        Ok(is_leftover) => {
            arrival.is_leftover = is_leftover;
            apply::stage_in::take::take_arrival(state, id, arrival, out);
        }
    }
}
