//! Passage of time: deadlines, stalls, and every tick a look at risk and course.

use alloc::vec::Vec;
use posthaste_types::{Bytes, RequestId, Timestamp};

use crate::{
    contract::{Forecast, Reason},
    decide, state,
    state::{Request, Route, State},
};

/// Returns whether links and lanes count the existing flights.
pub(crate) fn is_balanced(state: &State) -> bool {
    let links = state.depots.iter().all(|(id, depot)| {
        let flights = state.transfers.to(*id, None);
        let (count, bytes) = flights.fold((0, Bytes::ZERO), |(count, bytes), (_, flight)| {
            (count + 1, bytes + flight.bytes)
        });
        (count, bytes) == (depot.link.flights, depot.link.in_flight)
    });
    let lanes = state.requests.iter().all(|(id, request)| {
        request.lanes.iter().all(|lane| {
            state.transfers.to(lane.depot, Some(*id)).count() == lane.in_flight as usize
        })
    });
    links && lanes && decide::push::is_push_balanced(state)
}

/// Returns why a request is late, including that its depots are full.
pub(crate) fn find_why_late(state: &State, id: RequestId) -> Option<Reason> {
    let request = state.requests.get(&id)?;
    let reason = reason_late(request, state.now);
    let is_stuck = matches!(reason, Reason::Infeasible { .. });
    let full = is_stuck.then(|| find_want_of_space(state, id, request));
    Some(full.flatten().unwrap_or(reason))
}

/// Returns the reason that enough depots are up, with too little space for what is left.
fn find_want_of_space(state: &State, id: RequestId, request: &Request) -> Option<Reason> {
    let there = request.depot_lanes();
    let there = there.filter(|&lane| state::usable::is_there(state, request, lane));
    let free = |lane: usize| {
        let depot = request.lanes[lane].depot;
        let free = state.depots.get(&depot)?.free;
        let free = state.index.space_for(id, depot, free);
        Some(free.min(request.replica.room_to_the_byte(lane)))
    };
    let free: Vec<Bytes> = there.filter_map(free).collect();
    let is_fed = request.route == Route::Staged;
    let holders = state::failure_domain::holders_with(state, request, free.len());
    let is_enough = holders >= usize::from(request.spec.code.total());
    let (needed, available) = (request.replica.missing_bytes(), free.into_iter().sum());
    let is_full = is_fed && is_enough && available < needed;
    is_full.then_some(Reason::NoSpace { needed, available })
}

/// Returns why a request is late: its forecast, or that nothing can carry it.
pub(crate) fn reason_late(request: &Request, now: Timestamp) -> Reason {
    let deadline = request.spec.deadline;
    if let Some(pause) = request.pause() {
        let finish = request.finish.map(|finish| finish.p90.max(now));
        return pause.late(finish, deadline);
    }
    if let Some(budget) = request
        .wishes
        .budget_micro_usd
        .filter(|_| request.uncommon.is_broke)
    {
        let spent = request.spent_micro_usd;
        return Reason::BudgetSpent { spent, budget };
    }
    let is_late = |finish: &Forecast| finish.p90 > deadline || now >= deadline;
    let is_late = request.finish.as_ref().is_none_or(is_late);
    if let Some(why) = request.uncommon.pin_trouble.clone().filter(|_| is_late) {
        return Reason::Pinned { why };
    }
    match request.finish {
        // Unfinished work is never forecast to be done in the past.
        Some(finish) if finish.p90 > deadline || now >= deadline => {
            let finish = finish.p90.max(now);
            Reason::Behind {
                fan_out: request.fan_out(),
                finish,
                deadline,
            }
        }
        Some(finish) => Reason::SlackThin {
            fan_out: request.fan_out(),
            finish: finish.p90,
            deadline,
        },
        None => Reason::Infeasible {
            earliest: None,
            deadline,
            would_buy: Vec::new(),
        },
    }
}
