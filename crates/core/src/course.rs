//! Course of a running request: its fan-out and its route.

use alloc::vec::Vec;
use core::time::Duration;
use posthaste_plan::{Change, review};
use posthaste_types::{RequestId, Timestamp};

use crate::{
    Mind,
    books::Request,
    books::Route,
    contract::{Cause, Fault, Happening, Outbox, Reason},
    outlook::Sweep,
    review::reason_late,
};

/// Largest share of the time, in hundredths, that the rest may take with one depot more for it to
/// be added.
const WORTH_PERCENT: u32 = 99;

impl Mind {
    /// Feeds one more depot when behind, one less when far ahead
    /// (`docs/algorithms/greedy-planner.md`). If only the destination was fed, adds as many as the
    /// deadline needs.
    pub(crate) fn review_fan_out(&mut self, id: RequestId, sweep: &Sweep, out: &mut Outbox) {
        let Some(request) = self.requests.get(&id) else {
            return;
        };
        if !request.is_moving() {
            return;
        }
        let (now, deadline) = (self.now, request.aim());
        let left = deadline.since(now).saturating_sub(self.margin(deadline));
        let finish = request.finish.map(|finish| finish.p90.since(now));
        let (behind, ahead) = (self.settings.behind_ticks, self.settings.ahead_ticks);
        // The effect of a reservation that is asked for is not known yet.
        let is_awaited = self.circuits.is_awaited(id);
        let Some(request) = self.requests.get_mut(&id) else {
            return;
        };
        let change = review(&mut request.pace, finish, left, behind, ahead);
        let (route, deadline) = (request.route, request.spec.deadline);
        let finish = request.finish.map(|finish| finish.p90);
        match (change, route) {
            (Change::Add, _) if is_awaited => {}
            (Change::Keep, _) | (Change::Drop, Route::Direct) => self.feed_spare(id, sweep, out),
            (Change::Drop, Route::Staged) if self.is_fed_shaky(id) => {
                self.feed_spare(id, sweep, out);
            }
            (Change::Add, Route::Direct) => {
                let fault = Fault::Unreachable;
                let reason = match finish {
                    Some(finish) => Reason::DirectTooSlow { finish, deadline },
                    None => Reason::DepotLost { fault },
                };
                self.stage_too(id, reason, sweep, out);
            }
            (Change::Add, Route::Staged) if self.would_help(id, sweep) => {
                self.activate_next(id, reason_late, out);
            }
            (Change::Add, Route::Staged) => {}
            (Change::Drop, Route::Staged) => self.retire_slowest(id, left, sweep, out),
        }
        self.fill_fan_out(id, out);
    }

    /// Feeds as many depots as the code has fragments, at once: fewer can make nothing safe.
    pub(crate) fn fill_fan_out(&mut self, id: RequestId, out: &mut Outbox) {
        self.feed_pinned(id);
        while let Some(request) = self.requests.get(&id)
            && request.is_moving()
            && request.route == Route::Staged
        {
            let fed = request
                .depot_lanes()
                .filter(|&lane| request.lanes[lane].is_active && self.is_there(request, lane));
            if request.can_hold(fed.fold(0, |mask, lane| mask | 1 << lane)) {
                return;
            }
            let reason = |request: &Request, _| {
                let lost = request.uncommon.last_lost;
                lost.map_or(Reason::DepotBack, |lost| Reason::Repair { lost })
            };
            if !self.activate_next(id, reason, out) {
                return;
            }
        }
    }

    /// Returns the lane of the best depot that is not fed.
    pub(crate) fn next_in_reserve(&self, request: &Request) -> Option<usize> {
        let mut lanes = self.staging_lanes(request).into_iter();
        lanes.find(|&lane| !request.lanes[lane].is_active)
    }

