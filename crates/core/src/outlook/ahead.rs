//! How what is left of one request fares on each of its lanes, for whoever looks at its transfers.

use alloc::vec::Vec;
use posthaste_plan::Outcome;
use posthaste_types::{Bytes, DepotId, RequestId, Timestamp};

use super::{Fares, Places, QUICK};
use crate::{Mind, contract::Forecast};

/// What goes to one depot yet.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ahead {
    pub(crate) depot: DepotId,
    /// As likely as not.
    pub(crate) bytes: Bytes,
    /// When the last of it is stored.
    pub(crate) finish: Option<Forecast>,
}

impl Fares {
    /// What goes to each depot.
    fn ahead(&self, places: &Places) -> Vec<Ahead> {
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

impl Mind {
    /// What is left of a request that moves, by depot, after the more urgent ones, and when each is through: the same look as
    /// that at everything, up to this request. None where too many are more urgent for a quick look.
    pub(crate) fn ahead(&self, id: RequestId) -> Option<Vec<Ahead>> {
        let mut sweep = self.begin_sweep();
        for urgency in self.index.after(None).take(QUICK) {
            let request = self.requests.get(&urgency.request)?;
            sweep.give_back(&self.space_of(urgency.request, sweep.places()));
            let fares = sweep.fares(self.load_now(request, sweep.places()), self.now);
            if urgency.request == id {
                return Some(fares.ahead(sweep.places()));
            }
            let is_counted = !request.is_paused();
            self.pass(&mut sweep, urgency, is_counted.then_some(&fares));
        }
        None
    }
}
