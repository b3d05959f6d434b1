//! Removal from depots of what every destination has (`docs/algorithms/delivery.md`), so that
//! others get its space. Each depot gets orders until it reports that nothing is left, also after
//! an interruption.

use alloc::{string::String, vec::Vec};
use core::time::Duration;
use posthaste_types::{DepotId, RequestId};

use crate::{
    apply,
    contract::{Command, DeliveryReason, NearReason, Outbox, Reason, ReleasePolicy, RequestState},
    state,
    state::{Depot, Forget, Release, Request, State},
};

/// Time after which an unanswered order counts as lost.
const ANSWER_WAIT: Duration = Duration::from_secs(300);

/// Time before the order to a depot that did not comply is repeated: twice as long each time.
const TELL_AGAIN: Duration = Duration::from_secs(60);

/// Time before the order to a depot that is away is repeated.
const AWAY: Duration = Duration::from_secs(60);

/// Most orders without effect: the last two hours after the one before. Then its own expiry must
/// suffice.
const TOLD_MAX: u32 = 8;

/// Lets depots drop a delivered request, if delivery is known at each destination, unless its
/// user said how long to keep it.
pub(crate) fn begin_forgetting(state: &mut State, id: RequestId, reason: Reason) {
    let has_gone_on = state::onward::has_gone_on(state, id);
    let Some(request) = state.requests.get(&id) else {
        return;
    };
    let is_wanted = request.wishes.keep_until.is_some();
    let is_there = has_gone_on || request.replica.is_delivered();
    if !is_wanted && is_there {
        forget_delivered(state, id, reason);
    }
}

/// Orders depots to remove a request, once it is delivered and nothing is to be done with it
/// any more.
pub(crate) fn forget_delivered(state: &mut State, id: RequestId, reason: Reason) {
    let now = state.now;
    let has_gone_on = state::onward::has_gone_on(state, id);
    let Some(request) = state.requests.get_mut(&id) else {
        return;
    };
    let is_known = request.state == RequestState::Delivered;
    // A source that stays for good is no reason to keep at depots what is at its address.
    let is_through = match request.release {
        Release::Done | Release::Left => true,
        Release::Kept => has_gone_on,
        Release::Pending | Release::Commanded => false,
    };
    // Removing the source comes first: it is only done while all is safe.
    let is_leaving = request.spec.release == ReleasePolicy::WhenSafe && !is_through;
    if !is_known || is_leaving {
        return;
    }
    let until = now + request.keeps(now);
    let used = request.depot_lanes();
    let used: Vec<usize> = used.filter(|&lane| request.lanes[lane].is_used).collect();
    let mut depots = Vec::new();
    for lane in used {
        // The depot is asked for nothing any more, and nothing there counts.
        request.replica.replace(lane, &[]);
        let lane = &mut request.lanes[lane];
        (lane.is_used, lane.asked_at) = (false, None);
        depots.push(lane.depot);
    }
    let forget = Forget {
        destinations: request.whole_lanes().count_ones() + u32::from(has_gone_on),
        until,
        due: now,
        told: 0,
    };
    let is_only_copy = forget.destinations == 1 && request.release.is_over();
    for &depot in &depots {
        state.forgets.insert((id, depot), forget);
    }
    if let Ok(count) = u32::try_from(depots.len())
        && count > 0
    {
        // The code's promise ends here: from now on a loss there loses the data.
        let what = match is_only_copy {
            true => "depots evict its fragments, so the destination has the only copy",
            false => "depots evict its fragments",
        };
        state::memory::remember_of(state, id, String::new(), count, what.into(), reason);
    }
}

