//! Marks a request as safe or delivered, and releases its source.

use alloc::vec::Vec;
use posthaste_types::{DepotId, RequestId};

use crate::{
    apply,
    contract::{Command, Happening, Outbox, Reason, ReleasePolicy, RequestState},
    state,
    state::{Release, State},
};

/// Reports what became true of the whole dataset.
pub(crate) fn settle(state: &mut State, id: RequestId, out: &mut Outbox) {
    let now = state.now;
    let Some(request) = state.requests.get_mut(&id) else {
        return;
    };
    // A depot that is being asked what it holds may hold less than is believed.
    let is_asking = request.is_asking();
    if is_asking || !request.replica.is_safe() {
        return;
    }
    if apply::reduce_redundancy::follow_up(state, id, out) {
        return;
    }
    let Some(request) = state.requests.get_mut(&id) else {
        return;
    };
    if request.is_lazy() {
        request.replica.be_lazy();
    }
    let reason = request.reason_safe();
    if request.state == RequestState::Moving {
        request.state = if request.release.is_over() {
            RequestState::Released
        } else {
            RequestState::Safe
        };
        if request.safe_at.is_none() {
            request.account.close(now);
        }
        request.safe_at.get_or_insert(now);
        request.at_risk = false;
        request.finish = None;
        let bytes = request.spec.bytes;
        apply::tell::tell(
            state,
            out,
            Some(id),
            None,
            Happening::Safe { bytes },
            reason,
        );
    } else if core::mem::take(&mut request.is_thin) {
        let bytes = request.spec.bytes;
        apply::tell::tell(
            state,
            out,
            Some(id),
            None,
            Happening::Safe { bytes },
            reason,
        );
    }
    release_if_safe(state, id, out);
    deliver_if_there(state, id, out);
}

/// Commands the release of the source once: when it was asked for, and exactly while it is
/// safe. What depots keep no longer is not.
pub(crate) fn release_if_safe(state: &mut State, id: RequestId, out: &mut Outbox) {
    let now = state.now;
    let Some(request) = state.requests.get_mut(&id) else {
        return;
    };
    let is_certain = match request.state {
        RequestState::Delivered => true,
        RequestState::Safe => {
            request.replica.is_safe() && !request.is_asking() && !request.is_expired(now)
        }
        RequestState::Refused
        | RequestState::Moving
        | RequestState::Released
        | RequestState::Cancelled
        | RequestState::Failed => false,
    };
    let is_wanted =
        request.spec.release == ReleasePolicy::WhenSafe && request.release == Release::Pending;
    let is_wanted = is_wanted && !request.is_paused();
    let is_wanted = is_wanted && request.uncommon.release_at.is_none_or(|at| at <= now);
    if is_certain && is_wanted {
        if asks_before_release(state, id, out) {
            return;
        }
        let Some(request) = state.requests.get_mut(&id) else {
            return;
        };
        (request.release, request.uncommon.release_at) = (Release::Commanded, None);
        let reason = request.reason_safe();
        state::memory::remember(
            state,
            id,
            alloc::string::String::from("scratch is to be released"),
            reason.clone(),
        );
        out.commands.push(Command::Release {
            request: id,
            reason,
        });
    }
}

/// Asks each depot that counts what it holds, once before a source is removed for good:
/// fragments there may be lost since. Returns whether an answer is out.
fn asks_before_release(state: &mut State, id: RequestId, out: &mut Outbox) -> bool {
    let Some(request) = state.requests.get_mut(&id) else {
        return false;
    };
    let is_delivered = request.state == RequestState::Delivered;
    if is_delivered || core::mem::replace(&mut request.uncommon.has_asked_all, true) {
        return false;
    }
    let reason = request.reason_safe();
    let used = request.lanes.iter().filter(|lane| lane.is_used);
    let used: Vec<DepotId> = used.map(|lane| lane.depot).collect();
    let is_up = |depot: &DepotId| state.depots.get(depot).is_some_and(|depot| depot.is_up());
    let depots: Vec<DepotId> = used.into_iter().filter(is_up).collect();
    for depot in &depots {
        apply::depots::ask_if_used(state, id, *depot, reason.clone(), out);
    }
    !depots.is_empty()
}

/// Marks it as delivered once the last chunk is stored at the last destination.
pub(crate) fn deliver_if_there(state: &mut State, id: RequestId, out: &mut Outbox) {
    let now = state.now;
    let Some(request) = state.requests.get_mut(&id) else {
        return;
    };
    let is_whole = request.lead().is_some() && request.is_whole();
    request.due.whole_at = is_whole.then(|| request.due.whole_at.unwrap_or(now));
    let waits = request.spec.release == ReleasePolicy::WhenSafe
        && matches!(request.release, Release::Pending | Release::Commanded);
    let is_due = matches!(request.state, RequestState::Safe | RequestState::Released);
    if is_due && !waits && request.replica.is_delivered() {
        let reason = request.reason_whole(now);
        end_delivered(state, id, reason, out);
    }
}

/// Ends a request whose recipient has everything: nothing more needs to be sent.
pub(crate) fn end_delivered(state: &mut State, id: RequestId, reason: Reason, out: &mut Outbox) {
    let now = state.now;
    let Some(request) = state.requests.get(&id) else {
        return;
    };
    if !request.is_kept() || request.state == RequestState::Delivered {
        return;
    }
    apply::flights::abandon_all(state, id, &reason, out);
    let Some(request) = state.requests.get_mut(&id) else {
        return;
    };
    request.stripes.clear();
    (request.push, request.delivery, request.mend) = (None, None, None);
    request.at_risk = false;
    request.finish = None;
    (request.due.at_risk, request.due.finish) = (false, None);
    if request.safe_at.is_none() {
        request.account.close(now);
    }
    request.safe_at.get_or_insert(now);
    request.state = RequestState::Delivered;
    apply::tell::tell(
        state,
        out,
        Some(id),
        None,
        Happening::Delivered,
        reason.clone(),
    );
    release_if_safe(state, id, out);
    apply::forget::begin_forgetting(state, id, reason);
}
