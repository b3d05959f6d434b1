use alloc::vec::Vec;
use posthaste_types::{ChunkIndex, DepotId, FragmentIndex, RequestId};

use crate::{
    apply,
    contract::{Outbox, Reason, RequestState},
    decide, state,
    state::{Release, State},
};

/// Replaces what a depot holds by its report.
pub(crate) fn on_depot_inventory(
    state: &mut State,
    depot: DepotId,
    id: RequestId,
    held: &[(ChunkIndex, FragmentIndex)],
    out: &mut Outbox,
) {
    if state::stage_ins::is_stage_in(state, id) {
        return apply::stage_in::near::found_near(state, id, depot, held);
    }
    let held = &decide::faults::without_renewed(state, id, depot, held)[..];
    let is_up = state.depots.get(&depot).is_some_and(|depot| depot.is_up());
    let Some(request) = state.requests.get_mut(&id) else {
        return;
    };
    // An answer that is no longer awaited is older than what was stored since.
    let Some(lane) = request
        .lane_of(depot)
        .filter(|&lane| is_up && request.is_kept() && request.lanes[lane].asked_at.is_some())
    else {
        return;
    };
    request.lanes[lane].asked_at = None;
    let since = match request.uncommon.stored_since_asked.is_empty() {
        true => None,
        false => request.uncommon.stored_since_asked.remove(&depot),
    };
    let held = [held, &since.unwrap_or_default()[..]].concat();
    let before = request.replica.stored(lane).0;
    let lost = request.replica.replace(lane, &held);
    let has_all = request.replica.stored(lane).0 >= before;
    if !has_all {
        request.uncommon.has_asked_all = false;
    }
    let open: Vec<ChunkIndex> = request.stripes.keys().copied().collect();
    for chunk in open {
        request.replica.open(chunk);
    }
    apply::redundancy::judge_loss(state, depot, has_all);
    let lost = match !has_all && reopen_delivered(state, id, lane, out) {
        true => decide::inventory::lacks(state, id),
        false => lost,
    };
    apply::stripes::refresh_stripes(state, id);
    apply::push::offers::reset_push(state, id);
    apply::losses::say_lost(state, id, lost, Reason::Repair { lost: depot }, out);
    apply::settle::settle(state, id, out);
    state::wake::look_now(state);
}

/// Reopens a request of which a destination lost some: it is delivered no more. As long as the
/// source is there it is sent again, otherwise rebuilt from what others hold. Returns whether
/// that is so.
fn reopen_delivered(state: &mut State, id: RequestId, lane: usize, out: &mut Outbox) -> bool {
    let now = state.now;
    let Some(request) = state.requests.get_mut(&id) else {
        return false;
    };
    let was_there = request.state == RequestState::Delivered && request.due.whole_at.is_some();
    // Data past its keeping time is no loss.
    if !was_there || !request.is_destination(lane) || request.keeps(now).is_zero() {
        return false;
    }
    request.state = match request.release {
        Release::Done | Release::Left => RequestState::Released,
        Release::Pending | Release::Commanded | Release::Kept => RequestState::Safe,
    };
    request.due.whole_at = None;
    request.uncommon.last_lost = Some(request.lanes[lane].depot);
    apply::forget::take_back_orders(state, id, out);
    apply::delivery::begin_delivery(state, id);
    true
}
