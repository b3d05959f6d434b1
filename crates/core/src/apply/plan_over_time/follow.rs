//! Follows a plan: gives quotas, and drops a plan that no longer fits.

use alloc::{
    collections::{BTreeMap, BTreeSet},
    vec::Vec,
};
use posthaste_plan::horizon::Schedule;
use posthaste_types::{DepotId, RequestId};

use crate::{
    apply,
    contract::Reason,
    decide,
    decide::plan_over_time::follow::{Before, DOUBTS, Way, give_quotas, has_more, is_stuck},
    state,
    state::plan_over_time::Asked,
    state::{Request, State},
};

/// Feeds requests as the plan says. Returns how they were fed before.
pub(crate) fn follow(
    state: &mut State,
    asked: &Asked,
    schedule: &Schedule,
    newcomer: Option<RequestId>,
) -> Before {
    let mut before = Vec::new();
    for (demand, drawn) in asked.demands.iter().enumerate() {
        let id = drawn.request;
        let is_known = |request: &&Request| {
            request.is_under_way() && !request.is_leftover && drawn.fits(request)
        };
        let Some(request) = state.requests.get(&id).filter(is_known) else {
            continue;
        };
        if newcomer == Some(id) {
            continue;
        }
        before.push((id, Way::of(request)));
        let pieces = asked.pieces(schedule, demand, request);
        if let Some(request) = state.requests.get_mut(&id) {
            give_quotas(request, &pieces);
        }
        fed_otherwise(state, id);
        state.planning.in_force.insert(id);
    }
    state.planning.late_looks = 0;
    before
}

/// Feeds requests as before.
pub(crate) fn unfollow(state: &mut State, before: Before) {
    for (id, way) in before {
        if let Some(request) = state.requests.get_mut(&id) {
            way.put_back(request);
        }
        fed_otherwise(state, id);
    }
    let requests = &state.requests;
    let has_quota = |id: &RequestId| {
        let lanes = requests.get(id).map(|request| request.lanes.iter());
        lanes.into_iter().flatten().any(|lane| lane.quota.is_some())
    };
    state.planning.in_force.retain(has_quota);
}

fn fed_otherwise(state: &mut State, id: RequestId) {
    if let Some(request) = state.requests.get_mut(&id) {
        request.replica.unpark();
    }
    apply::stripes::refresh_stripes(state, id);
}

/// Records with each request that the plan feeds otherwise where its data goes. Returns their
/// number.
pub(crate) fn tell_plan(state: &mut State, before: &Before, reason: &Reason) -> u32 {
    let mut changed = 0;
    for (id, way) in before {
        let request = state.requests.get(id);
        let Some(request) = request.filter(|request| !way.is_same(request)) else {
            continue;
        };
        changed += 1;
        let what = decide::plan_over_time::follow::shares_of(state, request);
        state::memory::remember(state, *id, what, reason.clone());
    }
    changed
}

/// Takes back quotas at depots that no request with a plan needs any more. Also takes back all
/// those of requests that are over or late, or whose fragments find no place by them. The last
/// request to need a depot may have what it gets of it.
pub(crate) fn lift_quotas(state: &mut State) {
    let mut needed: BTreeMap<DepotId, u32> = BTreeMap::new();
    let (mut over, mut kept) = (Vec::new(), Vec::new());
    for &id in &state.planning.in_force {
        let Some(request) = state.requests.get(&id) else {
            over.push(id);
            continue;
        };
        if !request.is_under_way() || request.is_leftover || is_stuck(request) {
            over.push(id);
            continue;
        }
        kept.push(id);
        if !has_more(request) {
            continue;
        }
        for (place, lane) in request.lanes.iter().enumerate() {
            if request.quota_left(place).is_some_and(|left| left > 0) {
                *needed.entry(lane.depot).or_default() += 1;
            }
        }
    }
    for id in over {
        free_from_plan(state, id, |_| true);
    }
    for id in kept {
        free_from_plan(state, id, |depot| !needed.contains_key(&depot));
        let is_last = |depot: &DepotId| needed.get(depot) == Some(&1);
        let Some(request) = state
            .requests
            .get_mut(&id)
            .filter(|request| has_more(request))
        else {
            continue;
        };
        for place in 0..request.lanes.len() {
            let is_last = is_last(&request.lanes[place].depot);
            if is_last
                && request.quota_left(place).is_some_and(|left| left > 0)
                && let Some(quota) = &mut request.lanes[place].quota
            {
                quota.pieces = u32::MAX;
            }
        }
    }
}

/// Takes back the quotas of a request at depots that are `free`.
fn free_from_plan(state: &mut State, id: RequestId, free: impl Fn(DepotId) -> bool) {
    let Some(request) = state.requests.get(&id) else {
        state.planning.in_force.remove(&id);
        return;
    };
    let lanes = 0..request.lanes.len();
    let lanes: BTreeSet<usize> = lanes
        .filter(|&lane| {
            let fed = &request.lanes[lane];
            fed.quota.is_some() && free(fed.depot)
        })
        .collect();
    let has_others = request
        .lanes
        .iter()
        .enumerate()
        .any(|(place, lane)| lane.quota.is_some() && !lanes.contains(&place));
    if !has_others {
        state.planning.in_force.remove(&id);
    }
    if lanes.is_empty() {
        return;
    }
    if let Some(request) = state.requests.get_mut(&id) {
        for place in lanes {
            let lane = &mut request.lanes[place];
            lane.is_active |= lane.quota.take().is_some_and(|quota| quota.was_active);
        }
    }
    fed_otherwise(state, id);
}

/// Drops the plan: requests take their turns without quotas.
pub(crate) fn unplan(state: &mut State) {
    let all: Vec<RequestId> = state.planning.in_force.iter().copied().collect();
    for id in all {
        free_from_plan(state, id, |_| true);
        state::memory::remember(state, id, "plan dropped".into(), Reason::Unplanned);
    }
    state.planning.late_looks = 0;
}

/// Drops a plan by which some request would be late after all.
pub(crate) fn doubt_plan(state: &mut State) {
    let is_late = |id: &RequestId| {
        let request = state.requests.get(id);
        request.is_some_and(|request| {
            let deadline = request.spec.deadline;
            request.finish.is_none_or(|finish| finish.p50 > deadline)
        })
    };
    let doubts = state.planning.in_force.iter().any(is_late);
    let looks = &mut state.planning.late_looks;
    *looks = if doubts { *looks + 1 } else { 0 };
    if *looks >= DOUBTS {
        unplan(state);
    }
}