    /// Returns whether one depot more would end the request sooner: if the uplink is the
    /// bottleneck, none would.
    fn would_help(&self, id: RequestId, sweep: &Sweep) -> bool {
        let Some(request) = self.requests.get(&id) else {
            return false;
        };
        let Some(next) = self.next_in_reserve(request) else {
            return false;
        };
        let uses = |lane: usize| lane == next || request.lanes[lane].is_active;
        let load = self.load(request, sweep.places(), Route::Staged, uses);
        let finish = sweep.finish_slow(&load, self.now);
        let before = request.finish.map(|finish| finish.p90);
        match (before, finish) {
            (Some(before), Some(after)) => {
                let left = before.since(self.now);
                after.since(self.now) <= left / 100 * WORTH_PERCENT
            }
            (None, _) => true,
            (Some(_), None) => false,
        }
    }

    /// Feeds the fastest depot in reserve, with the reason at that time. Returns whether there was
    /// one.
    pub(crate) fn activate_next(
        &mut self,
        id: RequestId,
        reason: impl FnOnce(&Request, Timestamp) -> Reason,
        out: &mut Outbox,
    ) -> bool {
        let Some(request) = self.requests.get(&id) else {
            return false;
        };
        let Some(lane) = self.next_in_reserve(request) else {
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
        /// Time to go below which another plan is not worth its churn.
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
        let is_least = rest.len() < usize::from(request.spec.code.total());
        let can_go_alone = request
            .lead()
            .is_some_and(|lane| self.is_there(request, lane) && request.uncommon.pinned.is_empty())
            && request.is_safe_whole();
        if is_least && !can_go_alone || !is_least && self.needs_room_on_all(id, request, &fed) {
            return;
        }
        let route = if is_least {
            Route::Direct
        } else {
            Route::Staged
        };
        let uses = |lane| rest.contains(&lane);
        let load = self.load(request, sweep.places(), route, uses);
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
        if is_least {
            let reason = Reason::DirectSuffices { finish, deadline };
            self.go_direct(id, reason, out);
            return;
        }
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

    /// Feeds depots as well, as the destination alone does not keep the deadline, or does not
    /// answer.
    pub(crate) fn stage_too(
        &mut self,
        id: RequestId,
        reason: Reason,
        sweep: &Sweep,
        out: &mut Outbox,
    ) {
        let Some(request) = self.requests.get(&id) else {
            return;
        };
        let lanes = self.staging_lanes(request);
        let holders = self.holders_with(request, lanes.len());
        if holders < usize::from(request.spec.code.total()) || !request.is_spread() {
            return;
        }
        let active = self.fewest(id, lanes, sweep);
        let Some(request) = self.requests.get_mut(&id) else {
            return;
        };
        request.route = Route::Staged;
        for lane in active {
            request.lanes[lane].is_active = true;
        }
        request.account.blame(Cause::Course, None);
        request.replica.unpark();
        self.refresh_stripes(id);
        self.tell(out, Some(id), None, Happening::Rerouted, reason);
    }

    /// Sends to the destination alone, as it suffices: fragments on their way to depots still
    /// arrive.
    fn go_direct(&mut self, id: RequestId, reason: Reason, out: &mut Outbox) {
        let Some(request) = self.requests.get_mut(&id) else {
            return;
        };
        request.route = Route::Direct;
        for lane in request.depot_lanes() {
            request.lanes[lane].is_active = false;
        }
        request.replica.unpark();
        self.refresh_stripes(id);
        self.tell(out, Some(id), None, Happening::Rerouted, reason);
    }

    /// Returns the fewest depots, the best first, that keep the deadline; all if none do.
    fn fewest(&self, id: RequestId, lanes: Vec<usize>, sweep: &Sweep) -> Vec<usize> {
        let Some(request) = self.requests.get(&id) else {
            return lanes;
        };
        let by = request.aim() - self.margin(request.aim());
        let least = usize::from(request.spec.code.total());
        let holds = |count: &usize| {
            let uses = |lane| lanes[..*count].contains(&lane);
            let load = self.load(request, sweep.places(), Route::Staged, uses);
            sweep
                .finish_slow(&load, self.now)
                .is_some_and(|finish| finish <= by)
        };
        let count = (least..lanes.len()).find(holds).unwrap_or(lanes.len());
        let coded = request.replica.missing_bytes();
        let count = self.roomy(request, id, &lanes, count, coded);
        lanes[..count].to_vec()
    }
}
