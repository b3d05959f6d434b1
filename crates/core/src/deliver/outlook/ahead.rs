//! Forecast for each destination of one request, for views of its transfers.

use alloc::vec::Vec;
use posthaste_types::{Bytes, RequestId};

use super::{Busy, Delivery, LOOKS_MAX, OutOfSight};
use crate::{
    Mind,
    books::Request,
    contract::{Forecast, Hindrance},
    outlook::Belief,
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

impl Mind {
    /// Returns the forecast of each destination of a request after those wanted before: the look at
    /// all deliveries, up to this request.
    pub(crate) fn awaited(&self, id: RequestId, request: &Request) -> Vec<Awaited> {
        const BELIEFS: [Belief; 3] = [Belief::P90, Belief::P50, Belief::P10];
        let mut busy: [Busy; 3] = Default::default();
        let before = self.index.delivering().take(LOOKS_MAX);
        for other in before.take_while(|other| *other != id) {
            let Some(known) = self.requests.get(&other) else {
                continue;
            };
            for (belief, busy) in BELIEFS.into_iter().zip(&mut busy) {
                let safe = self.safe_at(known, belief);
                // The result shows in the times at which destinations are free.
                let _ = self.delivery(other, known, safe, belief, busy);
            }
        }
        let of = |lane: usize| {
            let mut found: Vec<Result<Delivery, OutOfSight>> = Vec::new();
            for (belief, busy) in BELIEFS.into_iter().zip(&mut busy) {
                let safe = self.safe_at(request, belief);
                found.push(self.delivery_at(id, request, lane, safe, belief, busy));
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
                is_fed: self.straight(request, lane) > Bytes::ZERO,
            }
        };
        request.destinations().map(of).collect()
    }
}
