//! Keeps data derived from the books up to date: the order of requests, what each waits for, and
//! when time alone changes something.

use alloc::{sync::Arc, vec::Vec};
use posthaste_types::{DepotId, RequestId, Timestamp};

use crate::{
    contract::Hindrance,
    state,
    state::{Entry, Push, Rare, Release, Request, Rest, State, Turn, Urgency},
};

pub(crate) fn entry_of(state: &State, id: RequestId, request: &Request) -> Entry {
    let is_moving = request.is_moving();
    let deadline = request.spec.deadline;
    let is_silent = !request.at_risk && request.safe_at.is_none();
    let last_call = is_silent.then(|| last_call(state, request));
    let call = [(!request.missed).then_some(deadline), last_call];
    let urgency = Urgency {
        is_leftover: request.is_leftover,
        turn: if request.is_leftover {
            request.uncommon.turn
        } else {
            Turn::default()
        },
        deadline: request.aim(),
        request: id,
    };
    let (wants, resumes) = wants_now(state, request);
    let again = request.uncommon.release_at.filter(|at| *at > state.now);
    let resumes = resumes.into_iter().chain(again).min();
    let has_push = request.goes_on().any(Push::has_work);
    let may_deliver = request.is_kept() && !request.is_paused();
    // Requests promised at their destinations in time go there first.
    let goes_on = Urgency {
        is_leftover: request.promised_by().is_none(),
        turn: urgency.turn,
        deadline: request.promised_by().unwrap_or(urgency.deadline),
        request: id,
    };
    let due = &request.due;
    let due_by = request
        .deliver_by()
        .filter(|_| !due.missed && due.whole_at.is_none());
    let delivery_call = due_by.map(|by| match due.at_risk {
        true => by,
        false => (by - state.settings.tick).max(request.submitted),
    });
    let is_away = due.at_risk && due.hindrance == Hindrance::Away && due.finish.is_none();
    let rest = Rest {
        resumes,
        push: has_push.then_some(goes_on),
        nearer: nearer(state, request),
        delivers_by: (may_deliver && request.delivery.is_some()).then(|| {
            let by = request.promised_by();
            (by.is_none(), by.unwrap_or(deadline))
        }),
        held: state::space_left::held_free(state, id, request),
    };
    Entry {
        urgency: is_moving.then_some(urgency),
        call: call
            .into_iter()
            .flatten()
            .filter(|_| is_moving)
            .chain(delivery_call)
            .min(),
        wants,
        is_due: due_by.is_some(),
        is_watched: due_by.is_some() && !is_away,
        uses: if request.is_kept() {
            request.lanes.iter().map(|lane| lane.depot).collect()
        } else {
            Arc::default()
        },
        kept_free: state::space_left::kept_free(state, id, request),
        is_asking: request.is_asking(),
        is_final: request.is_final(),
        is_held: (0..request.lanes.len()).any(|lane| request.replica.stored(lane).0 > 0),
        rest: Rare::from(rest),
    }
}

/// Returns the depots the request could feed now, as far as its rate allows, else the time at
/// which it may.
fn wants_now(state: &State, request: &Request) -> (Arc<[DepotId]>, Option<Timestamp>) {
    let wants = wants(state, request);
    if request.uncommon.throttle.is_open(state.now) || wants.is_empty() {
        return (wants, None);
    }
    let opens_at = request
        .uncommon
        .throttle
        .opens_at(state.now, request.spare(&state.settings));
    (Arc::default(), opens_at)
}

/// Returns depots to which the request could send something now, if they had room.
fn wants(state: &State, request: &Request) -> Arc<[DepotId]> {
    // A source that is being removed can't be counted on.
    let has_source = request.release != Release::Commanded && !request.awaits_inventories();
    if !request.is_under_way() || !has_source || request.is_expired(state.now) {
        return Arc::default();
    }
    let lanes = request.wanted_lanes(&state.settings);
    let lanes = request.lanes.iter().enumerate().filter(|&(place, lane)| {
        let has_turn = lane
            .tuning
            .as_ref()
            .is_none_or(|tuning| lane.in_flight < u32::from(tuning.at_once()));
        lanes >> place & 1 == 1
            && lane.is_active
            && request.quota_left(place) != Some(0)
            && lane.asked_at.is_none()
            && has_turn
            && request.is_on_route(place)
    });
    lanes.map(|(_, lane)| lane.depot).collect()
}

/// Returns depots to which something of the request may go on: those beyond the first level it
/// uses, and destinations. If something is rebuilt, returns all of them.
fn nearer(state: &State, request: &Request) -> Vec<DepotId> {
    if request.is_expired(state.now) {
        return Vec::new();
    }
    if request.mend.as_deref().is_some_and(Push::has_work) {
        return request.lanes.iter().map(|lane| lane.depot).collect();
    }
    if request.is_paused() {
        return Vec::new();
    }
    let delivers = request.delivery.as_deref().is_some_and(Push::has_work);
    let whole = request.destinations().filter(|_| delivers);
    let whole = whole.map(|lane| request.lanes[lane].depot);
    if request.push.is_none() {
        return whole.collect();
    }
    let to = request.lead_depot();
    let level = |id: DepotId| Some(state.crossings.level(id, state.depots.get(&id)?, to));
    let all = request.depot_lanes().map(|lane| request.lanes[lane].depot);
    let all: Vec<DepotId> = all.collect();
    let least = all.iter().copied().filter_map(level).min();
    let nearer = all.into_iter().filter(|&depot| level(depot) > least);
    nearer.chain(whole).collect()
}

/// Returns the last moment at which danger can be reported well before the deadline.
pub(crate) fn last_call(state: &State, request: &Request) -> Timestamp {
    (request.spec.deadline - state.settings.tick).max(request.submitted)
}
