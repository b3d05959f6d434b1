//! Deliver-by of requests: promised or not, and never late in silence.

use alloc::{string::String, vec::Vec};
use core::time::Duration;
use posthaste_types::{Bytes, DepotId, RequestId, Timestamp};

use super::outlook::{Delivery, OutOfSight};
use crate::{
    Mind,
    admission::Verdict,
    books::Request,
    contract::{DeliveryReason, DeliveryView, Happening, Outbox, Reason, WouldBuy},
    outlook::{Belief, Promised},
};

/// Time after its submission in which no danger is reported.
const GRACE_MAX: Duration = Duration::from_secs(3);

impl Mind {
    /// Returns the flaw of its deliver-by, whatever the rates.
    pub(crate) fn find_flaw_of_delivery(&self, request: &Request) -> Option<Reason> {
        if let Some(name) = self.find_store_to_gather(request) {
            let why = DeliveryReason::GathersNothing { name };
            return Some(Reason::Delivery { why });
        }
        let deliver_by = request.wishes.deliver_by?;
        if request.lead().is_none() {
            return Some(Reason::Delivery {
                why: DeliveryReason::NoDestination,
            });
        }
        (deliver_by <= self.now).then_some(Reason::Delivery {
            why: DeliveryReason::Passed { deliver_by },
        })
    }

    /// Returns the name of a destination in a store, which would have to gather what the centre
    /// does not send it, and can't.
    fn find_store_to_gather(&self, request: &Request) -> Option<String> {
        let is_straight = request.spec.code.parity() == 0
            && request.destinations().count() == 1
            && request.depot_lanes().next().is_none();
        let mut depots = request.destinations().map(|lane| request.lanes[lane].depot);
        let store = depots.find(|depot| !is_straight && self.stores(*depot));
        store.map(|depot| self.name_of(depot))
    }

    /// Weighs a newcomer so that it is delivered in time too; if it can't be, returns the reason.
    pub(crate) fn weigh_delivered(
        &self,
        id: RequestId,
        request: &mut Request,
        left: &Promised,
        weigh: impl Fn(&Self, &mut Request, &Promised) -> Verdict,
    ) -> Result<Verdict, Reason> {
        let Some(by) = request.wishes.deliver_by else {
            return Ok(weigh(self, request, left));
        };
        request.due.safe_by = Some(by);
        let verdict = weigh(self, request, left);
        let Some(first) = self.would_deliver(id, request, left, &verdict, Some(by), None) else {
            return self.without_hurry(id, request, left, weigh);
        };
        match first {
            (Ok(found), None) if found.finish <= by => {
                request.due.safe_by = Some(by - found.after());
                Ok(verdict)
            }
            (Ok(found), None) => {
                // If it is safe earlier, over more depots, it may be delivered in time.
                request.due.safe_by = Some(by - found.after());
                let verdict = weigh(self, request, left);
                match self.would_deliver(id, request, left, &verdict, Some(by), None) {
                    Some((Ok(found), None)) if found.finish <= by => Ok(verdict),
                    _ => self.without_hurry(id, request, left, weigh),
                }
            }
            _ => self.without_hurry(id, request, left, weigh),
        }
    }

