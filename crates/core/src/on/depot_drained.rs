use core::time::Duration;
use posthaste_types::{ChunkIndex, DepotId, FragmentIndex, RequestId};

use crate::{
    Mind,
    books::{Depot, Request},
    contract::{Cause, Drain, DrainReason, DrainView, Happening, Outbox, Reason, RequestState},
};

/// Interval between counts of what lies only at a drained depot: each visits all of its chunks.
const COUNT_EVERY: Duration = Duration::from_secs(10);

impl Mind {
    /// Drains a depot, or ends its drain. Flights to it end as they would have, and what it holds
    /// counts as before; forecasts no longer count on it.
    pub(crate) fn on_depot_drained(
        &mut self,
        id: DepotId,
        drain: Drain,
        is_own: bool,
        out: &mut Outbox,
    ) {
        let now = self.now;
        let Some(depot) = self.depots.get_mut(&id) else {
            return;
        };
        let before = depot.drain();
        if is_own {
            depot.drain_own = drain;
        } else {
            depot.drain_asked = drain;
        }
        let after = depot.drain();
        if after == before {
            return;
        }
        (depot.only_here, depot.is_said_empty) = (None, false);
        depot.counts_at = (after != Drain::Off).then_some(now);
        let (happening, why) = match after {
            Drain::Off => (Happening::DepotUndrained, DrainReason::Ended),
            drain @ (Drain::Keep | Drain::Move) => (
                Happening::DepotDraining,
                DrainReason::Begun { drain, is_own },
            ),
        };
        let reason = Reason::Drained { why };
        self.tell(out, None, Some(id), happening.clone(), reason.clone());
        self.unplan();
        self.bring_up_to_date();
        for request in self.index.users(id) {
            self.drain_for(request, id, &happening, &reason, out);
        }
        self.unpark_all(id);
        self.look_now();
    }

    /// Applies a drain to one request.
    fn drain_for(
        &mut self,
        id: RequestId,
        depot: DepotId,
        happening: &Happening,
        reason: &Reason,
        out: &mut Outbox,
    ) {
        let Some(request) = self.requests.get(&id) else {
            return;
        };
        let Some(lane) = request.lane_of(depot) else {
            return;
        };
        let drained = self.drained_lanes(request);
        let is_fed = request.is_moving() && request.lanes[lane].is_active;
        let is_concerned = is_fed || request.lanes[lane].is_used;
        let is_drained = drained >> lane & 1 == 1;
        let Some(request) = self.requests.get_mut(&id) else {
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
            self.remember_depot(id, depot, happening.clone(), reason, 0);
            self.blame_for(id, Cause::Course, Some(depot));
        }
        self.sort_by_domain(id);
        self.sort_by_level(id);
        self.refresh_stripes(id);
        self.fill_fan_out(id, out);
    }

    /// Returns the lanes of a request to drained depots, as a mask. Data wanted at a destination
    /// still goes there.
    pub(crate) fn drained_lanes(&self, request: &Request) -> u64 {
        let is_drained = |lane: &usize| {
            let depot = self.depots.get(&request.lanes[*lane].depot);
            depot.is_some_and(Depot::is_draining)
        };
        let lanes = request.depot_lanes().filter(is_drained);
        lanes.fold(0, |mask, lane| mask | 1 << lane)
    }

    /// Records which depots a newcomer does not get because they are drained, for `explain`.
    pub(crate) fn remember_drained(&mut self, id: RequestId) {
        let Some(request) = self.requests.get(&id) else {
            return;
        };
        let drained = request.uncommon.drained;
        let lanes = request.lanes.iter().enumerate();
        let lanes = lanes.filter(|&(lane, _)| drained >> lane & 1 == 1);
        let all: alloc::vec::Vec<_> = lanes
            .filter_map(|(_, lane)| {
                let depot = self.depots.get(&lane.depot)?;
                let (drain, is_own) = (depot.drain(), depot.drain_asked == Drain::Off);
                Some((depot.name.clone(), DrainReason::Begun { drain, is_own }))
            })
            .collect();
        for (name, why) in all {
            self.remember_of(id, name, 0, "not used".into(), Reason::Drained { why });
        }
    }

    /// Counts what lies only at a drained depot, and reports once that is nothing.
    pub(crate) fn count_left(&mut self, id: DepotId, out: &mut Outbox) {
        let now = self.now;
        let is_due = |depot: &Depot| depot.counts_at.is_some_and(|at| at <= now);
        if !self.depots.get(&id).is_some_and(is_due) {
            return;
        }
        self.bring_up_to_date();
        let left = self.index.users(id).into_iter();
        let left = left.filter_map(|request| self.requests.get(&request));
        let left: u64 = left.map(|request| self.only_at(request, id)).sum();
        let under_way = self.under_way_to(id);
        let Some(depot) = self.depots.get_mut(&id) else {
            return;
        };
        depot.only_here = Some(left);
        depot.counts_at = Some(now + COUNT_EVERY);
        let is_empty = left == 0 && under_way == 0;
        let was_empty = core::mem::replace(&mut depot.is_said_empty, is_empty);
        if is_empty && !was_empty {
            let why = DrainReason::NothingOnlyThere;
            let reason = Reason::Drained { why };
            self.tell(out, None, Some(id), Happening::DepotEmptied, reason);
        }
    }

    /// Counts fragments of a request that lie at the depot and at no other that stays. Visits every
    /// chunk.
    fn only_at(&self, request: &Request, depot: DepotId) -> u64 {
        let is_wanted = request.is_kept() && request.state != RequestState::Delivered;
        let Some(lane) = request.lane_of(depot).filter(|_| is_wanted) else {
            return 0;
        };
        let others = request.replica.live() & !(1 << lane);
        let stays = |other: &usize| {
            let depot = self.depots.get(&request.lanes[*other].depot);
            others >> other & 1 == 1 && depot.is_some_and(|depot| !depot.is_draining())
        };
        let others: alloc::vec::Vec<usize> = (0..request.lanes.len()).filter(stays).collect();
        let is_elsewhere = |chunk: ChunkIndex, fragment: FragmentIndex| {
            others.iter().any(|&other| {
                let held = request.replica.fragment_at(other, chunk);
                held == Some(FragmentIndex::WHOLE) || held == Some(fragment)
            })
        };
        let only = request.replica.held(lane);
        only.filter(|&(chunk, fragment)| !is_elsewhere(chunk, fragment))
            .count() as u64
    }

    fn under_way_to(&self, id: DepotId) -> u64 {
        (self.transfers.to(id, None).count() + self.pushes.to(id, None).count()) as u64
    }

    /// Returns the progress of a depot's drain, while it is drained.
    pub(crate) fn drain_view(&self, id: DepotId, depot: &Depot) -> Option<DrainView> {
        depot.is_draining().then(|| DrainView {
            drain: depot.drain(),
            is_own: depot.drain_asked == Drain::Off,
            under_way: self.under_way_to(id),
            only_there: depot.only_here,
        })
    }
}
