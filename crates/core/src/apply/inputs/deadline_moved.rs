use alloc::string::String;
use posthaste_types::{RequestId, Timestamp};

use crate::{
    apply,
    contract::{Outbox, Reason},
    state,
    state::State,
};

/// Moves the deadline at a user's request: everything about it is judged anew.
pub(crate) fn on_deadline_moved(
    state: &mut State,
    id: RequestId,
    deadline: Timestamp,
    out: &mut Outbox,
) {
    if state::stage_ins::is_stage_in(state, id) {
        apply::stage_in::review::move_deadline_of_arrival(state, id, deadline, out);
        return;
    }
    rebind(
        state,
        id,
        Some(deadline),
        None,
        "deadline moved".into(),
        out,
    );
}

/// Sets when the source is to be purged, as if the deadline were moved.
pub(crate) fn on_purge_moved(
    state: &mut State,
    id: RequestId,
    purge_at: Option<Timestamp>,
    out: &mut Outbox,
) {
    rebind(state, id, None, Some(purge_at), "purge moved".into(), out);
}

/// Sets when a rule of the site purges the source. If that is known already, only the reason is
/// new.
pub(crate) fn on_purge_foreseen(
    state: &mut State,
    id: RequestId,
    purge_at: Option<Timestamp>,
    rule: String,
    out: &mut Outbox,
) {
    let Some(known) = state
        .requests
        .get(&id)
        .map(|request| request.uncommon.purge_at)
    else {
        return;
    };
    let reason = Reason::Foreseen { purge_at, rule };
    state::memory::remember(state, id, "purge foreseen".into(), reason);
    if known != purge_at {
        on_purge_moved(state, id, purge_at, out);
    }
}

/// Sets another deadline, or another purge; without one it stays as it is.
fn rebind(
    state: &mut State,
    id: RequestId,
    wished: Option<Timestamp>,
    purge_at: Option<Option<Timestamp>>,
    what: String,
    out: &mut Outbox,
) {
    let now = state.now;
    if let Some(mut held) = apply::plan_over_time::hold::release_held(state, id) {
        let wished = wished.unwrap_or(held.wished_deadline);
        held.bind(wished, purge_at.unwrap_or(held.uncommon.purge_at));
        return apply::admission::answer(state, id, held, true, out);
    }
    let request = state.requests.get_mut(&id);
    let Some(request) = request.filter(|request| !request.is_final()) else {
        return;
    };
    let from = request.spec.deadline;
    let wished = wished.unwrap_or(request.wished_deadline);
    let purge_at = purge_at.unwrap_or(request.uncommon.purge_at);
    if !request.is_moving() {
        // A safe request has kept its deadline; a purge still bounds the time for its repair.
        request.uncommon.purge_at = purge_at;
        return;
    }
    request.bind(wished, purge_at);
    let to = request.spec.deadline;
    if to > now {
        request.missed = false;
        request.take_turn();
    }
    let is_late = request.finish.is_some_and(|finish| finish.p90 > to);
    let is_at_risk = request.at_risk;
    state::memory::remember(state, id, what, Reason::NewDeadline { from, to });
    apply::binding::remember_binding(state, id);
    if is_late && !is_at_risk {
        apply::risk::say_at_risk(state, id, out);
    }
    apply::plan_over_time::follow::unplan(state);
    state::wake::look_now(state);
}
