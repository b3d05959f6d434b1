//! Says when a request is at risk, and when it no longer is.

use core::time::Duration;
use posthaste_types::RequestId;

use crate::{
    apply,
    contract::{Happening, Outbox, Reason},
    decide,
    state::State,
};

pub(crate) fn review_risk(state: &mut State, id: RequestId, out: &mut Outbox) {
    const GRACE_MAX: Duration = Duration::from_secs(3);
    let settings = (state.settings.behind_ticks, state.settings.recovered_ticks);
    let (now, Some(request)) = (state.now, state.requests.get_mut(&id)) else {
        return;
    };
    if !request.is_moving() {
        return;
    }
    if request.missed {
        // Nothing more is reported of it, but another way may still end it sooner.
        request.late_ticks = request.late_ticks.saturating_add(1);
        return;
    }
    let deadline = request.spec.deadline;
    let finish = request.finish.map(|finish| finish.p90);
    let grace = (deadline.since(request.submitted) / 10).min(GRACE_MAX);
    let is_late = finish.is_none_or(|finish| finish > deadline);
    let is_clear = finish
        .is_some_and(|finish| finish + deadline.since(now) / 20 <= deadline && finish <= deadline);
    request.late_ticks = if is_late { request.late_ticks + 1 } else { 0 };
    request.on_time_ticks = if is_clear {
        request.on_time_ticks + 1
    } else {
        0
    };
    if !request.at_risk && request.late_ticks >= settings.0 && now >= request.submitted + grace {
        // Once the sufficient part is there, the rest follows when it can.
        if request.safe_at.is_some() && request.survives_what_suffices() {
            request.late_ticks = 0;
        } else {
            say_at_risk(state, id, out);
        }
    } else if request.at_risk && request.on_time_ticks >= settings.1 {
        request.at_risk = false;
        let finish = finish.unwrap_or(deadline);
        let reason = Reason::Ahead {
            fan_out: request.fan_out(),
            finish,
            deadline,
        };
        apply::tell::tell(
            state,
            out,
            Some(id),
            None,
            Happening::OnTime { finish },
            reason,
        );
    }
}

pub(crate) fn say_at_risk(state: &mut State, id: RequestId, out: &mut Outbox) {
    let now = state.now;
    let Some(request) = state.requests.get_mut(&id) else {
        return;
    };
    request.at_risk = true;
    request.on_time_ticks = 0;
    let finish = request
        .finish
        .map_or(Happening::NO_FINISH, |finish| finish.p90.max(now));
    let Some(reason) = decide::review::find_why_late(state, id) else {
        return;
    };
    apply::tell::tell(
        state,
        out,
        Some(id),
        None,
        Happening::AtRisk { finish },
        reason,
    );
    if apply::reduce_redundancy::lighten(state, id) {
        // The sufficient part may be there already, and nothing else would report that.
        apply::settle::settle(state, id, out);
    }
}
