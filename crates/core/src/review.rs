//! Passage of time: deadlines, stalls, and every tick a look at risk and course.

use alloc::vec::Vec;
use core::time::Duration;
use posthaste_types::{Bytes, RequestId, Timestamp};

use crate::{
    Mind,
    books::{Request, Route, Urgency},
    contract::{Command, Fault, Forecast, Happening, Outbox, Reason},
    outlook::{SLICE, SLICE_PAUSE, Sweep},
};

impl Mind {
    /// Handles the passage of time: depots are accepted again, deadlines are reported, and a tick
    /// begins a look at everything.
    pub(crate) fn on_time(&mut self, out: &mut Outbox) {
        for id in self.index.timed(self.now) {
            // A depot whose rest is over is touched, and so looked at.
            self.depots.touch(id);
            self.take_back_depot(id, out);
            self.keep_hours(id, out);
            self.count_left(id, out);
        }
        for id in self.index.resumed(self.now) {
            self.requests.touch(id);
            self.release_if_safe(id, out);
        }
        let is_tick = self.tick_at.is_some_and(|tick_at| tick_at <= self.now);
        if is_tick {
            self.tick_at = None;
            self.settle_way_out(out);
            // This touches every depot: once a tick all are tried, whatever is thought to have
            // changed.
            self.look_at_links();
            self.judge_rest();
            debug_assert!(self.is_balanced(), "flights, lanes and links differ");
            self.find_stalled(out);
            self.recall_waiting(out);
            self.ask_again(out);
            self.probe_asked(out);
            self.review_pushes(out);
            self.bring_up_to_date();
            self.set_tick();
            if self.sweep.is_none() && !self.index.is_idle() {
                self.shares.settle(self.now, &self.settings);
                self.sweep = Some(self.begin_sweep());
            }
        }
        if let Some(sweep) = self.sweep.take_if(|sweep| sweep.goes_on <= self.now) {
            self.sweep_on(sweep, out);
        }
        if is_tick {
            self.review_deliveries(out);
        }
        self.call_deadlines(out);
        self.call_circuits(out);
        self.give_up_plan(out);
    }

    /// Looks at the next requests of a sweep: when each will be done, and what to change about it.
    fn sweep_on(&mut self, mut sweep: Sweep, out: &mut Outbox) {
        for _ in 0..SLICE {
            let Some(urgency) = self.next_in(&sweep) else {
                self.end_sweep(sweep);
                self.review_order();
                self.review_plan(out);
                return;
            };
            let id = urgency.request;
            if self.takes_later_turn(id, urgency) {
                continue;
            }
            if self.requests.get(&id).is_some_and(Request::is_paused) {
                // Its finish is reported as if it resumed, and takes nothing.
                let fares = self.look_at(&mut sweep, id);
                self.review_risk(id, out);
                self.pass(&mut sweep, urgency, fares.as_ref());
                continue;
            }
            self.review_purse(id);
            self.review_pins(id);
            let fares = self.look_at(&mut sweep, id);
            self.give_up_if_hopeless(id, out);
            self.review_risk(id, out);
            self.review_reservations(id, &sweep, out);
            self.review_fan_out(id, &sweep, out);
            self.review_space(id, out);
            self.review_tuning(id);
            self.send_duplicates(id, out);
            self.probe_for(id, out);
            self.try_way_for(id, out);
            self.pass(&mut sweep, urgency, fares.as_ref());
        }
        sweep.goes_on = self.now + SLICE_PAUSE;
        self.sweep = Some(sweep);
    }

    /// Updates the turn of a request that can't be on time. Returns whether it comes later now.
    fn takes_later_turn(&mut self, id: RequestId, before: Urgency) -> bool {
        let request = self.requests.get(&id);
        let Some(request) = request.filter(|request| request.is_leftover) else {
            return false;
        };
        let turn = self.shares.turn(request.wishes.claim(), &self.settings);
        if turn == request.uncommon.turn {
            return false;
        }
        if let Some(request) = self.requests.get_mut(&id) {
            request.uncommon.turn = turn;
        }
        self.bring_up_to_date();
        Urgency { turn, ..before } > before
    }

    /// Returns whether links and lanes count the existing flights.
    fn is_balanced(&self) -> bool {
        let links = self.depots.iter().all(|(id, depot)| {
            let flights = self.transfers.to(*id, None);
            let (count, bytes) = flights.fold((0, Bytes::ZERO), |(count, bytes), (_, flight)| {
                (count + 1, bytes + flight.bytes)
            });
            (count, bytes) == (depot.link.flights, depot.link.in_flight)
        });
        let lanes = self.requests.iter().all(|(id, request)| {
            request.lanes.iter().all(|lane| {
                self.transfers.to(lane.depot, Some(*id)).count() == lane.in_flight as usize
            })
        });
        links && lanes && self.is_push_balanced()
    }

