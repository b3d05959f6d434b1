//! Forecast for each destination of one request, for views of its transfers.

use alloc::vec::Vec;
use posthaste_types::{Bytes, RequestId};

use crate::{
    contract::{Forecast, Hindrance},
    forecast,
    forecast::delivery::{Busy, Delivery, LOOKS_MAX, OutOfSight},
    state::completion::belief::Belief,
    state::{Request, State},
};

/// Forecast of one destination.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Awaited {
    pub(crate) lane: usize,
    /// Time at which it has all of it.
    pub(crate) finish: Option<Forecast>,
    /// Obstacle that keeps it waiting.
    pub(crate) hindrance: Hindrance,
    /// True if the centre feeds it.
    pub(crate) is_fed: bool,
}

/// Returns the forecast of each destination of a request after those wanted before: the look at
/// all deliveries, up to this request.
pub(crate) fn awaited(state: &State, id: RequestId, request: &Request) -> Vec<Awaited> {
    const BELIEFS: [Belief; 3] = [Belief::P90, Belief::P50, Belief::P10];
    let mut busy: [Busy; 3] = Default::default();
    let before = state.index.delivering().take(LOOKS_MAX);
    for other in before.take_while(|other| *other != id) {
        let Some(known) = state.requests.get(&other) else {
            continue;
        };
        for (belief, busy) in BELIEFS.into_iter().zip(&mut busy) {
            let safe = forecast::delivery::safe_at(state, known, belief);
            // The result shows in the times at which destinations are free.
            let _ = forecast::delivery::delivery(state, other, known, safe, belief, busy);
        }
    }
    let of = |lane: usize| {
        let mut found: Vec<Result<Delivery, OutOfSight>> = Vec::new();
        for (belief, busy) in BELIEFS.into_iter().zip(&mut busy) {
            let safe = forecast::delivery::safe_at(state, request, belief);
            found.push(forecast::delivery::delivery_at(
                state, id, request, lane, safe, belief, busy,
            ));
        }
        let ends = [0, 1, 2].map(|at| found.get(at)?.ok().map(|found| found.finish));
        let hindrance = found.last().map(|found| match found {
            Ok(found) => found.hindrance,
            Err(away) => away.hindrance,
        });
        Awaited {
            lane,
            finish: Forecast::ordered(ends),
            hindrance: hindrance.unwrap_or_default(),
            is_fed: forecast::delivery::straight(state, request, lane) > Bytes::ZERO,
        }
    };
    request.destinations().map(of).collect()
}
