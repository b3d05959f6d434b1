//! Capacity of a lane's depot, now and at some time.

use posthaste_types::Bytes;

use crate::state::Depot;
use crate::{
    decide::dispatch::placing::Placing,
    decide::dispatch::{placing::Rank, rank::is_open},
};

impl Placing<'_> {
    /// Returns whether the depot is fed by this request and could take `bytes` at some time.
    pub(crate) fn is_fed(&self, lane: usize, bytes: Bytes) -> bool {
        let fed = &self.request.lanes[lane];
        fed.is_active
            && self.request.is_on_route(lane)
            && self.depots.get(&fed.depot).is_some_and(|depot| {
                let (id, free) = (fed.depot, depot.free);
                let has_space = || self.index.has_space_for(self.id, id, free, bytes);
                // Fragments in flight may fail and leave their space.
                depot.is_up()
                    && (fed.asked_at.is_some() || has_space())
                    && self.request.can_pay(lane, depot, bytes, self.now)
            })
    }

    /// Returns whether a fragment of `bytes` can start towards the depot now.
    pub(crate) fn is_open(&self, lane: usize, bytes: Bytes) -> bool {
        let depot = self.depots.get(&self.request.lanes[lane].depot);
        let rank = self.ranks.get(lane).copied().unwrap_or(Rank::First);
        depot.is_some_and(|depot| {
            depot.resume_at <= self.now
                && depot.is_open_to(self.request, lane, self.now)
                && self.request.uncommon.throttle.is_open(self.now)
                && self.request.can_pay(lane, depot, bytes, self.now)
                && is_open(self.request, lane, rank, depot, bytes, self.settings)
                && self.fits(lane, bytes)
        })
    }

    /// Returns whether only windows and turns keep so much from the depot of a lane.
    pub(super) fn is_ready(&self, lane: usize, bytes: Bytes) -> bool {
        let fed = &self.request.lanes[lane];
        let is_there = self.depots.get(&fed.depot).is_some_and(|depot| {
            depot.resume_at <= self.now && depot.is_open_to(self.request, lane, self.now)
        });
        is_there
            && fed.asked_at.is_none()
            && self.request.quota_left(lane) != Some(0)
            && self.is_fed(lane, bytes)
            && self.fits(lane, bytes)
    }

    /// Returns the space on the depot of a lane beside what is in flight and what is kept for
    /// others.
    pub(super) fn space(&self, lane: usize) -> Bytes {
        let id = self.request.lanes[lane].depot;
        let space = self.depots.get(&id).map_or(Bytes::ZERO, Depot::space);
        self.index.space_for(self.id, id, space)
    }

    /// Returns whether that is enough for so much.
    pub(super) fn fits(&self, lane: usize, bytes: Bytes) -> bool {
        let id = self.request.lanes[lane].depot;
        let space = self.depots.get(&id).map_or(Bytes::ZERO, Depot::space);
        self.index.has_space_for(self.id, id, space, bytes)
    }

    pub(crate) fn finish_micros(&self, lane: usize, bytes: Bytes) -> u64 {
        let depot = self.depots.get(&self.request.lanes[lane].depot);
        depot.map_or(u64::MAX, |depot| depot.link.finish_micros(bytes))
    }
}
