//! Says when a delivery is at risk, late, or there.

use posthaste_types::RequestId;

use crate::{
    apply,
    contract::{DeliveryReason, Happening, Outbox, Reason},
    decide,
    decide::delivery::promise::GRACE_MAX,
    state::State,
};

/// Reviews deliveries at a tick: their forecasts, and the reports these need.
pub(crate) fn review_deliveries(state: &mut State, out: &mut Outbox) {
    apply::delivery::outlook::look_at_deliveries(state);
    for id in state.index.due().clone() {
        review_delivery(state, id, out);
    }
}

fn review_delivery(state: &mut State, id: RequestId, out: &mut Outbox) {
    let settings = (state.settings.behind_ticks, state.settings.recovered_ticks);
    let (now, Some(request)) = (state.now, state.requests.get_mut(&id)) else {
        return;
    };
    let (Some(by), submitted) = (request.deliver_by(), request.submitted) else {
        return;
    };
    let is_whole = request.is_whole();
    let due = &mut request.due;
    if due.missed {
        return;
    }
    due.whole_at = is_whole.then(|| due.whole_at.unwrap_or(now));
    let finish = if is_whole {
        due.whole_at
    } else {
        due.finish.map(|finish| finish.p90)
    };
    let is_late = finish.is_none_or(|finish| finish > by);
    let is_clear = finish.is_some_and(|finish| finish + by.since(now) / 20 <= by);
    due.late_ticks = if is_late {
        due.late_ticks.saturating_add(1)
    } else {
        0
    };
    due.on_time_ticks = if is_clear {
        due.on_time_ticks.saturating_add(1)
    } else {
        0
    };
    let grace = (by.since(submitted) / 10).min(GRACE_MAX);
    if !due.at_risk && due.late_ticks >= settings.0 && now >= submitted + grace {
        say_delivery_at_risk(state, id, out);
    } else if due.at_risk && due.on_time_ticks >= settings.1 {
        due.at_risk = false;
        let finish = finish.unwrap_or(by);
        let reason = Reason::Delivery {
            why: DeliveryReason::Suffices {
                finish,
                deliver_by: by,
            },
        };
        apply::tell::tell(
            state,
            out,
            Some(id),
            None,
            Happening::DeliveryOnTime { finish },
            reason,
        );
    }
}

/// Reports that it may come too late, and the obstacle.
pub(crate) fn say_delivery_at_risk(state: &mut State, id: RequestId, out: &mut Outbox) {
    let now = state.now;
    let Some(request) = state.requests.get_mut(&id) else {
        return;
    };
    (request.due.at_risk, request.due.on_time_ticks) = (true, 0);
    let finish = request.due.finish;
    let finish = finish.map_or(Happening::NO_FINISH, |finish| finish.p90.max(now));
    if let Some(reason) = decide::delivery::promise::reason_undelivered(state, id) {
        apply::tell::tell(
            state,
            out,
            Some(id),
            None,
            Happening::DeliveryAtRisk { finish },
            reason,
        );
    }
}

/// Reports danger at the last call, and a missed deliver-by. Never silent.
pub(crate) fn call_deliveries(state: &mut State, called: &[RequestId], out: &mut Outbox) {
    let now = state.now;
    for &id in called {
        let Some(request) = state.requests.get_mut(&id) else {
            continue;
        };
        let Some(by) = request.deliver_by().filter(|_| !request.due.missed) else {
            continue;
        };
        if request.is_whole() {
            request.due.whole_at.get_or_insert(now);
            continue;
        }
        request.due.whole_at = None;
        let calls_at = (by - state.settings.tick).max(request.submitted);
        if !request.due.at_risk && calls_at <= now {
            say_delivery_at_risk(state, id, out);
        }
        if by <= now
            && let Some(reason) = decide::delivery::promise::reason_undelivered(state, id)
            && let Some(request) = state.requests.get_mut(&id)
        {
            (request.due.missed, request.due.safe_by) = (true, None);
            apply::tell::tell(
                state,
                out,
                Some(id),
                None,
                Happening::DeliveryMissed,
                reason,
            );
        }
    }
}
