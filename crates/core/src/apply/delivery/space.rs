//! Holds space at destinations for what comes to them.

use posthaste_types::RequestId;

use crate::{decide, state::State};

/// Holds space for a delivery in progress at each destination where all of it fits, and gives
/// up space that others took.
pub(crate) fn hold_for_delivery(state: &mut State, id: RequestId) {
    let Some(request) = state.requests.get(&id) else {
        return;
    };
    let Some(delivery) = &request.delivery else {
        return;
    };
    let begun = request
        .destinations()
        .filter(|lane| delivery.said >> lane & 1 == 1);
    let begun = begun.filter(|_| request.promised_by().is_none());
    let holds = begun
        .filter(|&lane| decide::delivery::space::fits_there(state, id, request, lane))
        .fold(0, |mask, lane| mask | 1 << lane);
    if holds != delivery.holds
        && let Some(request) = state.requests.get_mut(&id)
        && let Some(delivery) = &mut request.delivery
    {
        delivery.holds = holds;
    }
}
