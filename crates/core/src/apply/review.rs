//! Looks at everything that time changed: deadlines, stalls, and requests without hope.

use alloc::vec::Vec;
use posthaste_types::RequestId;

use crate::{
    apply,
    contract::{Command, Fault, Happening, Outbox, Reason},
    decide, forecast, state,
    state::completion::{SLICE, SLICE_PAUSE, Sweep},
    state::{Request, State, Urgency},
};

/// Handles the passage of time: depots are accepted again, deadlines are reported, and a tick
/// begins a look at everything.
pub(crate) fn on_time(state: &mut State, out: &mut Outbox) {
    for id in state.index.timed(state.now) {
        // A depot whose rest is over is touched, and so looked at.
        state.depots.touch(id);
        apply::inputs::depot_up::take_back_depot(state, id, out);
        apply::depots::keep_hours(state, id, out);
        apply::drains::count_left(state, id, out);
    }
    for id in state.index.resumed(state.now) {
        state.requests.touch(id);
        apply::settle::release_if_safe(state, id, out);
    }
    let is_tick = state.tick_at.is_some_and(|tick_at| tick_at <= state.now);
    if is_tick {
        state.tick_at = None;
        apply::inputs::throughput::settle_way_out(state, out);
        // This touches every depot: once a tick all are tried, whatever is thought to have
        // changed.
        apply::completion::look_at_links(state);
        apply::spares::judge_rest(state);
        debug_assert!(
            decide::review::is_balanced(state),
            "flights, lanes and links differ"
        );
        find_stalled(state, out);
        apply::dispatch::recall::recall_waiting(state, out);
        ask_again(state, out);
        apply::probing::probe_asked(state, out);
        apply::push::review_pushes(state, out);
        apply::reindex::bring_up_to_date(state);
        state::wake::set_tick(state);
        if state.sweep.is_none() && !state.index.is_idle() {
            state.shares.settle(state.now, &state.settings);
            state.sweep = Some(forecast::completion::begin_sweep(state));
        }
    }
    if let Some(sweep) = state.sweep.take_if(|sweep| sweep.goes_on <= state.now) {
        sweep_on(state, sweep, out);
    }
    if is_tick {
        apply::delivery::promise::review_deliveries(state, out);
    }
    call_deadlines(state, out);
    apply::circuits::call_circuits(state, out);
    apply::plan_over_time::answer::give_up_plan(state, out);
}

/// Looks at the next requests of a sweep: when each will be done, and what to change about it.
fn sweep_on(state: &mut State, mut sweep: Sweep, out: &mut Outbox) {
    for _ in 0..SLICE {
        let Some(urgency) = forecast::completion::next_in(state, &sweep) else {
            apply::completion::end_sweep(state, sweep);
            apply::demote::review_order(state);
            apply::plan_over_time::review_plan(state, out);
            return;
        };
        let id = urgency.request;
        if takes_later_turn(state, id, urgency) {
            continue;
        }
        if state.requests.get(&id).is_some_and(Request::is_paused) {
            // Its finish is reported as if it resumed, and takes nothing.
            let fares = apply::completion::look_at(state, &mut sweep, id);
            apply::risk::review_risk(state, id, out);
            forecast::completion::pass(state, &mut sweep, urgency, fares.as_ref());
            continue;
        }
        apply::budget::review_purse(state, id);
        apply::pins::review_pins(state, id);
        let fares = apply::completion::look_at(state, &mut sweep, id);
        give_up_if_hopeless(state, id, out);
        apply::risk::review_risk(state, id, out);
        apply::circuits::review_reservations(state, id, &sweep, out);
        apply::fan_out::review_fan_out(state, id, &sweep, out);
        apply::spaces::review_space(state, id, out);
        apply::tuning::review_tuning(state, id);
        apply::dispatch::endgame::send_duplicates(state, id, out);
        apply::probing::probe_for(state, id, out);
        apply::routes::try_way_for(state, id, out);
        forecast::completion::pass(state, &mut sweep, urgency, fares.as_ref());
    }
    sweep.goes_on = state.now + SLICE_PAUSE;
    state.sweep = Some(sweep);
}

