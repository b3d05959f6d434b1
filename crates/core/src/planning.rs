//! Plans over time (`docs/algorithms/time-expanded-plan.md`): asked for if taking turns by deadline
//! is not enough, and followed as quotas.
//!
//! A plan says which request may put how much on which depot. That, and not when, is what turns
//! can't find. Within its quotas each request still takes its turn by deadline, which on one depot
//! is the best there is. So a plan in force needs no other forecast and no other promise than the
//! greedy one's. That forecast also judges its worth: a plan that keeps nothing more is rejected.

mod draw;
mod follow;
mod hold;

use alloc::{
    collections::{BTreeMap, BTreeSet},
    vec::Vec,
};
use core::time::Duration;
use posthaste_plan::horizon::{Problem, Schedule};
use posthaste_types::{RequestId, Timestamp, record};

use crate::{
    Mind, Settings,
    books::{Request, Urgency},
    contract::{Command, Outbox, Reason},
    outlook::{Belief, give_back},
    review::reason_late,
};

record! {
    /// Demand of a problem, as the books know it.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub(crate) struct Drawn {
        request: RequestId,
        /// Link of each lane, and the pieces it held; none if the depot can't be used.
        lanes: Vec<Option<(usize, u32)>>,
    }
}

record! {
    /// Plan that was asked for.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub(crate) struct Asked {
        at: Timestamp,
        /// Newcomer whose answer waits for it; none if it is for accepted requests.
        newcomer: Option<RequestId>,
        problem: Problem,
        demands: Vec<Drawn>,
    }
}

record! {
    /// State of plans over time.
    #[derive(Debug, Clone, PartialEq, Eq, Default)]
    pub(crate) struct Planning {
        /// Number of the last one asked for.
        number: u64,
        /// Plan in progress.
        asked: Option<Asked>,
        /// Time before which none is asked for, except for newcomers.
        next_at: Timestamp,
        /// Time from the last to that.
        pause: Duration,
        /// Newcomers whose answer waits.
        held: BTreeMap<RequestId, Request>,
        /// Requests that have quotas.
        in_force: BTreeSet<RequestId>,
        /// Consecutive looks at which one of those would be late.
        late_looks: u32,
    }
}

impl Planning {
    /// Returns when time alone changes something about it.
    pub(crate) fn alarm(&self, settings: &Settings) -> Option<Timestamp> {
        self.asked
            .as_ref()
            .map(|asked| asked.at + settings.plan_wait)
    }

    /// Returns whether decoded bytes made a usable value.
    pub(crate) fn is_sound(&self) -> bool {
        let is_sound = |asked: &Asked| {
            asked.problem.check().is_ok() && asked.demands.len() == asked.problem.demands.len()
        };
        let is_new = |request: &Request| {
            request.lanes.len() <= Request::LANES_MAX
                && request.replica.chunks() == request.spec.chunks()
                && request.replica.is_sound(request.lanes.len())
        };
        self.asked.as_ref().is_none_or(is_sound) && self.held.values().all(is_new)
    }

    /// Returns whether the answer to this newcomer waits.
    pub(crate) fn is_held(&self, id: RequestId) -> bool {
        self.held.contains_key(&id)
    }
}

impl Mind {
    /// Reviews the plan after a look at everything. It takes back quotas that are no longer needed,
    /// or all if the plan is contradicted. It asks for a plan if some request would be late even at
    /// p50 and no depot was lost recently. At p10 many a danger passes by itself. If depots fail,
    /// the widest spread is best: a plan then costs more deadlines than it keeps.
    pub(crate) fn review_plan(&mut self, out: &mut Outbox) {
        self.lift_quotas();
        self.doubt_plan();
        let planning = &self.planning;
        if planning.asked.is_some() || self.now < planning.next_at || !self.is_plan_allowed(2) {
            return;
        }
        if self.depots.values().any(|depot| depot.is_shaky(self.now)) {
            return;
        }
        let late_ticks = self.settings.behind_ticks;
        let mut all = self
            .index
            .after(None)
            .filter(|urgency| !urgency.is_leftover);
        let late = all.find_map(|urgency| {
            let request = self.requests.get(&urgency.request)?;
            let finish = request.finish.map(|finish| finish.p50);
            let is_late = finish.is_none_or(|finish| finish > request.spec.deadline);
            let is_late = is_late && !request.is_paused();
            (is_late && request.late_ticks >= late_ticks).then(|| reason_late(request, self.now))
        });
        drop(all);
        match late {
            Some(reason) => {
                self.ask_for_plan(None, reason, out);
            }
            None => self.planning.pause = Duration::ZERO,
        }
    }

    /// Returns whether there are at least so many requests, and not too many, for a plan over time.
    fn is_plan_allowed(&self, least: usize) -> bool {
        let most = self.settings.plan_requests_max as usize;
        (least..=most).contains(&self.index.moving())
    }

