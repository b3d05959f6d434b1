//! Memory of a request for later queries: decisions, and the account of its slack.

use alloc::{boxed::Box, string::String, vec::Vec};
use posthaste_types::{DepotId, RequestId};

use crate::{
    Mind,
    books::Seen,
    contract::{ArrivalTale, Cause, Decision, Event, Happening, Party, Reason, Tale},
};

impl Mind {
    /// Shares equal values of consecutive requests.
    pub(crate) fn share_alike(&mut self) {
        self.index.share();
        let mut last = None;
        for request in self.requests.values_mut() {
            request.wishes.share(&last);
            last = Some(request.wishes.clone());
        }
    }

    /// Returns all that the story of a request needs; none if it is unknown.
    #[must_use]
    pub fn tale(&self, id: RequestId) -> Option<Tale> {
        let request = self.requests.get(&id)?;
        let lanes = request.lanes.iter();
        Some(Tale {
            now: self.now,
            view: self.request(id)?,
            names: lanes
                .map(|lane| (lane.depot, self.name_of(lane.depot)))
                .collect(),
            decisions: request.decisions.to_vec(),
            answered: request.account.answered(),
            charges: request.account.charges().to_vec(),
        })
    }

    /// Returns all that the story of a stage-in needs; none if it is unknown.
    #[must_use]
    pub fn arrival_tale(&self, id: RequestId) -> Option<ArrivalTale> {
        let arrival = self.arrivals.requests.get(&id)?;
        Some(ArrivalTale {
            now: self.now,
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

    /// Remembers an event with a request.
    pub(crate) fn remember_event(&mut self, request: RequestId, event: &Event, count: u32) {
        let depot = event.depot.map(|depot| self.name_of(depot));
        let decision = Decision {
            at: self.now,
            happening: Some(event.happening.clone()),
            depot: depot.unwrap_or_default().into(),
            count,
            note: Box::default(),
            reason: event.reason.clone(),
        };
        self.remember_decision(request, decision);
    }

    /// Remembers with a request an event of one of its depots; `count` says how much of it that
    /// concerned.
    pub(crate) fn remember_depot(
        &mut self,
        request: RequestId,
        depot: DepotId,
        happening: Happening,
        reason: Reason,
        count: u32,
    ) {
        let event = Event {
            at: self.now,
            request: Some(request),
            depot: Some(depot),
            happening,
            reason,
        };
        self.remember_event(request, &event, count);
    }

    /// Remembers a decision that is no event.
    pub(crate) fn remember(&mut self, request: RequestId, what: String, reason: Reason) {
        self.remember_of(request, String::new(), 0, what, reason);
    }

    /// Remembers a decision about one depot, by name, with its count.
    pub(crate) fn remember_of(
        &mut self,
        request: RequestId,
        depot: String,
        count: u32,
        what: String,
        reason: Reason,
    ) {
        let decision = Decision {
            at: self.now,
            happening: None,
            depot: depot.into(),
            count,
            note: what.into(),
            reason,
        };
        self.remember_decision(request, decision);
    }

    fn remember_decision(&mut self, request: RequestId, decision: Decision) {
        let most = self.settings.decisions_max;
        if let Some(arrival) = self.arrivals.requests.get_mut(&request) {
            arrival.decisions.remember(&decision, most);
        } else if let Some(request) = self.requests.get_mut(&request) {
            request.decisions.remember(&decision, most);
        }
    }

    /// Charges what moved the finish of a request since the last look. Also reports which of its
    /// depots carry much less, or more, than was last reported. `is_first`: no request comes before
    /// it.
    pub(crate) fn keep_account(&mut self, id: RequestId, is_first: bool) {
        let Some(request) = self.requests.get(&id) else {
            return;
        };
        let (mut seen, mut moved) = (Vec::new(), Vec::new());
        let lanes = request.lanes.iter().enumerate();
        let fed = lanes.filter(|&(place, lane)| lane.is_active && request.is_on_route(place));
        for (_, lane) in fed {
            let Some(link) = self.depots.get(&lane.depot).map(|depot| &depot.link) else {
                continue;
            };
            let party = Party::Depot { depot: lane.depot };
            let mut before = request.account.seen().iter();
            let before = before.find(|before| before.party == party);
            let told = before.map_or(link.rates.p50, |before| before.told);
            let band = told.scaled(3, 4)..=told.scaled(5, 4);
            let is_told = band.contains(&link.rates.p50);
            if !is_told {
                moved.push((lane.depot, told, link.rates.p50));
            }
            seen.push(Seen {
                party,
                rate: link.rates.p10,
                is_measured: link.is_measured(),
                told: if is_told { told } else { link.rates.p50 },
            });
        }
        let finish = request.finish.map(|finish| finish.p90);
        if let Some(request) = self.requests.get_mut(&id) {
            if request.is_paused() {
                request.account.blame(Cause::Paused, None);
            }
            request.account.note(finish, seen, is_first);
        }
        for (depot, from, to) in moved {
            let reason = Reason::RateMoved { from, to };
            self.remember_depot(id, depot, Happening::ForecastMoved, reason, 0);
        }
    }

    /// Records a cause that will show in the finish of a request.
    pub(crate) fn blame_for(&mut self, id: RequestId, cause: Cause, depot: Option<DepotId>) {
        if let Some(request) = self.requests.get_mut(&id) {
            let party = depot.map(|depot| Party::Depot { depot });
            request.account.blame(cause, party);
        }
    }
}