    /// Reports danger at the last call and a miss at the deadline. Never silent.
    fn call_deadlines(&mut self, out: &mut Outbox) {
        self.bring_up_to_date();
        let now = self.now;
        let called = self.index.called(now);
        self.call_deliveries(&called, out);
        for id in called {
            let Some(request) = self.requests.get(&id).filter(|request| request.is_moving()) else {
                continue;
            };
            let deadline = request.spec.deadline;
            if !request.at_risk && request.safe_at.is_none() && self.last_call(request) <= now {
                self.say_at_risk(id, out);
            }
            let Some(request) = self.requests.get_mut(&id) else {
                continue;
            };
            if request.missed || deadline > now {
                continue;
            }
            request.missed = true;
            if request.safe_at.is_none() {
                request.go_last(self.shares.turn(request.wishes.claim(), &self.settings));
                if let Some(reason) = self.find_why_late(id) {
                    self.tell(out, Some(id), None, Happening::Missed, reason);
                }
            }
        }
    }

    fn review_risk(&mut self, id: RequestId, out: &mut Outbox) {
        const GRACE_MAX: Duration = Duration::from_secs(3);
        let settings = (self.settings.behind_ticks, self.settings.recovered_ticks);
        let (now, Some(request)) = (self.now, self.requests.get_mut(&id)) else {
            return;
        };
        if !request.is_moving() {
            return;
        }
        if request.missed {
            // Nothing more is reported of it, but another way may still end it sooner.
            request.late_ticks = request.late_ticks.saturating_add(1);
            return;
        }
        let deadline = request.spec.deadline;
        let finish = request.finish.map(|finish| finish.p90);
        let grace = (deadline.since(request.submitted) / 10).min(GRACE_MAX);
        let is_late = finish.is_none_or(|finish| finish > deadline);
        let is_clear = finish.is_some_and(|finish| {
            finish + deadline.since(now) / 20 <= deadline && finish <= deadline
        });
        request.late_ticks = if is_late { request.late_ticks + 1 } else { 0 };
        request.on_time_ticks = if is_clear {
            request.on_time_ticks + 1
        } else {
            0
        };
        if !request.at_risk && request.late_ticks >= settings.0 && now >= request.submitted + grace
        {
            // Once the sufficient part is there, the rest follows when it can.
            if request.safe_at.is_some() && request.survives_what_suffices() {
                request.late_ticks = 0;
            } else {
                self.say_at_risk(id, out);
            }
        } else if request.at_risk && request.on_time_ticks >= settings.1 {
            request.at_risk = false;
            let finish = finish.unwrap_or(deadline);
            let reason = Reason::Ahead {
                fan_out: request.fan_out(),
                finish,
                deadline,
            };
            self.tell(out, Some(id), None, Happening::OnTime { finish }, reason);
        }
    }

    pub(crate) fn say_at_risk(&mut self, id: RequestId, out: &mut Outbox) {
        let now = self.now;
        let Some(request) = self.requests.get_mut(&id) else {
            return;
        };
        request.at_risk = true;
        request.on_time_ticks = 0;
        let finish = request
            .finish
            .map_or(Happening::NO_FINISH, |finish| finish.p90.max(now));
        let Some(reason) = self.find_why_late(id) else {
            return;
        };
        self.tell(out, Some(id), None, Happening::AtRisk { finish }, reason);
        if self.lighten(id) {
            // The sufficient part may be there already, and nothing else would report that.
            self.settle(id, out);
        }
    }

    /// Returns why a request is late, including that its depots are full.
    fn find_why_late(&self, id: RequestId) -> Option<Reason> {
        let request = self.requests.get(&id)?;
        let reason = reason_late(request, self.now);
        let is_stuck = matches!(reason, Reason::Infeasible { .. });
        let full = is_stuck.then(|| self.find_want_of_space(id, request));
        Some(full.flatten().unwrap_or(reason))
    }

    /// Returns the reason that enough depots are up, with too little space for what is left.
    fn find_want_of_space(&self, id: RequestId, request: &Request) -> Option<Reason> {
        let there = request.depot_lanes();
        let there = there.filter(|&lane| self.is_there(request, lane));
        let free = |lane: usize| {
            let depot = request.lanes[lane].depot;
            let free = self.depots.get(&depot)?.free;
            let free = self.index.space_for(id, depot, free);
            Some(free.min(request.replica.room_to_the_byte(lane)))
        };
        let free: Vec<Bytes> = there.filter_map(free).collect();
        let is_fed = request.route == Route::Staged;
        let holders = self.holders_with(request, free.len());
        let is_enough = holders >= usize::from(request.spec.code.total());
        let (needed, available) = (request.replica.missing_bytes(), free.into_iter().sum());
        let is_full = is_fed && is_enough && available < needed;
        is_full.then_some(Reason::NoSpace { needed, available })
    }