    /// Returns when it could be delivered at the earliest, as it can't be in time.
    fn without_hurry(
        &self,
        id: RequestId,
        request: &mut Request,
        left: &Promised,
        weigh: impl Fn(&Self, &mut Request, &Promised) -> Verdict,
    ) -> Result<Verdict, Reason> {
        let Some(deliver_by) = request.wishes.deliver_by else {
            return Ok(weigh(self, request, left));
        };
        request.due.safe_by = None;
        let verdict = weigh(self, request, left);
        let Some((found, crowded_out)) =
            self.would_deliver(id, request, left, &verdict, Some(deliver_by), None)
        else {
            return Ok(verdict);
        };
        if let (Ok(kept), None) = (found, crowded_out)
            && kept.finish <= deliver_by
        {
            request.due.safe_by = Some(deliver_by - kept.after());
            return Ok(verdict);
        }
        // After all promised deliveries it makes none late.
        let last = self.would_deliver(id, request, left, &verdict, None, None);
        let earliest = last.and_then(|(found, _)| Some(found.ok()?.finish));
        let earliest = earliest.map(|at| at.max(deliver_by));
        let mut would_buy = self.offers_of_delivery(id, request, left, &verdict);
        would_buy.extend(earliest.map(|deliver_by| WouldBuy::DeliveredLater { deliver_by }));
        if let Some(other) = crowded_out {
            return Err(Reason::Delivery {
                why: DeliveryReason::CrowdsOut {
                    request: other,
                    earliest,
                    deliver_by,
                    would_buy,
                },
            });
        }
        let (last, hindrance) = match found {
            Ok(found) => (found.last, found.hindrance),
            Err(away) => (away.last, away.hindrance),
        };
        Err(Reason::Delivery {
            why: DeliveryReason::Infeasible {
                name: self.name_of(last),
                hindrance,
                earliest,
                deliver_by,
                would_buy,
            },
        })
    }

    /// Returns when it would be delivered if it were accepted like this; none if it is not.
    fn would_deliver(
        &self,
        id: RequestId,
        request: &Request,
        left: &Promised,
        verdict: &Verdict,
        by: Option<Timestamp>,
        supposed: Option<DepotId>,
    ) -> Option<(Result<Delivery, OutOfSight>, Option<RequestId>)> {
        let Verdict::Admit {
            route,
            active,
            finish,
            is_leftover: false,
            ..
        } = verdict
        else {
            return None;
        };
        let mut taken = request.clone();
        taken.route = *route;
        for (place, lane) in taken.lanes.iter_mut().enumerate() {
            lane.is_active = active.contains(&place);
        }
        taken.due.straight = self.straight_of(&taken, left);
        Some(self.delivery_of_newcomer(id, &taken, *finish, by, supposed))
    }

    /// Returns what a newcomer would get straight to the destination on which plans count.
    fn straight_of(&self, request: &Request, left: &Promised) -> Bytes {
        let load = self.promised_load(request, left);
        let scene = left.scene(Belief::Hopeful);
        let outcome = scene.supplies.early(&load, self.now);
        let lead = request.lead().map(|lane| request.lanes[lane].depot);
        let lead = lead.and_then(|depot| left.places.get(&depot));
        let mut placed = load.placed(&outcome);
        let found = placed.find(|(at, _)| lead.is_some_and(|lead| *lead as usize == *at));
        found.map_or(Bytes::ZERO, |(_, bytes)| bytes)
    }

    /// Returns what would deliver it in time, each tried.
    fn offers_of_delivery(
        &self,
        id: RequestId,
        request: &Request,
        left: &Promised,
        verdict: &Verdict,
    ) -> Vec<WouldBuy> {
        let Some(by) = request.wishes.deliver_by else {
            return Vec::new();
        };
        let mut offers = Vec::new();
        for lane in request.destinations() {
            let depot = request.lanes[lane].depot;
            let is_away = self
                .depots
                .get(&depot)
                .is_some_and(|depot| !depot.is_expected());
            if is_away
                && let Some((Ok(found), None)) =
                    self.would_deliver(id, request, left, verdict, Some(by), Some(depot))
                && found.finish <= by
            {
                offers.push(WouldBuy::DestinationBack {
                    name: self.name_of(depot),
                    finish: found.finish,
                });
            }
        }
        for lane in request
            .destinations()
            .filter(|_| request.whole_lanes().count_ones() > 1)
        {
            let mut fewer = request.clone();
            fewer.do_without(lane);
            if let Some((Ok(found), None)) =
                self.would_deliver(id, &fewer, left, verdict, Some(by), None)
                && found.finish <= by
            {
                offers.push(WouldBuy::WithoutDestination {
                    name: self.name_of(request.lanes[lane].depot),
                    finish: found.finish,
                });
            }
        }
        offers.truncate(2);
        offers
    }

