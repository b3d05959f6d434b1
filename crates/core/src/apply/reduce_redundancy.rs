//! Sends a late request with fewer parities.

use alloc::string::String;
use posthaste_types::RequestId;

use crate::{
    apply,
    contract::{Happening, Outbox, Reason},
    state,
    state::State,
};

/// Puts what suffices first for a request at risk. Returns whether that is new.
pub(crate) fn lighten(state: &mut State, id: RequestId) -> bool {
    let Some(request) = state.requests.get_mut(&id) else {
        return false;
    };
    let may = request.is_moving() && request.safe_at.is_none();
    let Some(light) = request.light().filter(|_| may) else {
        return false;
    };
    if request.replica.enough().is_some() {
        return false;
    }
    request.replica.set_enough(Some(u32::from(light.total())));
    keep_apart(state, id);
    apply::stripes::refresh_stripes(state, id);
    say_lighter(state, id);
    true
}

/// Bounds fragments in a failure domain by what the present code survives.
fn keep_apart(state: &mut State, id: RequestId) {
    let kin = state
        .requests
        .get(&id)
        .map(|request| state::failure_domain::kin(state, request));
    if let Some((request, kin)) = state.requests.get_mut(&id).zip(kin) {
        request.set_kin(kin);
    }
}

/// Records that less comes first, if it does.
pub(crate) fn say_lighter(state: &mut State, id: RequestId) {
    let Some(request) = state.requests.get(&id) else {
        return;
    };
    if let Some(losses) = request.losses_first() {
        let parity = u32::from(request.spec.code.parity());
        let reason = Reason::LessFirst { losses, parity };
        state::memory::remember(state, id, String::from("less redundancy first"), reason);
    }
}

/// Handles a request whose sufficient part is complete: its deadline is kept, and the rest of
/// its code follows, behind others. Returns whether it was so.
pub(crate) fn follow_up(state: &mut State, id: RequestId, out: &mut Outbox) -> bool {
    let now = state.now;
    let Some(request) = state.requests.get_mut(&id) else {
        return false;
    };
    let losses = request.losses_first().filter(|_| request.is_moving());
    let Some(losses) = losses else { return false };
    request.replica.set_enough(None);
    if request.replica.is_safe() {
        keep_apart(state, id);
        return false;
    }
    if request.safe_at.is_none() {
        request.account.close(now);
    }
    request.safe_at.get_or_insert(now);
    (request.at_risk, request.finish) = (false, None);
    request.go_last(state.shares.turn(request.wishes.claim(), &state.settings));
    let (bytes, parity) = (request.spec.bytes, u32::from(request.spec.code.parity()));
    keep_apart(state, id);
    apply::stripes::refresh_stripes(state, id);
    let reason = Reason::RestFollows { losses, parity };
    apply::tell::tell(
        state,
        out,
        Some(id),
        None,
        Happening::Safe { bytes },
        reason,
    );
    true
}
