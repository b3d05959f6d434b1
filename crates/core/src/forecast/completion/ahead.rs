//! Forecast of each lane of one request, for views of its transfers.

use alloc::vec::Vec;
use posthaste_plan::Outcome;
use posthaste_types::{Bytes, DepotId, RequestId, Timestamp};

use crate::{
    contract::Forecast,
    forecast,
    state::State,
    state::completion::{Fares, Places, QUICK},
};

/// Data still to go to one depot.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ahead {
    pub(crate) depot: DepotId,
    /// Bytes, in the median.
    pub(crate) bytes: Bytes,
    /// Time at which the last of it is stored.
    pub(crate) finish: Option<Forecast>,
}

impl Fares {
    /// Returns what goes to each depot.
    pub(crate) fn ahead(&self, places: &Places) -> Vec<Ahead> {
        let end = |of: &Outcome, at: usize| -> Option<Timestamp> {
            let mut ends = self.load.ends(of);
            ends.find(|(supply, ..)| *supply == at)?.2
        };
        let middle: Vec<_> = self.load.ends(&self.middle).collect();
        let of = |(depot, place): (&DepotId, &u32)| {
            let at = *place as usize;
            let (_, bytes, _) = *middle.iter().find(|(supply, ..)| *supply == at)?;
            let ends = [&self.fast, &self.middle, &self.slow].map(|of| end(of, at));
            Some(Ahead {
                depot: *depot,
                bytes,
                finish: Forecast::ordered(ends),
            })
        };
        places.iter().filter_map(of).collect()
    }
}

/// Returns the rest of a moving request by depot, after the more urgent ones, with the time at
/// which each is complete. It repeats the look at everything, up to this request. None if too
/// many are more urgent for a quick look.
pub(crate) fn ahead(state: &State, id: RequestId) -> Option<Vec<Ahead>> {
    let mut sweep = forecast::completion::begin_sweep(state);
    for urgency in state.index.after(None).take(QUICK) {
        let request = state.requests.get(&urgency.request)?;
        sweep.give_back(&forecast::completion::keep::space_of(
            state,
            urgency.request,
            sweep.places(),
        ));
        let fares = sweep.fares(
            forecast::completion::load_now(state, request, sweep.places()),
            state.now,
        );
        if urgency.request == id {
            return Some(fares.ahead(sweep.places()));
        }
        let is_counted = !request.is_paused();
        forecast::completion::pass(state, &mut sweep, urgency, is_counted.then_some(&fares));
    }
    None
}