    /// Returns the state of its delivery, if it has destinations.
    pub(crate) fn delivery_view(&self, request: &Request) -> Option<DeliveryView> {
        request.lead()?;
        let due = &request.due;
        Some(DeliveryView {
            deliver_by: request.wishes.deliver_by,
            finish: due
                .finish
                .filter(|_| request.delivery.is_some() && due.whole_at.is_none()),
            is_assumed: due.is_assumed,
            at_risk: due.at_risk,
            missed: due.missed,
            whole_at: due.whole_at,
        })
    }

    /// Sets, changes or removes the deliver-by at a user's request.
    pub(crate) fn on_delivery_moved(
        &mut self,
        id: RequestId,
        deliver_by: Option<Timestamp>,
        out: &mut Outbox,
    ) {
        if let Some(mut held) = self.release_held(id) {
            held.wishes.deliver_by = deliver_by;
            return self.answer(id, held, true, out);
        }
        let Some(request) = self.requests.get_mut(&id) else {
            return;
        };
        if request.is_final() || request.lead().is_none() || request.delivery.is_none() {
            return;
        }
        let from = core::mem::replace(&mut request.wishes.deliver_by, deliver_by);
        let due = &mut request.due;
        (due.is_leftover, due.at_risk, due.missed) = (false, false, false);
        (due.late_ticks, due.on_time_ticks, due.safe_by) = (0, 0, None);
        let to = deliver_by;
        self.remember(
            id,
            "delivery moved".into(),
            Reason::Delivery {
                why: DeliveryReason::NewDeliverBy { from, to },
            },
        );
        self.bring_up_to_date();
        self.look_at_deliveries();
        self.look_now();
    }

    /// Records which of being safe and being delivered in time leaves less time, if both are
    /// wished.
    pub(crate) fn remember_what_binds(&mut self, id: RequestId) {
        let Some(request) = self.requests.get(&id) else {
            return;
        };
        let finishes = request.due.finish.zip(request.finish);
        let Some(((due, safe), deliver_by)) = finishes.zip(request.deliver_by()) else {
            return;
        };
        let deadline = request.spec.deadline;
        let slack = |by: Timestamp, finish: Timestamp| by.slack_micros(finish);
        let is_delivery = slack(deliver_by, due.p90) <= slack(deadline, safe.p90);
        let reason = Reason::Delivery {
            why: DeliveryReason::Binds {
                deadline,
                deliver_by,
                is_delivery,
            },
        };
        self.remember(id, String::from("what binds"), reason);
    }

    /// Reviews deliveries at a tick: their forecasts, and the reports these need.
    pub(crate) fn review_deliveries(&mut self, out: &mut Outbox) {
        self.look_at_deliveries();
        for id in self.index.due().clone() {
            self.review_delivery(id, out);
        }
    }

    fn review_delivery(&mut self, id: RequestId, out: &mut Outbox) {
        let settings = (self.settings.behind_ticks, self.settings.recovered_ticks);
        let (now, Some(request)) = (self.now, self.requests.get_mut(&id)) else {
            return;
        };
        let (Some(by), submitted) = (request.deliver_by(), request.submitted) else {
            return;
        };
        let is_whole = request.is_whole();
        let due = &mut request.due;
        if due.missed {
            return;
        }
        due.whole_at = is_whole.then(|| due.whole_at.unwrap_or(now));
        let finish = if is_whole {
            due.whole_at
        } else {
            due.finish.map(|finish| finish.p90)
        };
        let is_late = finish.is_none_or(|finish| finish > by);
        let is_clear = finish.is_some_and(|finish| finish + by.since(now) / 20 <= by);
        due.late_ticks = if is_late {
            due.late_ticks.saturating_add(1)
        } else {
            0
        };
        due.on_time_ticks = if is_clear {
            due.on_time_ticks.saturating_add(1)
        } else {
            0
        };
        let grace = (by.since(submitted) / 10).min(GRACE_MAX);
        if !due.at_risk && due.late_ticks >= settings.0 && now >= submitted + grace {
            self.say_delivery_at_risk(id, out);
        } else if due.at_risk && due.on_time_ticks >= settings.1 {
            due.at_risk = false;
            let finish = finish.unwrap_or(by);
            let reason = Reason::Delivery {
                why: DeliveryReason::Suffices {
                    finish,
                    deliver_by: by,
                },
            };
            self.tell(
                out,
                Some(id),
                None,
                Happening::DeliveryOnTime { finish },
                reason,
            );
        }
    }