    /// Asks for a plan, with a newcomer or without. Returns whether there was anything to ask.
    fn ask_for_plan(
        &mut self,
        newcomer: Option<(RequestId, &Request)>,
        reason: Reason,
        out: &mut Outbox,
    ) -> bool {
        let Some(asked) = self.draw(newcomer) else {
            self.wait_longer();
            return false;
        };
        self.planning.number += 1;
        out.commands.push(Command::Solve {
            number: self.planning.number,
            problem: asked.problem.clone(),
            effort: self.settings.plan_effort,
            reason,
        });
        self.planning.asked = Some(asked);
        true
    }

    /// Doubles the pause, as the last plan gained nothing.
    fn wait_longer(&mut self) {
        let (least, most) = (self.settings.plan_every, self.settings.plan_every_max);
        let pause = self.planning.pause;
        self.planning.pause = (pause * 2).clamp(least, most);
        self.planning.next_at = self.now + self.planning.pause;
    }

    /// Handles the answer to the plan asked for last; answers to others come too late.
    pub(crate) fn take_plan(&mut self, number: u64, schedule: Option<&Schedule>, out: &mut Outbox) {
        if number == self.planning.number
            && let Some(asked) = self.planning.asked.take()
        {
            let schedule = schedule.filter(|schedule| schedule.check(&asked.problem).is_ok());
            self.end_asking(&asked, schedule, out);
        }
    }

    /// Gives up waiting for a plan that did not come.
    pub(crate) fn give_up_plan(&mut self, out: &mut Outbox) {
        let wait = self.settings.plan_wait;
        let overdue = |asked: &mut Asked| asked.at + wait <= self.now;
        if let Some(asked) = self.planning.asked.take_if(overdue) {
            self.end_asking(&asked, None, out);
        }
    }

    /// Asks again for a plan after a restart of the driver, which lost it, if an answer waits.
    pub(crate) fn ask_for_plan_again(&mut self, out: &mut Outbox) {
        self.planning.asked = None;
        self.answer_held(out);
    }

    fn end_asking(&mut self, asked: &Asked, schedule: Option<&Schedule>, out: &mut Outbox) {
        match (asked.newcomer, schedule) {
            (Some(id), schedule) => self.answer_newcomer(id, asked, schedule, out),
            (None, Some(schedule)) => self.replan(asked, schedule),
            (None, None) => self.wait_longer(),
        }
        self.answer_held(out);
    }

    /// Adopts a plan for accepted requests, if it keeps all deadlines that turns keep, and more.
    fn replan(&mut self, asked: &Asked, schedule: &Schedule) {
        let before = self.kept(Belief::P50, None, None);
        let kept_before = self.follow(asked, schedule, None);
        let after = self.kept(Belief::P50, None, None);
        let keeps_all = before.keys().all(|id| after.contains_key(id));
        if !keeps_all || after.len() <= before.len() {
            self.unfollow(kept_before);
            self.wait_longer();
            return;
        }
        let more = u32::try_from(after.len() - before.len()).unwrap_or(u32::MAX);
        self.tell_plan(&kept_before, &Reason::Rearranged { more });
        self.planning.pause = self.settings.plan_every;
        self.planning.next_at = self.now + self.planning.pause;
    }

    /// Returns whether there are several requests to put in order, and not too many to try orders.
    pub(crate) fn may_reorder(&self) -> bool {
        self.is_plan_allowed(2)
    }

    /// Returns which requests would be done by the deadline, and when, if all take their turns
    /// within their quotas. A newcomer can be added, or one of them left out.
    pub(crate) fn kept(
        &self,
        belief: Belief,
        newcomer: Option<(RequestId, &Request)>,
        without: Option<RequestId>,
    ) -> BTreeMap<RequestId, Timestamp> {
        let places = self.places();
        let mut supplies = self.supplies(belief);
        let all = self
            .index
            .after(None)
            .filter(|urgency| !urgency.is_leftover && Some(urgency.request) != without);
        let mut order: Vec<Urgency> = all.collect();
        order.extend(newcomer.map(|(id, request)| Urgency::of_newcomer(id, request)));
        order.sort_unstable();
        let mut kept = BTreeMap::new();
        for urgency in order {
            let id = urgency.request;
            let newcomer = newcomer.filter(|(newcomer, _)| *newcomer == id);
            let known = newcomer.map(|(_, request)| request);
            let Some(request) = known.or_else(|| self.requests.get(&id)) else {
                continue;
            };
            if known.is_none() && request.is_paused() {
                continue;
            }
            give_back(&mut supplies, &self.space_of(id, &places));
            let load = self.load_now(request, &places);
            let outcome = supplies.early(&load, self.now);
            if let Some(finish) = outcome.edge.filter(|edge| *edge <= urgency.deadline) {
                kept.insert(id, finish);
            }
            supplies.take(&load, &outcome);
        }
        kept
    }
}
