//! Weighs a newcomer together with its delivery.

use posthaste_types::RequestId;

use crate::{
    contract::Reason,
    decide,
    decide::verdict::Verdict,
    state::completion::Promised,
    state::{Request, State},
};

/// Weighs a newcomer so that it is delivered in time; returns the reason with one that is
/// accepted although it can't be.
pub(crate) fn weigh_with_delivery(
    state: &State,
    id: RequestId,
    request: &mut Request,
    left: &Promised,
) -> (Verdict, Option<Reason>) {
    match decide::delivery::promise::weigh_delivered(
        state,
        id,
        request,
        left,
        decide::redundancy::weigh_newcomer,
    ) {
        Ok(verdict) => (verdict, None),
        Err(reason) if request.spec.best_effort => (
            decide::redundancy::weigh_newcomer(state, request, left),
            Some(reason),
        ),
        Err(reason) => (Verdict::Refuse(reason), None),
    }
}