    /// Reports that it may come too late, and the obstacle.
    pub(crate) fn say_delivery_at_risk(&mut self, id: RequestId, out: &mut Outbox) {
        let now = self.now;
        let Some(request) = self.requests.get_mut(&id) else {
            return;
        };
        (request.due.at_risk, request.due.on_time_ticks) = (true, 0);
        let finish = request.due.finish;
        let finish = finish.map_or(Happening::NO_FINISH, |finish| finish.p90.max(now));
        if let Some(reason) = self.reason_undelivered(id) {
            self.tell(
                out,
                Some(id),
                None,
                Happening::DeliveryAtRisk { finish },
                reason,
            );
        }
    }

    /// Returns the last destination, and its obstacle.
    fn reason_undelivered(&self, id: RequestId) -> Option<Reason> {
        let request = self.requests.get(&id)?;
        let due = &request.due;
        let last = due
            .last
            .or(request.lead().map(|lane| request.lanes[lane].depot))?;
        Some(Reason::Delivery {
            why: DeliveryReason::Behind {
                name: self.name_of(last),
                hindrance: due.hindrance,
                finish: due.finish.map(|finish| finish.p90.max(self.now)),
                deliver_by: request.deliver_by()?,
            },
        })
    }

    /// Reports danger at the last call, and a missed deliver-by. Never silent.
    pub(crate) fn call_deliveries(&mut self, called: &[RequestId], out: &mut Outbox) {
        let now = self.now;
        for &id in called {
            let Some(request) = self.requests.get_mut(&id) else {
                continue;
            };
            let Some(by) = request.deliver_by().filter(|_| !request.due.missed) else {
                continue;
            };
            if request.is_whole() {
                request.due.whole_at.get_or_insert(now);
                continue;
            }
            request.due.whole_at = None;
            let calls_at = (by - self.settings.tick).max(request.submitted);
            if !request.due.at_risk && calls_at <= now {
                self.say_delivery_at_risk(id, out);
            }
            if by <= now
                && let Some(reason) = self.reason_undelivered(id)
                && let Some(request) = self.requests.get_mut(&id)
            {
                (request.due.missed, request.due.safe_by) = (true, None);
                self.tell(out, Some(id), None, Happening::DeliveryMissed, reason);
            }
        }
    }
}

impl Request {
    /// Returns whether every destination has all of it, whether it is up or not.
    pub(crate) fn is_whole(&self) -> bool {
        let chunks = self.replica.chunks();
        self.destinations()
            .all(|lane| self.replica.stored(lane).0 == chunks)
    }

    /// Returns why it counts as delivered: in time or late, if it had a deliver-by.
    pub(crate) fn reason_whole(&self, now: Timestamp) -> Reason {
        let destinations = self.whole_lanes().count_ones();
        let whole_at = self.due.whole_at.unwrap_or(now);
        match self.wishes.deliver_by {
            None => Reason::Delivery {
                why: DeliveryReason::WholeThere { destinations },
            },
            Some(deliver_by) if whole_at <= deliver_by => Reason::Delivery {
                why: DeliveryReason::InTime {
                    destinations,
                    whole_at,
                    deliver_by,
                },
            },
            Some(deliver_by) => Reason::Delivery {
                why: DeliveryReason::Late {
                    destinations,
                    whole_at,
                    deliver_by,
                },
            },
        }
    }
}
