//! Feeds more or fewer depots, as deadlines need it.

use alloc::vec::Vec;
use core::time::Duration;
use posthaste_plan::{Change, review};
use posthaste_types::{RequestId, Timestamp};

use crate::{
    apply,
    contract::{Cause, Fault, Happening, Outbox, Reason},
    decide,
    decide::pins::pinned_of,
    decide::review::reason_late,
    forecast, state,
    state::completion::Sweep,
    state::{Request, Route, State},
};

/// Feeds one more depot when behind, one less when far ahead
/// (`docs/algorithms/greedy-planner.md`). If only the destination was fed, adds as many as the
/// deadline needs.
pub(crate) fn review_fan_out(state: &mut State, id: RequestId, sweep: &Sweep, out: &mut Outbox) {
    let Some(request) = state.requests.get(&id) else {
        return;
    };
    if !request.is_moving() {
        return;
    }
    let (now, deadline) = (state.now, request.aim());
    let left = deadline
        .since(now)
        .saturating_sub(forecast::completion::margin(state, deadline));
    let finish = request.finish.map(|finish| finish.p90.since(now));
    let (behind, ahead) = (state.settings.behind_ticks, state.settings.ahead_ticks);
    // The effect of a reservation that is asked for is not known yet.
    let is_awaited = state.circuits.is_awaited(id);
    let Some(request) = state.requests.get_mut(&id) else {
        return;
    };
    let change = review(&mut request.pace, finish, left, behind, ahead);
    let (route, deadline) = (request.route, request.spec.deadline);
    let finish = request.finish.map(|finish| finish.p90);
    match (change, route) {
        (Change::Add, _) if is_awaited => {}
        (Change::Keep, _) | (Change::Drop, Route::Direct) => feed_spare(state, id, sweep, out),
        (Change::Drop, Route::Staged) if decide::spares::is_fed_shaky(state, id) => {
            feed_spare(state, id, sweep, out);
        }
        (Change::Add, Route::Direct) => {
            let fault = Fault::Unreachable;
            let reason = match finish {
                Some(finish) => Reason::DirectTooSlow { finish, deadline },
                None => Reason::DepotLost { fault },
            };
            stage_too(state, id, reason, sweep, out);
        }
        (Change::Add, Route::Staged) if decide::fan_out::would_help(state, id, sweep) => {
            activate_next(state, id, reason_late, out);
        }
        (Change::Add, Route::Staged) => {}
        (Change::Drop, Route::Staged) => retire_slowest(state, id, left, sweep, out),
    }
    fill_fan_out(state, id, out);
}

/// Feeds as many depots as the code has fragments, at once: fewer can make nothing safe.
pub(crate) fn fill_fan_out(state: &mut State, id: RequestId, out: &mut Outbox) {
    feed_pinned(state, id);
    while let Some(request) = state.requests.get(&id)
        && request.is_moving()
        && request.route == Route::Staged
    {
        let fed = request.depot_lanes().filter(|&lane| {
            request.lanes[lane].is_active && state::usable::is_there(state, request, lane)
        });
        if request.can_hold(fed.fold(0, |mask, lane| mask | 1 << lane)) {
            return;
        }
        let reason = |request: &Request, _| {
            let lost = request.uncommon.last_lost;
            lost.map_or(Reason::DepotBack, |lost| Reason::Repair { lost })
        };
        if !activate_next(state, id, reason, out) {
            return;
        }
    }
}

/// Feeds the fastest depot in reserve, with the reason at that time. Returns whether there was
/// one.
fn activate_next(
    state: &mut State,
    id: RequestId,
    reason: impl FnOnce(&Request, Timestamp) -> Reason,
    out: &mut Outbox,
) -> bool {
    let Some(request) = state.requests.get(&id) else {
        return false;
    };
    let Some(lane) = decide::fan_out::next_in_reserve(state, request) else {
        return false;
    };
    let depot = request.lanes[lane].depot;
    let Some(request) = state.requests.get_mut(&id) else {
        return false;
    };
    request.lanes[lane].is_active = true;
    request.account.blame(Cause::Course, None);
    request.replica.unpark();
    let reason = reason(request, state.now);
    apply::tell::tell(
        state,
        out,
        Some(id),
        Some(depot),
        Happening::DepotActivated,
        reason,
    );
    true
}

