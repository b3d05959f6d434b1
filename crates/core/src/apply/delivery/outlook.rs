//! Keeps the forecasts of deliveries.

use alloc::vec::Vec;
use posthaste_types::RequestId;

use crate::{
    apply,
    contract::Forecast,
    forecast,
    forecast::delivery::{Busy, Delivery, LOOKS_MAX, OutOfSight},
    state::State,
    state::completion::belief::Belief,
};

/// Forecasts every delivery in progress, the most urgent first.
pub(crate) fn look_at_deliveries(state: &mut State) {
    let order: Vec<RequestId> = state.index.delivering().take(LOOKS_MAX).collect();
    let mut busy: [Busy; 3] = Default::default();
    for id in order {
        apply::delivery::space::hold_for_delivery(state, id);
        let Some(request) = state.requests.get(&id) else {
            continue;
        };
        let beliefs = [Belief::P90, Belief::P50, Belief::P10];
        let mut found = beliefs.iter().zip(&mut busy).map(|(&belief, busy)| {
            let safe = forecast::delivery::safe_at(state, request, belief);
            forecast::delivery::delivery(state, id, request, safe, belief, busy)
        });
        let (fast, middle, slow) = (found.next(), found.next(), found.next());
        drop(found);
        let (Some(fast), Some(middle), Some(slow)) = (fast, middle, slow) else {
            continue;
        };
        note_delivery(state, id, fast.ok(), middle.ok(), slow);
    }
}

fn note_delivery(
    state: &mut State,
    id: RequestId,
    fast: Option<Delivery>,
    middle: Option<Delivery>,
    slow: Result<Delivery, OutOfSight>,
) {
    let now = state.now;
    let Some(request) = state.requests.get_mut(&id) else {
        return;
    };
    let promised_by = request.promised_by();
    let due = &mut request.due;
    let ends = [fast, middle, slow.ok()];
    due.finish = Forecast::ordered(ends.map(|end| Some(end?.finish)));
    match slow {
        Ok(slow) => {
            (due.last, due.hindrance) = (Some(slow.last), slow.hindrance);
            due.is_assumed = slow.is_assumed;
        }
        Err(away) => (due.last, due.hindrance) = (Some(away.last), away.hindrance),
    }
    // A promise is kept by being safe early enough; small changes are not worth another order.
    due.safe_by = match (promised_by, slow) {
        (None, _) => None,
        (Some(_), Err(_)) => due.safe_by,
        (Some(by), Ok(slow)) => {
            let wanted = by - slow.after;
            let moved = due
                .safe_by
                .map(|before| before.since(wanted).max(wanted.since(before)));
            let is_little = moved.is_some_and(|moved| moved <= by.since(now) / 16);
            if is_little { due.safe_by } else { Some(wanted) }
        }
    };
}
