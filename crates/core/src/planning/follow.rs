//! Quotas of a plan, set and taken back.

use alloc::{
    collections::{BTreeMap, BTreeSet},
    format,
    string::String,
    vec::Vec,
};
use posthaste_plan::horizon::Schedule;
use posthaste_types::{Bytes, DepotId, RequestId};

use super::{Asked, Drawn};
use crate::{
    Mind,
    books::{Quota, Request, Route},
    contract::Reason,
};

/// Consecutive looks at which a plan must be late before it is dropped.
const DOUBTS: u32 = 2;

/// Feeding of requests before a plan.
pub(super) type Before = Vec<(RequestId, Way)>;

/// Feeding of one of them.
pub(super) struct Way {
    route: Route,
    lanes: Vec<(bool, Option<Quota>)>,
}

impl Way {
    pub(super) fn of(request: &Request) -> Self {
        let lanes = request.lanes.iter();
        Self {
            route: request.route,
            lanes: lanes.map(|lane| (lane.is_active, lane.quota)).collect(),
        }
    }

    pub(super) fn put_back(self, request: &mut Request) {
        request.route = self.route;
        for (lane, (is_active, quota)) in request.lanes.iter_mut().zip(self.lanes) {
            (lane.is_active, lane.quota) = (is_active, quota);
        }
    }

    /// Returns whether the request is fed to the same depots again.
    fn is_same(&self, request: &Request) -> bool {
        let mut lanes = request.lanes.iter().zip(&self.lanes);
        lanes.all(|(lane, (was_active, _))| lane.is_active == *was_active)
    }
}

impl Asked {
    /// Returns the pieces that each lane of a demand may hold in the end.
    pub(super) fn pieces(
        &self,
        schedule: &Schedule,
        demand: usize,
        request: &Request,
    ) -> Vec<Option<u32>> {
        let mut planned: BTreeMap<usize, Bytes> = BTreeMap::new();
        for flow in schedule.of_demand(demand) {
            *planned.entry(flow.link).or_default() += flow.bytes;
        }
        let pieces = |(lane, place): (usize, &Option<(usize, u32)>)| {
            let (link, held) = (*place)?;
            let more = planned.get(&link).map_or(0, |bytes| {
                // One more than planned: bytes are cut into pieces.
                bytes.pieces(request.piece(lane)) + 1
            });
            Some(held.saturating_add(u32::try_from(more).unwrap_or(u32::MAX)))
        };
        let lanes = &self.demands[demand].lanes;
        lanes.iter().enumerate().map(pieces).collect()
    }
}

/// Gives the lanes of a request their quotas; those outside the plan stay as they are.
pub(super) fn give_quotas(request: &mut Request, pieces: &[Option<u32>]) {
    let mut is_staged = false;
    for (place, pieces) in pieces.iter().enumerate().take(request.lanes.len()) {
        let stored = request.replica.stored(place).0;
        let is_whole = request.is_destination(place);
        let is_pinned = request.is_pinned(place);
        is_staged |= is_pinned;
        let lane = &mut request.lanes[place];
        // A newcomer's lanes are not active yet. A depot that is away is fed as soon as it is back.
        lane.is_active |= is_whole || is_pinned;
        let Some(pieces) = pieces.filter(|_| !is_pinned) else {
            continue;
        };
        let was_active = lane.quota.map_or(lane.is_active, |quota| quota.was_active);
        lane.quota = Some(Quota { pieces, was_active });
        if !is_whole {
            lane.is_active = pieces > stored;
            is_staged |= lane.is_active;
        }
    }
    request.route = if is_staged || request.lead().is_none() || !request.is_safe_whole() {
        Route::Staged
    } else {
        Route::Direct
    };
}

