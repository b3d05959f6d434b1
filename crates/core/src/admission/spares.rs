//! Depots that come and go (`docs/algorithms/greedy-planner.md`). A request fed to such depots is
//! fed to more than it needs, so that it is on time without the fastest of them.

use alloc::vec::Vec;
use core::cmp::Reverse;
use posthaste_plan::Proposal;
use posthaste_types::{RequestId, Timestamp};

use super::Way;
use crate::{
    Mind,
    books::{Request, Route},
    contract::Outbox,
    outlook::Sweep,
    review::reason_late,
};

/// Share of the time left in which a request must be safe without one of its depots: a tenth.
const EARLY: u32 = 10;

impl Mind {
    /// Adds depots to those chosen for a newcomer until it is on time without the fastest that
    /// comes and goes. Adds all if that does not suffice.
    pub(super) fn with_spares(
        &self,
        request: &Request,
        way: &Way,
        chosen: Vec<usize>,
        finish: Timestamp,
    ) -> (Vec<usize>, Timestamp) {
        let near = way.lanes.iter();
        let near = near.filter(|&&lane| self.level_of(request, lane) == 1);
        let near = near.count().max(chosen.len());
        let all = &way.proposal.candidates[..near];
        let least = usize::from(way.proposal.code.total());
        let mut count = chosen.len();
        while count < all.len() && !self.survives_on(request, way, count) {
            count = (count + 1).max(least).min(all.len());
        }
        let more = &all[..count];
        let then = way.scene.finish(&way.proposal, more);
        match then.filter(|&then| count > chosen.len() && then <= request.aim()) {
            Some(then) => (more.to_vec(), then),
            None => (chosen, finish),
        }
    }

    /// Returns when a request must be safe without a depot that may go: its fragments must be sent
    /// again.
    fn early(&self, request: &Request) -> Timestamp {
        self.now + request.aim().since(self.now) / EARLY
    }

    /// Returns whether a newcomer on the first so many of its depots would be on time without the
    /// fastest that comes and goes.
    fn survives_on(&self, request: &Request, way: &Way, count: usize) -> bool {
        let lead = way.proposal.destination.and(request.lead());
        let fed = way.lanes[..count].iter().copied().chain(lead);
        let Some(lost) = self.fastest_shaky(request, fed) else {
            return true;
        };
        let left = (0..count).filter(|&place| way.lanes[place] != lost);
        let left: Vec<usize> = left.collect();
        let without = Proposal {
            destination: way.proposal.destination.filter(|_| lead != Some(lost)),
            ..way.proposal.clone()
        };
        let is_enough = left.len() >= usize::from(without.code.total());
        (without.destination.is_some() || is_enough)
            && way.scene.holds(&without, &left, self.early(request))
    }

    /// Judges whether depots come and go here, by the number lost recently. Visits every depot.
    pub(crate) fn judge_rest(&mut self) {
        let (mut all, mut gone) = (0u64, 0u64);
        for depot in self.depots.values() {
            all += 1;
            gone += u64::from(depot.went_lately(self.now));
        }
        self.is_restless = gone > 0 && gone * u64::from(self.settings.restless_of) >= all;
    }

    /// Returns the fastest of these lanes whose depot is up and may go. It was lost recently, or
    /// others were and it has not been up for long.
    fn fastest_shaky(
        &self,
        request: &Request,
        lanes: impl Iterator<Item = usize>,
    ) -> Option<usize> {
        let shaky = lanes.filter_map(|lane| {
            let depot = self.depots.get(&request.lanes[lane].depot)?;
            let may_go = depot.is_shaky(self.now) || self.is_restless && depot.is_new(self.now);
            (may_go && !depot.is_down()).then_some((Reverse(depot.link.rates.p50), lane))
        });
        shaky.min().map(|(_, lane)| lane)
    }

    /// Returns the fastest depot fed by a request that comes and goes.
    fn fastest_shaky_fed(&self, request: &Request) -> Option<usize> {
        let fed = request.depot_lanes();
        let fed = fed.filter(|&lane| request.lanes[lane].is_active);
        self.fastest_shaky(request, fed.chain(request.lead()))
    }

    /// Returns whether a running request is fed to a depot that comes and goes; if so, it is not
    /// fed to fewer.
    pub(crate) fn is_fed_shaky(&self, id: RequestId) -> bool {
        let request = self.requests.get(&id);
        request.is_some_and(|request| self.fastest_shaky_fed(request).is_some())
    }

    /// Returns whether the next depot in reserve is near the centre: those nearer to the
    /// destination are fed by others.
    fn has_spare(&self, request: &Request) -> bool {
        let next = self.next_in_reserve(request);
        next.is_some_and(|lane| self.level_of(request, lane) == 1)
    }

    pub(super) fn level_of(&self, request: &Request, lane: usize) -> u8 {
        let id = request.lanes[lane].depot;
        let depot = self.depots.get(&id);
        depot.map_or(1, |depot| {
            self.crossings.level(id, depot, request.lead_depot())
        })
    }

    /// Feeds a running request to one depot more if it would be late without the fastest that comes
    /// and goes.
    pub(crate) fn feed_spare(&mut self, id: RequestId, sweep: &Sweep, out: &mut Outbox) {
        let request = self.requests.get(&id);
        let Some(request) = request.filter(|request| !request.is_leftover) else {
            return;
        };
        let Some(lost) = self.fastest_shaky_fed(request) else {
            return;
        };
        let mut load = self.load(request, sweep.places(), request.route, |lane| {
            request.lanes[lane].is_active && lane != lost
        });
        let goes_whole = request.lead() != Some(lost);
        load.whole = load.whole.filter(|_| goes_whole);
        let has_way = goes_whole || request.route == Route::Staged;
        let finish = sweep.finish_slow(&load, self.now).filter(|_| has_way);
        if finish.is_some_and(|finish| finish <= self.early(request)) {
            return;
        }
        match request.route {
            Route::Direct => {
                let reason = reason_late(request, self.now);
                self.stage_too(id, reason, sweep, out);
            }
            Route::Staged if self.has_spare(request) => {
                self.activate_next(id, reason_late, out);
            }
            Route::Staged => {}
        }
    }
}