fn retire_slowest(
    state: &mut State,
    id: RequestId,
    left: Duration,
    sweep: &Sweep,
    out: &mut Outbox,
) {
    /// Time to go below which another plan is not worth its churn.
    const NEARLY_DONE: Duration = Duration::from_secs(60);
    let Some(request) = state.requests.get(&id) else {
        return;
    };
    let fed: Vec<usize> = decide::candidates::staging_lanes(state, request);
    let fed: Vec<usize> = fed
        .into_iter()
        .filter(|&lane| request.lanes[lane].is_active)
        .collect();
    let Some((&slowest, rest)) = fed.split_last() else {
        return;
    };
    let is_least = rest.len() < usize::from(request.spec.code.total());
    let can_go_alone = request.lead().is_some_and(|lane| {
        state::usable::is_there(state, request, lane) && request.uncommon.pinned.is_empty()
    }) && request.is_safe_whole();
    if is_least && !can_go_alone
        || !is_least && decide::room::needs_room_on_all(state, id, request, &fed)
    {
        return;
    }
    let route = if is_least {
        Route::Direct
    } else {
        Route::Staged
    };
    let uses = |lane| rest.contains(&lane);
    let load = forecast::completion::load(state, request, sweep.places(), route, uses);
    let finish = sweep.finish_slow(&load, state.now);
    let is_worth = request
        .finish
        .is_some_and(|finish| finish.p90 > state.now + NEARLY_DONE);
    let Some(finish) = finish.filter(|&finish| is_worth && finish.since(state.now) <= left * 3 / 4)
    else {
        return;
    };
    let deadline = request.spec.deadline;
    if is_least {
        let reason = Reason::DirectSuffices { finish, deadline };
        go_direct(state, id, reason, out);
        return;
    }
    let Some(request) = state.requests.get_mut(&id) else {
        return;
    };
    request.lanes[slowest].is_active = false;
    request.account.blame(Cause::Course, None);
    let (fan_out, depot) = (request.fan_out(), request.lanes[slowest].depot);
    let reason = Reason::Ahead {
        fan_out,
        finish,
        deadline,
    };
    apply::tell::tell(
        state,
        out,
        Some(id),
        Some(depot),
        Happening::DepotRetired,
        reason,
    );
}

/// Feeds depots as well, as the destination alone does not keep the deadline, or does not
/// answer.
fn stage_too(state: &mut State, id: RequestId, reason: Reason, sweep: &Sweep, out: &mut Outbox) {
    let Some(request) = state.requests.get(&id) else {
        return;
    };
    let lanes = decide::candidates::staging_lanes(state, request);
    let holders = state::failure_domain::holders_with(state, request, lanes.len());
    if holders < usize::from(request.spec.code.total()) || !request.is_spread() {
        return;
    }
    let active = decide::fan_out::fewest(state, id, lanes, sweep);
    let Some(request) = state.requests.get_mut(&id) else {
        return;
    };
    request.route = Route::Staged;
    for lane in active {
        request.lanes[lane].is_active = true;
    }
    request.account.blame(Cause::Course, None);
    request.replica.unpark();
    apply::stripes::refresh_stripes(state, id);
    apply::tell::tell(state, out, Some(id), None, Happening::Rerouted, reason);
}

/// Sends to the destination alone, as it suffices: fragments on their way to depots still
/// arrive.
fn go_direct(state: &mut State, id: RequestId, reason: Reason, out: &mut Outbox) {
    let Some(request) = state.requests.get_mut(&id) else {
        return;
    };
    request.route = Route::Direct;
    for lane in request.depot_lanes() {
        request.lanes[lane].is_active = false;
    }
    request.replica.unpark();
    apply::stripes::refresh_stripes(state, id);
    apply::tell::tell(state, out, Some(id), None, Happening::Rerouted, reason);
}

/// Feeds every pinned depot of a request that moves, whatever else is fed.
fn feed_pinned(state: &mut State, id: RequestId) {
    let Some(request) = state
        .requests
        .get(&id)
        .filter(|request| request.is_moving())
    else {
        return;
    };
    let lanes: Vec<usize> = pinned_of(request)
        .filter(|&lane| request.uncommon.drained >> lane & 1 == 0)
        .collect();
    if let Some(request) = state.requests.get_mut(&id) {
        for lane in lanes {
            if !core::mem::replace(&mut request.lanes[lane].is_active, true) {
                request.replica.unpark();
            }
        }
    }
}

/// Feeds a running request to one depot more if it would be late without the fastest that comes
/// and goes.
fn feed_spare(state: &mut State, id: RequestId, sweep: &Sweep, out: &mut Outbox) {
    let request = state.requests.get(&id);
    let Some(request) = request.filter(|request| !request.is_leftover) else {
        return;
    };
    let Some(lost) = decide::spares::fastest_shaky_fed(state, request) else {
        return;
    };
    let mut load =
        forecast::completion::load(state, request, sweep.places(), request.route, |lane| {
            request.lanes[lane].is_active && lane != lost
        });
    let goes_whole = request.lead() != Some(lost);
    load.whole = load.whole.filter(|_| goes_whole);
    let has_way = goes_whole || request.route == Route::Staged;
    let finish = sweep.finish_slow(&load, state.now).filter(|_| has_way);
    if finish.is_some_and(|finish| finish <= decide::spares::early(state, request)) {
        return;
    }
    match request.route {
        Route::Direct => {
            let reason = reason_late(request, state.now);
            stage_too(state, id, reason, sweep, out);
        }
        Route::Staged if decide::spares::has_spare(state, request) => {
            activate_next(state, id, reason_late, out);
        }
        Route::Staged => {}
    }
}