impl Mind {
    /// Feeds requests as the plan says. Returns how they were fed before.
    pub(super) fn follow(
        &mut self,
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
            let Some(request) = self.requests.get(&id).filter(is_known) else {
                continue;
            };
            if newcomer == Some(id) {
                continue;
            }
            before.push((id, Way::of(request)));
            let pieces = asked.pieces(schedule, demand, request);
            if let Some(request) = self.requests.get_mut(&id) {
                give_quotas(request, &pieces);
            }
            self.fed_otherwise(id);
            self.planning.in_force.insert(id);
        }
        self.planning.late_looks = 0;
        before
    }

    /// Feeds requests as before.
    pub(super) fn unfollow(&mut self, before: Before) {
        for (id, way) in before {
            if let Some(request) = self.requests.get_mut(&id) {
                way.put_back(request);
            }
            self.fed_otherwise(id);
        }
        let requests = &self.requests;
        let has_quota = |id: &RequestId| {
            let lanes = requests.get(id).map(|request| request.lanes.iter());
            lanes.into_iter().flatten().any(|lane| lane.quota.is_some())
        };
        self.planning.in_force.retain(has_quota);
    }

    fn fed_otherwise(&mut self, id: RequestId) {
        if let Some(request) = self.requests.get_mut(&id) {
            request.replica.unpark();
        }
        self.refresh_stripes(id);
    }

    /// Records with each request that the plan feeds otherwise where its data goes. Returns their
    /// number.
    pub(super) fn tell_plan(&mut self, before: &Before, reason: &Reason) -> u32 {
        let mut changed = 0;
        for (id, way) in before {
            let request = self.requests.get(id);
            let Some(request) = request.filter(|request| !way.is_same(request)) else {
                continue;
            };
            changed += 1;
            let what = self.shares_of(request);
            self.remember(*id, what, reason.clone());
        }
        changed
    }

    /// Returns a request's shares by the plan, in words.
    pub(super) fn shares_of(&self, request: &Request) -> String {
        let given = (0..request.lanes.len()).filter_map(|lane| {
            let left = request.quota_bytes(lane).min(request.spec.bytes);
            let is_given = request.lanes[lane].quota.is_some() && left > Bytes::ZERO;
            is_given.then(|| {
                format!(
                    "up to {left} to {}",
                    self.name_of(request.lanes[lane].depot)
                )
            })
        });
        let given: Vec<String> = given.collect();
        format!("planned: {}", given.join(", "))
    }

    /// Takes back quotas at depots that no request with a plan needs any more. Also takes back all
    /// those of requests that are over or late, or whose fragments find no place by them. The last
    /// request to need a depot may have what it gets of it.
    pub(super) fn lift_quotas(&mut self) {
        let mut needed: BTreeMap<DepotId, u32> = BTreeMap::new();
        let (mut over, mut kept) = (Vec::new(), Vec::new());
        for &id in &self.planning.in_force {
            let Some(request) = self.requests.get(&id) else {
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
            self.free_from_plan(id, |_| true);
        }
        for id in kept {
            self.free_from_plan(id, |depot| !needed.contains_key(&depot));
            let is_last = |depot: &DepotId| needed.get(depot) == Some(&1);
            let Some(request) = self
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
    fn free_from_plan(&mut self, id: RequestId, free: impl Fn(DepotId) -> bool) {
        let Some(request) = self.requests.get(&id) else {
            self.planning.in_force.remove(&id);
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
            self.planning.in_force.remove(&id);
        }
        if lanes.is_empty() {
            return;
        }
        if let Some(request) = self.requests.get_mut(&id) {
            for place in lanes {
                let lane = &mut request.lanes[place];
                lane.is_active |= lane.quota.take().is_some_and(|quota| quota.was_active);
            }
        }
        self.fed_otherwise(id);
    }

    /// Drops the plan: requests take their turns without quotas.
    pub(crate) fn unplan(&mut self) {
        let all: Vec<RequestId> = self.planning.in_force.iter().copied().collect();
        for id in all {
            self.free_from_plan(id, |_| true);
            self.remember(id, "plan dropped".into(), Reason::Unplanned);
        }
        self.planning.late_looks = 0;
    }

    /// Drops a plan by which some request would be late after all.
    pub(super) fn doubt_plan(&mut self) {
        let is_late = |id: &RequestId| {
            let request = self.requests.get(id);
            request.is_some_and(|request| {
                let deadline = request.spec.deadline;
                request.finish.is_none_or(|finish| finish.p50 > deadline)
            })
        };
        let doubts = self.planning.in_force.iter().any(is_late);
        let looks = &mut self.planning.late_looks;
        *looks = if doubts { *looks + 1 } else { 0 };
        if *looks >= DOUBTS {
            self.unplan();
        }
    }
}

impl Drawn {
    /// Returns whether the request still has the lanes with which it was drawn.
    fn fits(&self, request: &Request) -> bool {
        self.lanes.len() == request.lanes.len()
    }
}

/// Returns whether something of the request still waits to be sent.
fn has_more(request: &Request) -> bool {
    let mut stripes = request.stripes.values();
    !request.replica.is_all_open() || stripes.any(|stripe| stripe.wanted != 0)
}

/// Returns whether quotas keep a request from sending what is left of it.
fn is_stuck(request: &Request) -> bool {
    let open = |lane: usize| request.quota_left(lane) != Some(0);
    let is_whole_open = request.destinations().any(open);
    if is_whole_open {
        return false;
    }
    let mut lanes = request.depot_lanes();
    let has_place = |taken: u64| {
        let mut lanes = request.depot_lanes();
        lanes.any(|lane| taken >> lane & 1 == 0 && open(lane))
    };
    let waits = |wanted: u64, taken: u64| wanted != 0 && !has_place(taken);
    let mut stripes = request.stripes.values();
    stripes.any(|stripe| waits(stripe.wanted, stripe.taken))
        || (!request.replica.is_all_open() && !lanes.any(open))
}