/// Tells depots to remove what is due.
pub(crate) fn tell_to_forget(state: &mut State, out: &mut Outbox) {
    let now = state.now;
    let next = |mind: &State| mind.forgets.next_due().filter(|(due, _)| *due <= now);
    while let Some((_, (request, at))) = next(state) {
        let Some(forget) = state.forgets.get((request, at)).copied() else {
            return;
        };
        let depot = state.depots.get(&at);
        // Data that was delivered and lost is rebuilt or sent again.
        let is_wanted = state.requests.get(&request);
        let is_wanted = is_wanted.is_some_and(|of| of.is_kept() && !of.is_final());
        if depot.is_none() || forget.until <= now {
            state.forgets.remove((request, at));
        } else if is_wanted {
            ask_again(state, request, at, forget, out);
        } else if !depot.is_some_and(Depot::is_up) {
            let due = now + AWAY;
            state
                .forgets
                .insert((request, at), Forget { due, ..forget });
        } else if forget.told >= TOLD_MAX {
            give_up_forgetting(state, request, at, forget.told);
        } else {
            let (due, told) = (now + ANSWER_WAIT, forget.told + 1);
            let next = Forget {
                due,
                told,
                ..forget
            };
            state.forgets.insert((request, at), next);
            out.commands.push(Command::Forget {
                request,
                depot: at,
                reason: reason(forget, state::stage_ins::is_stage_in(state, request)),
            });
        }
    }
}

/// Takes back the orders to remove a request that is wanted again: what depots still hold of it
/// helps to rebuild it. A depot that was told is asked once it has answered.
pub(crate) fn take_back_orders(state: &mut State, id: RequestId, out: &mut Outbox) {
    let orders: Vec<(DepotId, u32)> = state.forgets.of(id).collect();
    for (at, told) in orders {
        let Some(request) = state.requests.get_mut(&id) else {
            return;
        };
        if let Some(lane) = request.lane_of(at) {
            request.lanes[lane].is_used = true;
        }
        let forget = state.forgets.get((id, at)).copied();
        if let Some(forget) = forget.filter(|_| told == 0) {
            ask_again(state, id, at, forget, out);
        }
    }
}

/// Takes an order back, and asks the depot what it still holds; one that is away is asked once it
/// is back.
fn ask_again(state: &mut State, id: RequestId, at: DepotId, forget: Forget, out: &mut Outbox) {
    state.forgets.remove((id, at));
    if state.depots.get(&at).is_some_and(Depot::is_up) {
        apply::depots::ask_if_used(state, id, at, reason(forget, false), out);
    }
}

fn give_up_forgetting(state: &mut State, request: RequestId, at: DepotId, times: u32) {
    state.forgets.remove((request, at));
    let why = DeliveryReason::NotForgotten { times };
    let (name, what) = (
        state::names::name_of(state, at),
        "its fragments stay".into(),
    );
    state::memory::remember_of(state, request, name, 1, what, Reason::Delivery { why });
}

/// Records whether a depot removed what it held of a request.
pub(crate) fn on_forgotten(
    state: &mut State,
    request: RequestId,
    at: DepotId,
    done: bool,
    out: &mut Outbox,
) {
    let Some(forget) = state.forgets.get((request, at)).copied() else {
        return;
    };
    let is_open = |of: &Request| of.is_kept() && !of.is_final();
    if state.requests.get(&request).is_some_and(is_open) {
        // Data that came since may be gone too.
        ask_again(state, request, at, forget, out);
    } else if done {
        state.forgets.remove((request, at));
    } else {
        let due = state.now + TELL_AGAIN * (1 << forget.told.saturating_sub(1).min(TOLD_MAX));
        state
            .forgets
            .insert((request, at), Forget { due, ..forget });
    }
}

fn reason(forget: Forget, is_stage_in: bool) -> Reason {
    let destinations = forget.destinations;
    if destinations == 0 && !is_stage_in {
        return Reason::Asked;
    }
    if destinations == 0 {
        let why = NearReason::NotNeeded;
        return Reason::Near { why };
    }
    let why = DeliveryReason::WholeThere { destinations };
    Reason::Delivery { why }
}
