//! Quotas of a plan, set and taken back.

use alloc::{collections::BTreeMap, format, string::String, vec::Vec};
use posthaste_plan::horizon::Schedule;
use posthaste_types::{Bytes, RequestId};

use crate::{
    state,
    state::plan_over_time::{Asked, Drawn},
    state::{Quota, Request, Route, State},
};

/// Consecutive looks at which a plan must be late before it is dropped.
pub(crate) const DOUBTS: u32 = 2;

/// Feeding of requests before a plan.
pub(crate) type Before = Vec<(RequestId, Way)>;

/// Feeding of one of them.
pub(crate) struct Way {
    pub(crate) route: Route,
    pub(crate) lanes: Vec<(bool, Option<Quota>)>,
}

impl Way {
    pub(crate) fn of(request: &Request) -> Self {
        let lanes = request.lanes.iter();
        Self {
            route: request.route,
            lanes: lanes.map(|lane| (lane.is_active, lane.quota)).collect(),
        }
    }

    pub(crate) fn put_back(self, request: &mut Request) {
        request.route = self.route;
        for (lane, (is_active, quota)) in request.lanes.iter_mut().zip(self.lanes) {
            (lane.is_active, lane.quota) = (is_active, quota);
        }
    }

    /// Returns whether the request is fed to the same depots again.
    pub(crate) fn is_same(&self, request: &Request) -> bool {
        let mut lanes = request.lanes.iter().zip(&self.lanes);
        lanes.all(|(lane, (was_active, _))| lane.is_active == *was_active)
    }
}

impl Asked {
    /// Returns the pieces that each lane of a demand may hold in the end.
    pub(crate) fn pieces(
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
pub(crate) fn give_quotas(request: &mut Request, pieces: &[Option<u32>]) {
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

/// Returns a request's shares by the plan, in words.
pub(crate) fn shares_of(state: &State, request: &Request) -> String {
    let given = (0..request.lanes.len()).filter_map(|lane| {
        let left = request.quota_bytes(lane).min(request.spec.bytes);
        let is_given = request.lanes[lane].quota.is_some() && left > Bytes::ZERO;
        is_given.then(|| {
            format!(
                "up to {left} to {}",
                state::names::name_of(state, request.lanes[lane].depot)
            )
        })
    });
    let given: Vec<String> = given.collect();
    format!("planned: {}", given.join(", "))
}

impl Drawn {
    /// Returns whether the request still has the lanes with which it was drawn.
    pub(crate) fn fits(&self, request: &Request) -> bool {
        self.lanes.len() == request.lanes.len()
    }
}

/// Returns whether something of the request still waits to be sent.
pub(crate) fn has_more(request: &Request) -> bool {
    let mut stripes = request.stripes.values();
    !request.replica.is_all_open() || stripes.any(|stripe| stripe.wanted != 0)
}

/// Returns whether quotas keep a request from sending what is left of it.
pub(crate) fn is_stuck(request: &Request) -> bool {
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