    /// Stops everything in flight for the request.
    pub(crate) fn abandon_all(&mut self, id: RequestId, reason: &Reason, out: &mut Outbox) {
        let Some(request) = self.requests.get(&id) else {
            return;
        };
        let depots: Vec<_> = request.lanes.iter().map(|lane| lane.depot).collect();
        for depot in depots {
            if self.end_flights(depot, Some(id)) > 0 {
                let reason = reason.clone();
                out.commands.push(Command::Abandon {
                    request: id,
                    depot,
                    reason,
                });
            }
        }
    }

    /// Stops what the centre sends for the request; depots go on among themselves if it sends
    /// nothing.
    pub(crate) fn abandon_sends(&mut self, id: RequestId, reason: &Reason, out: &mut Outbox) {
        let Some(request) = self.requests.get(&id) else {
            return;
        };
        let fed = request.lanes.iter().filter(|lane| lane.in_flight > 0);
        let depots: Vec<_> = fed.map(|lane| lane.depot).collect();
        for depot in depots {
            self.end_flights(depot, Some(id));
            out.commands.push(Command::Abandon {
                request: id,
                depot,
                reason: reason.clone(),
            });
        }
    }

    /// Declares depots lost that have fragments in flight without progress.
    fn find_stalled(&mut self, out: &mut Outbox) {
        let stalled: Vec<_> = self
            .depots
            .iter()
            .filter(|(_, depot)| {
                depot.is_up()
                    && depot.link.flights > 0
                    && depot.link.progress_at + self.settings.stall <= self.now
            })
            .map(|(id, _)| *id)
            .collect();
        for depot in stalled {
            let fault = Fault::Unreachable;
            self.lose_to_failures(depot, Reason::DepotLost { fault }, fault, out);
        }
    }

    /// Asks again for an inventory that was not answered.
    fn ask_again(&mut self, out: &mut Outbox) {
        let (now, wait) = (self.now, self.settings.inventory_wait);
        for id in self.index.asking().clone() {
            let Some(request) = self.requests.get_mut(&id) else {
                continue;
            };
            for lane in &mut request.lanes {
                if let Some(asked_at) = &mut lane.asked_at
                    && *asked_at + wait <= now
                {
                    *asked_at = now;
                    let reason = Reason::DepotBack;
                    out.commands.push(Command::Inventory {
                        request: id,
                        depot: lane.depot,
                        reason,
                    });
                }
            }
        }
    }

    /// Ends a request that no depot can ever serve: too many failed for good.
    fn give_up_if_hopeless(&mut self, id: RequestId, out: &mut Outbox) {
        let Some(request) = self.requests.get(&id) else {
            return;
        };
        let most = self.settings.fruitless_max;
        let has_hope = |lane: usize| {
            let depot = self.depots.get(&request.lanes[lane].depot);
            depot.is_some_and(|depot| depot.fruitless < most)
        };
        let staged = request.depot_lanes().filter(|&lane| has_hope(lane));
        let can_stage = staged.count() >= usize::from(request.spec.code.total());
        if can_stage || request.destinations().any(has_hope) {
            return;
        }
        let fault = request
            .stripes
            .values()
            .find_map(|stripe| stripe.last_fault);
        let fault = fault.unwrap_or(Fault::Unreachable);
        self.fail(
            id,
            Reason::GaveUp {
                fault,
                attempts: most,
            },
            out,
        );
    }
}

/// Returns why a request is late: its forecast, or that nothing can carry it.
pub(crate) fn reason_late(request: &Request, now: Timestamp) -> Reason {
    let deadline = request.spec.deadline;
    if let Some(pause) = request.pause() {
        let finish = request.finish.map(|finish| finish.p90.max(now));
        return pause.late(finish, deadline);
    }
    if let Some(budget) = request
        .wishes
        .budget_micro_usd
        .filter(|_| request.uncommon.is_broke)
    {
        let spent = request.spent_micro_usd;
        return Reason::BudgetSpent { spent, budget };
    }
    let is_late = |finish: &Forecast| finish.p90 > deadline || now >= deadline;
    let is_late = request.finish.as_ref().is_none_or(is_late);
    if let Some(why) = request.uncommon.pin_trouble.clone().filter(|_| is_late) {
        return Reason::Pinned { why };
    }
    match request.finish {
        // Unfinished work is never forecast to be done in the past.
        Some(finish) if finish.p90 > deadline || now >= deadline => {
            let finish = finish.p90.max(now);
            Reason::Behind {
                fan_out: request.fan_out(),
                finish,
                deadline,
            }
        }
        Some(finish) => Reason::SlackThin {
            fan_out: request.fan_out(),
            finish: finish.p90,
            deadline,
        },
        None => Reason::Infeasible {
            earliest: None,
            deadline,
            would_buy: Vec::new(),
        },
    }
}
