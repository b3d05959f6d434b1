//! Moves fragments off depots that are drained, and counts what is left.

use core::time::Duration;
use posthaste_types::{DepotId, RequestId};

use crate::{
    apply,
    contract::{Cause, Drain, DrainReason, Happening, Outbox, Reason},
    decide, state,
    state::{Depot, State},
};

/// Interval between counts of what lies only at a drained depot: each visits all of its chunks.
const COUNT_EVERY: Duration = Duration::from_secs(10);

/// Applies a drain to one request.
pub(crate) fn drain_for(
    state: &mut State,
    id: RequestId,
    depot: DepotId,
    happening: &Happening,
    reason: &Reason,
    out: &mut Outbox,
) {
    let Some(request) = state.requests.get(&id) else {
        return;
    };
    let Some(lane) = request.lane_of(depot) else {
        return;
    };
    let drained = decide::drain::drained_lanes(state, request);
    let is_fed = request.is_moving() && request.lanes[lane].is_active;
    let is_concerned = is_fed || request.lanes[lane].is_used;
    let is_drained = drained >> lane & 1 == 1;
    let Some(request) = state.requests.get_mut(&id) else {
        return;
    };
    request.uncommon.drained = drained;
    if is_drained {
        request.lanes[lane].is_active = false;
    }
    request.replica.unpark();
    if is_concerned {
        let reason = match is_drained || *happening == Happening::DepotUndrained {
            true => reason.clone(),
            false => Reason::Drained {
                why: DrainReason::IsDestination,
            },
        };
        state::memory::remember_depot(state, id, depot, happening.clone(), reason, 0);
        state::memory::blame_for(state, id, Cause::Course, Some(depot));
    }
    apply::failure_domain::sort_by_domain(state, id);
    apply::push::offers::sort_by_level(state, id);
    apply::stripes::refresh_stripes(state, id);
    apply::fan_out::fill_fan_out(state, id, out);
}

/// Records which depots a newcomer does not get because they are drained, for `explain`.
pub(crate) fn remember_drained(state: &mut State, id: RequestId) {
    let Some(request) = state.requests.get(&id) else {
        return;
    };
    let drained = request.uncommon.drained;
    let lanes = request.lanes.iter().enumerate();
    let lanes = lanes.filter(|&(lane, _)| drained >> lane & 1 == 1);
    let all: alloc::vec::Vec<_> = lanes
        .filter_map(|(_, lane)| {
            let depot = state.depots.get(&lane.depot)?;
            let (drain, is_own) = (depot.drain(), depot.drain_asked == Drain::Off);
            Some((depot.name.clone(), DrainReason::Begun { drain, is_own }))
        })
        .collect();
    for (name, why) in all {
        state::memory::remember_of(
            state,
            id,
            name,
            0,
            "not used".into(),
            Reason::Drained { why },
        );
    }
}

/// Counts what lies only at a drained depot, and reports once that is nothing.
pub(crate) fn count_left(state: &mut State, id: DepotId, out: &mut Outbox) {
    let now = state.now;
    let is_due = |depot: &Depot| depot.counts_at.is_some_and(|at| at <= now);
    if !state.depots.get(&id).is_some_and(is_due) {
        return;
    }
    apply::reindex::bring_up_to_date(state);
    let left = state.index.users(id).into_iter();
    let left = left.filter_map(|request| state.requests.get(&request));
    let left: u64 = left
        .map(|request| decide::drain::only_at(state, request, id))
        .sum();
    let under_way = decide::drain::under_way_to(state, id);
    let Some(depot) = state.depots.get_mut(&id) else {
        return;
    };
    depot.only_here = Some(left);
    depot.counts_at = Some(now + COUNT_EVERY);
    let is_empty = left == 0 && under_way == 0;
    let was_empty = core::mem::replace(&mut depot.is_said_empty, is_empty);
    if is_empty && !was_empty {
        let why = DrainReason::NothingOnlyThere;
        let reason = Reason::Drained { why };
        apply::tell::tell(state, out, None, Some(id), Happening::DepotEmptied, reason);
    }
}
