//! The course of a request that runs: how many depots it is fed to, and which way it goes.

use alloc::{vec, vec::Vec};
use core::time::Duration;
use posthaste_plan::{Change, review};
use posthaste_types::{Bytes, RequestId, Timestamp};

use crate::{
    Mind,
    books::Request,
    books::Route,
    contract::{Cause, Fault, Happening, Outbox, Reason},
    outlook::Sweep,
    review::reason_late,
};

impl Mind {
    /// Feeds one more depot when behind, one less when far ahead (`docs/algorithms/greedy-planner.md`).
    pub(crate) fn review_fan_out(&mut self, id: RequestId, sweep: &Sweep, out: &mut Outbox) {
        let Some(request) = self.requests.get(&id) else {
            return;
        };
        if !request.is_moving() || request.route != Route::Staged {
            return;
        }
        let (now, deadline) = (self.now, request.spec.deadline);
        let left = deadline.since(now).saturating_sub(self.margin(deadline));
        let finish = request.finish.map(|finish| finish.p90.since(now));
        let (behind, ahead) = (self.settings.behind_ticks, self.settings.ahead_ticks);
        let Some(request) = self.requests.get_mut(&id) else {
            return;
        };
        match review(&mut request.pace, finish, left, behind, ahead) {
            Change::Keep => {}
            Change::Add => {
                self.activate_next(id, reason_late, out);
            }
            Change::Drop => self.retire_slowest(id, left, sweep, out),
        }
        self.fill_fan_out(id, out);
    }

    /// Feeds as many depots as the code has fragments, at once: fewer can make nothing safe.
    pub(crate) fn fill_fan_out(&mut self, id: RequestId, out: &mut Outbox) {
        while let Some(request) = self.requests.get(&id)
            && request.is_moving()
            && request.route == Route::Staged
        {
            let fed = (0..request.lanes.len()).filter(|&lane| {
                request.lanes[lane].is_active
                    && request.is_on_route(lane)
                    && self.is_there(request, lane)
            });
            if fed.count() >= usize::from(request.spec.code.total()) {
                return;
            }
            let reason = |request: &Request, _| {
                let lost = request.last_lost;
                lost.map_or(Reason::DepotBack, |lost| Reason::Repair { lost })
            };
            if !self.activate_next(id, reason, out) {
                return;
            }
        }
    }

    /// Feeds the fastest depot in reserve, with the reason as it is then. Returns whether there was
    /// one.
    fn activate_next(
        &mut self,
        id: RequestId,
        reason: impl FnOnce(&Request, Timestamp) -> Reason,
        out: &mut Outbox,
    ) -> bool {
        let Some(request) = self.requests.get(&id) else {
            return false;
        };
        let mut lanes = self.staging_lanes(request).into_iter();
        let Some(lane) = lanes.find(|&lane| !request.lanes[lane].is_active) else {
            return false;
        };
        let depot = request.lanes[lane].depot;
        let Some(request) = self.requests.get_mut(&id) else {
            return false;
        };
        request.lanes[lane].is_active = true;
        request.account.blame(Cause::Course, None);
        request.replica.unpark();
        let reason = reason(request, self.now);
        self.tell(
            out,
            Some(id),
            Some(depot),
            Happening::DepotActivated,
            reason,
        );
        true
    }

    fn retire_slowest(&mut self, id: RequestId, left: Duration, sweep: &Sweep, out: &mut Outbox) {
        /// With less than this to go, another plan is not worth its churn.
        const NEARLY_DONE: Duration = Duration::from_secs(60);
        let Some(request) = self.requests.get(&id) else {
            return;
        };
        let fed: Vec<usize> = self.staging_lanes(request);
        let fed: Vec<usize> = fed
            .into_iter()
            .filter(|&lane| request.lanes[lane].is_active)
            .collect();
        let Some((&slowest, rest)) = fed.split_last() else {
            return;
        };
        if rest.len() < usize::from(request.spec.code.total()) {
            return;
        }
        let uses = |lane| rest.contains(&lane);
        let load = self.load(request, sweep.places(), Route::Staged, uses);
        let finish = sweep.finish_slow(&load, self.now);
        let is_worth = request
            .finish
            .is_some_and(|finish| finish.p90 > self.now + NEARLY_DONE);
        let Some(finish) =
            finish.filter(|&finish| is_worth && finish.since(self.now) <= left * 3 / 4)
        else {
            return;
        };
        let deadline = request.spec.deadline;
        let Some(request) = self.requests.get_mut(&id) else {
            return;
        };
        request.lanes[slowest].is_active = false;
        request.account.blame(Cause::Course, None);
        let (fan_out, depot) = (request.fan_out(), request.lanes[slowest].depot);
        let reason = Reason::Ahead {
            fan_out,
            finish,
            deadline,
        };
        self.tell(out, Some(id), Some(depot), Happening::DepotRetired, reason);
    }