/// Updates the turn of a request that can't be on time. Returns whether it comes later now.
fn takes_later_turn(state: &mut State, id: RequestId, before: Urgency) -> bool {
    let request = state.requests.get(&id);
    let Some(request) = request.filter(|request| request.is_leftover) else {
        return false;
    };
    let turn = state.shares.turn(request.wishes.claim(), &state.settings);
    if turn == request.uncommon.turn {
        return false;
    }
    if let Some(request) = state.requests.get_mut(&id) {
        request.uncommon.turn = turn;
    }
    apply::reindex::bring_up_to_date(state);
    Urgency { turn, ..before } > before
}

/// Reports danger at the last call and a miss at the deadline. Never silent.
fn call_deadlines(state: &mut State, out: &mut Outbox) {
    apply::reindex::bring_up_to_date(state);
    let now = state.now;
    let called = state.index.called(now);
    apply::delivery::promise::call_deliveries(state, &called, out);
    for id in called {
        let Some(request) = state
            .requests
            .get(&id)
            .filter(|request| request.is_moving())
        else {
            continue;
        };
        let deadline = request.spec.deadline;
        if !request.at_risk
            && request.safe_at.is_none()
            && decide::wants::last_call(state, request) <= now
        {
            apply::risk::say_at_risk(state, id, out);
        }
        let Some(request) = state.requests.get_mut(&id) else {
            continue;
        };
        if request.missed || deadline > now {
            continue;
        }
        request.missed = true;
        if request.safe_at.is_none() {
            request.go_last(state.shares.turn(request.wishes.claim(), &state.settings));
            if let Some(reason) = decide::review::find_why_late(state, id) {
                apply::tell::tell(state, out, Some(id), None, Happening::Missed, reason);
            }
        }
    }
}

/// Declares depots lost that have fragments in flight without progress.
fn find_stalled(state: &mut State, out: &mut Outbox) {
    let stalled: Vec<_> = state
        .depots
        .iter()
        .filter(|(_, depot)| {
            depot.is_up()
                && depot.link.flights > 0
                && depot.link.progress_at + state.settings.stall <= state.now
        })
        .map(|(id, _)| *id)
        .collect();
    for depot in stalled {
        let fault = Fault::Unreachable;
        apply::losses::lose_to_failures(state, depot, Reason::DepotLost { fault }, fault, out);
    }
}

/// Asks again for an inventory that was not answered.
fn ask_again(state: &mut State, out: &mut Outbox) {
    let (now, wait) = (state.now, state.settings.inventory_wait);
    for id in state.index.asking().clone() {
        let Some(request) = state.requests.get_mut(&id) else {
            continue;
        };
        let reason = request.reason_to_ask(Reason::DepotBack);
        for lane in &mut request.lanes {
            if let Some(asked_at) = &mut lane.asked_at
                && *asked_at + wait <= now
            {
                *asked_at = now;
                let reason = reason.clone();
                out.commands.push(Command::Inventory {
                    request: id,
                    depot: lane.depot,
                    reason,
                });
            }
        }
    }
}

/// Ends a request that no depot can ever serve: too many failed for good.
fn give_up_if_hopeless(state: &mut State, id: RequestId, out: &mut Outbox) {
    let Some(request) = state.requests.get(&id) else {
        return;
    };
    let most = state.settings.fruitless_max;
    let has_hope = |lane: usize| {
        let depot = state.depots.get(&request.lanes[lane].depot);
        depot.is_some_and(|depot| depot.fruitless < most)
    };
    let staged = request.depot_lanes().filter(|&lane| has_hope(lane));
    let can_stage = staged.count() >= usize::from(request.spec.code.total());
    if can_stage || request.destinations().any(has_hope) {
        return;
    }
    let fault = request
        .stripes
        .values()
        .find_map(|stripe| stripe.last_fault);
    let fault = fault.unwrap_or(Fault::Unreachable);
    apply::ending::fail(
        state,
        id,
        Reason::GaveUp {
            fault,
            attempts: most,
        },
        out,
    );
}
