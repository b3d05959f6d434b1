//! Times from which an export can be read from depots.

use posthaste_types::{RequestId, Timestamp};

use crate::{forecast::stage_in::Quantile, state, state::State};

/// Returns when the copy can be read at all; none while that is not in sight.
pub(crate) fn readable_from(state: &State, id: RequestId, quantile: Quantile) -> Option<Timestamp> {
    let Some(of) = state::onward::comes_of(state, id) else {
        return Some(state.now);
    };
    let request = state.requests.get(&of)?;
    if request.safe_at.is_some() {
        return Some(state.now);
    }
    let finish = request.finish?;
    let finish = match quantile {
        // The slow case of the request is the slow case of its copy.
        Quantile::P10 | Quantile::Hopeful => finish.p90,
        Quantile::P50 => finish.p50,
        Quantile::P90 => finish.p10,
    };
    Some(finish.max(state.now))
}
