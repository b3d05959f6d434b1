//! Remembers decisions and events with their requests.

use alloc::{boxed::Box, string::String, vec::Vec};
use posthaste_types::{DepotId, RequestId};

use crate::{
    contract::{Cause, Decision, Event, Happening, Party, Reason},
    state,
    state::{Seen, State},
};

/// Shares equal values of consecutive requests.
pub(crate) fn share_alike(state: &mut State) {
    state.index.share();
    let mut last = None;
    for request in state.requests.values_mut() {
        request.wishes.share(&last);
        last = Some(request.wishes.clone());
    }
}

/// Remembers an event with a request.
pub(crate) fn remember_event(state: &mut State, request: RequestId, event: &Event, count: u32) {
    let depot = event.depot.map(|depot| state::names::name_of(state, depot));
    let decision = Decision {
        at: state.now,
        happening: Some(event.happening.clone()),
        depot: depot.unwrap_or_default().into(),
        count,
        note: Box::default(),
        reason: event.reason.clone(),
    };
    remember_decision(state, request, decision);
}

/// Remembers with a request an event of one of its depots; `count` says how much of it that
/// concerned.
pub(crate) fn remember_depot(
    state: &mut State,
    request: RequestId,
    depot: DepotId,
    happening: Happening,
    reason: Reason,
    count: u32,
) {
    let event = Event {
        at: state.now,
        request: Some(request),
        depot: Some(depot),
        happening,
        reason,
    };
    remember_event(state, request, &event, count);
}

/// Remembers a decision that is no event.
pub(crate) fn remember(state: &mut State, request: RequestId, what: String, reason: Reason) {
    remember_of(state, request, String::new(), 0, what, reason);
}

/// Remembers a decision about one depot, by name, with its count.
pub(crate) fn remember_of(
    state: &mut State,
    request: RequestId,
    depot: String,
    count: u32,
    what: String,
    reason: Reason,
) {
    let decision = Decision {
        at: state.now,
        happening: None,
        depot: depot.into(),
        count,
        note: what.into(),
        reason,
    };
    remember_decision(state, request, decision);
}

fn remember_decision(state: &mut State, request: RequestId, decision: Decision) {
    let most = state.settings.decisions_max;
    if let Some(arrival) = state.arrivals.requests.get_mut(&request) {
        arrival.decisions.remember(&decision, most);
    } else if let Some(request) = state.requests.get_mut(&request) {
        request.decisions.remember(&decision, most);
    }
}

/// Charges what moved the finish of a request since the last look. Also reports which of its
/// depots carry much less, or more, than was last reported. `is_first`: no request comes before
/// it.
pub(crate) fn keep_account(state: &mut State, id: RequestId, is_first: bool) {
    let Some(request) = state.requests.get(&id) else {
        return;
    };
    let (mut seen, mut moved) = (Vec::new(), Vec::new());
    let lanes = request.lanes.iter().enumerate();
    let fed = lanes.filter(|&(place, lane)| lane.is_active && request.is_on_route(place));
    for (_, lane) in fed {
        let Some(link) = state.depots.get(&lane.depot).map(|depot| &depot.link) else {
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
    if let Some(request) = state.requests.get_mut(&id) {
        if request.is_paused() {
            request.account.blame(Cause::Paused, None);
        }
        request.account.note(finish, seen, is_first);
    }
    for (depot, from, to) in moved {
        let reason = Reason::RateMoved { from, to };
        remember_depot(state, id, depot, Happening::ForecastMoved, reason, 0);
    }
}

/// Records a cause that will show in the finish of a request.
pub(crate) fn blame_for(state: &mut State, id: RequestId, cause: Cause, depot: Option<DepotId>) {
    if let Some(request) = state.requests.get_mut(&id) {
        let party = depot.map(|depot| Party::Depot { depot });
        request.account.blame(cause, party);
    }
}
