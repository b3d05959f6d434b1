use alloc::string::String;
use posthaste_types::RequestId;

use crate::{
    apply,
    contract::{ArrivalState, Happening, Outbox, Pause, Reason},
    state,
    state::State,
};

/// Pauses a running request at a user's request. Sends of the centre end now; fetches and
/// pushes between depots end by themselves, a few chunks each. Stored data stays, and so does
/// the deadline. Repair goes on if its source is gone: that can't wait.
pub(crate) fn on_paused(state: &mut State, id: RequestId, by: String, out: &mut Outbox) {
    let since = state.now;
    let pause = Pause { by, since };
    let reason = Reason::Paused {
        by: pause.by.clone(),
        since,
    };
    if let Some(arrival) = state.arrivals.requests.get_mut(&id) {
        let may = arrival.state.is_live() && arrival.state != ArrivalState::Landing;
        if !may || arrival.is_paused() {
            return;
        }
        arrival.paused = Some(pause);
        apply::tell::tell(state, out, Some(id), None, Happening::Paused, reason);
        state::wake::look_at_arrivals_now(state);
        return;
    }
    if let Some(held) = apply::plan_over_time::hold::held_mut(state, id) {
        if held.uncommon.paused.is_none() {
            held.uncommon.paused = Some(pause);
            apply::tell::tell(state, out, Some(id), None, Happening::Paused, reason);
        }
        return;
    }
    let request = state.requests.get_mut(&id);
    let Some(request) = request.filter(|request| !request.is_final() && !request.is_paused())
    else {
        return;
    };
    request.uncommon.paused = Some(pause);
    for lane in &mut request.lanes {
        lane.kept = 0;
    }
    apply::flights::abandon_sends(state, id, &reason, out);
    apply::tell::tell(state, out, Some(id), None, Happening::Paused, reason);
    apply::plan_over_time::follow::unplan(state);
    state::wake::look_now(state);
}

/// Resumes a request at a user's request: everything about it is judged anew.
pub(crate) fn on_resumed(state: &mut State, id: RequestId, by: String, out: &mut Outbox) {
    if let Some(arrival) = state.arrivals.requests.get_mut(&id) {
        if let Some(pause) = arrival.paused.take().filter(|_| arrival.state.is_live()) {
            say_resumed(state, id, by, &pause, out);
            state::wake::look_at_arrivals_now(state);
        }
        return;
    }
    let held = apply::plan_over_time::hold::held_mut(state, id);
    if let Some(pause) = held.and_then(|held| held.uncommon.paused.take()) {
        say_resumed(state, id, by, &pause, out);
        return;
    }
    let request = state.requests.get_mut(&id);
    let Some(request) = request.filter(|request| request.is_paused()) else {
        return;
    };
    let Some(pause) = request.uncommon.paused.take() else {
        return;
    };
    request.replica.unpark();
    say_resumed(state, id, by, &pause, out);
    apply::stripes::refresh_stripes(state, id);
    state.pushes.offer(id);
    apply::settle::settle(state, id, out);
    apply::plan_over_time::follow::unplan(state);
    state::wake::look_now(state);
}

fn say_resumed(state: &mut State, id: RequestId, by: String, pause: &Pause, out: &mut Outbox) {
    let since = pause.since;
    let reason = Reason::Resumed { by, since };
    apply::tell::tell(state, out, Some(id), None, Happening::Resumed, reason);
}
