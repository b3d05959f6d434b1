//! Memory of a request for later queries: decisions, and the account of its slack.

use alloc::{string::String, vec::Vec};
use posthaste_types::RequestId;

use crate::{
    Mind,
    contract::{ArrivalTale, Tale},
    state,
};

impl Mind {
    /// Returns all that the story of a request needs; none if it is unknown.
    #[must_use]
    pub fn tale(&self, id: RequestId) -> Option<Tale> {
        let request = self.state.requests.get(&id)?;
        let lanes = request.lanes.iter();
        Some(Tale {
            now: self.state.now,
            view: self.request(id)?,
            names: lanes
                .map(|lane| (lane.depot, state::names::name_of(&self.state, lane.depot)))
                .collect(),
            decisions: request.decisions.to_vec(),
            answered: request.account.answered(),
            charges: request.account.charges().to_vec(),
        })
    }

    /// Returns all that the story of a stage-in needs; none if it is unknown.
    #[must_use]
    pub fn arrival_tale(&self, id: RequestId) -> Option<ArrivalTale> {
        let arrival = self.state.arrivals.requests.get(&id)?;
        Some(ArrivalTale {
            now: self.state.now,
            view: self.arrival(id)?,
            decisions: arrival.decisions.to_vec(),
            answered: arrival.account.answered(),
            charges: arrival.account.charges().to_vec(),
        })
    }

    /// Returns the story of a request of either kind, a sentence an entry; none if it is unknown.
    #[must_use]
    pub fn story(&self, id: RequestId) -> Option<Vec<String>> {
        let arrival = self.arrival_tale(id);
        let arrival = arrival.map(|tale| crate::story::tell_arrival(&tale));
        let request = || self.tale(id).map(|tale| crate::story::tell(&tale));
        arrival.or_else(request)
    }
}
