//! Feeds depots that the user named, and lets go of those that fail.

use posthaste_types::{DepotId, RequestId};

use crate::{
    apply,
    contract::{Happening, Outbox, PinReason, Reason},
    decide,
    decide::pins::pinned_of,
    state,
    state::State,
};

/// Re-evaluates why pinned depots can't accept what they lack, and records a new reason.
pub(crate) fn review_pins(state: &mut State, id: RequestId) {
    let Some(request) = state.requests.get(&id) else {
        return;
    };
    if request.uncommon.pinned.is_empty() || !request.is_moving() {
        return;
    }
    let lacks = |lane: &usize| request.replica.room_count(*lane) > 0;
    let trouble = pinned_of(request)
        .filter(lacks)
        .find_map(|lane| decide::pins::find_pin_trouble(state, Some(id), request, lane));
    let is_new = match (&trouble, &request.uncommon.pin_trouble) {
        (Some(now), Some(before)) => {
            core::mem::discriminant(now) != core::mem::discriminant(before)
        }
        (now, before) => now.is_some() != before.is_some(),
    };
    let said = trouble.clone().filter(|_| is_new);
    if let Some(request) = state.requests.get_mut(&id) {
        request.uncommon.pin_trouble = trouble;
    }
    if let Some(why) = said {
        state::memory::remember(
            state,
            id,
            "waits for a pinned depot".into(),
            Reason::Pinned { why },
        );
    }
}

/// Removes pins to a depot that is gone for good, and reports that.
pub(crate) fn unpin(state: &mut State, depot: DepotId, out: &mut Outbox) {
    let name = state::names::name_of(state, depot);
    for id in state.index.users(depot) {
        let request = state.requests.get_mut(&id);
        if !request.is_some_and(|request| request.is_kept() && request.unpin(depot)) {
            continue;
        }
        apply::failure_domain::sort_by_domain(state, id);
        apply::stripes::refresh_stripes(state, id);
        let why = PinReason::Removed { name: name.clone() };
        let reason = Reason::Pinned { why };
        apply::tell::tell(
            state,
            out,
            Some(id),
            Some(depot),
            Happening::Unpinned,
            reason,
        );
        apply::fan_out::fill_fan_out(state, id, out);
        apply::settle::settle(state, id, out);
    }
}