    /// Leaves the direct path when it is too slow, and takes it when staging can't go on.
    pub(crate) fn review_route(&mut self, id: RequestId, sweep: &Sweep, out: &mut Outbox) {
        let Some(request) = self.requests.get(&id) else {
            return;
        };
        let settled = request.routed_at + self.settings.reroute_after;
        let may_change = request.is_moving()
            && request.destination().is_some()
            && request.late_ticks >= self.settings.behind_ticks
            && (request.routed_at == request.submitted || settled <= self.now);
        if !may_change {
            return;
        }
        let deadline = request.spec.deadline;
        let before = request.finish.map(|finish| finish.p90);
        let other = match request.route {
            Route::Direct => Route::Staged,
            Route::Staged => Route::Direct,
        };
        let lanes = match other {
            Route::Staged => self.staging_lanes(request),
            Route::Direct => vec![request.destination().unwrap_or(0)],
        };
        let is_possible = match other {
            Route::Staged => lanes.len() >= usize::from(request.spec.code.total()),
            Route::Direct => lanes.iter().all(|&lane| self.can_use(request, lane)),
        };
        let load = self.load(request, sweep.places(), other, |lane| lanes.contains(&lane));
        let after = sweep.finish_middle(&load, self.now);
        let is_better = match (before, after) {
            (Some(before), Some(after)) => after < before,
            (None, Some(_)) => true,
            (Some(_), None) => false,
            // Nothing is known to carry anything: then whatever answers and has space is tried.
            (None, None) => !self.has_way(request, request.route) && self.has_way(request, other),
        };
        if !is_possible || !is_better {
            return;
        }
        let reason = match (other, before) {
            (Route::Staged, Some(finish)) => Reason::DirectTooSlow { finish, deadline },
            (Route::Staged, None) => Reason::DepotLost {
                fault: Fault::Unreachable,
            },
            (Route::Direct, _) => match after.filter(|after| *after <= deadline) {
                Some(finish) => Reason::DirectSuffices { finish, deadline },
                None => reason_late(request, self.now),
            },
        };
        self.reroute(id, other, lanes, reason, sweep, out);
    }

    /// Whether enough depots of a route answer, each with space for all it may get, whatever their
    /// rates.
    fn has_way(&self, request: &Request, route: Route) -> bool {
        let has_space = |lane: usize, bytes: Bytes| {
            let depot = self.depots.get(&request.lanes[lane].depot);
            depot.is_some_and(|depot| depot.free >= bytes)
        };
        match route {
            Route::Direct => request.destination().is_some_and(|lane| {
                let left = request.replica.unsafe_bytes().min(request.spec.bytes);
                self.can_use(request, lane) && has_space(lane, left)
            }),
            Route::Staged => {
                let lanes = self.staging_lanes(request).into_iter();
                let there = lanes.filter(|&lane| has_space(lane, request.replica.room(lane)));
                there.count() >= usize::from(request.spec.code.total())
            }
        }
    }

    fn reroute(
        &mut self,
        id: RequestId,
        route: Route,
        lanes: Vec<usize>,
        reason: Reason,
        sweep: &Sweep,
        out: &mut Outbox,
    ) {
        self.abandon_all(id, &reason, out);
        let active = match route {
            Route::Staged => self.fewest(id, lanes, sweep),
            Route::Direct => lanes,
        };
        let now = self.now;
        let Some(request) = self.requests.get_mut(&id) else {
            return;
        };
        (request.route, request.routed_at, request.late_ticks) = (route, now, 0);
        for (place, lane) in request.lanes.iter_mut().enumerate() {
            lane.is_active = active.contains(&place);
        }
        for chunk in core::mem::take(&mut request.stripes).into_keys() {
            request.replica.put_back(chunk);
        }
        request.account.blame(Cause::Course, None);
        request.replica.unpark();
        self.tell(out, Some(id), None, Happening::Rerouted, reason);
    }

    /// The fewest depots, the best first, that keep the deadline; all where none do.
    fn fewest(&self, id: RequestId, lanes: Vec<usize>, sweep: &Sweep) -> Vec<usize> {
        let Some(request) = self.requests.get(&id) else {
            return lanes;
        };
        let by = request.spec.deadline - self.margin(request.spec.deadline);
        let least = usize::from(request.spec.code.total());
        let holds = |count: &usize| {
            let uses = |lane| lanes[..*count].contains(&lane);
            let load = self.load(request, sweep.places(), Route::Staged, uses);
            sweep
                .finish_slow(&load, self.now)
                .is_some_and(|finish| finish <= by)
        };
        let count = (least..lanes.len()).find(holds).unwrap_or(lanes.len());
        lanes[..count].to_vec()
    }
}
