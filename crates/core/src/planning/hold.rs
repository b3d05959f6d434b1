//! Newcomers that turns would refuse: their answer waits for one plan, and no longer.

use posthaste_plan::horizon::Schedule;
use posthaste_types::RequestId;

use super::{
    Asked,
    follow::{Way, give_quotas},
};
use crate::{
    Mind,
    books::Request,
    contract::{Outbox, Reason},
    outlook::Belief,
};

impl Mind {
    /// Holds the answer to a newcomer that turns would refuse, if a plan could accept it. Others
    /// must be in its way, and without them it would be on time. Returns it if not.
    pub(crate) fn hold(
        &mut self,
        id: RequestId,
        request: Request,
        reason: &Reason,
        out: &mut Outbox,
    ) -> Option<Request> {
        // If space is missing, plans were found to promise more than they kept.
        let is_crowded_out = matches!(reason, Reason::Infeasible { .. });
        let has_time = request.spec.deadline.since(self.now) > self.settings.plan_wait * 2;
        let has_room = self.planning.held.len() < self.settings.plan_held_max as usize;
        let may_wait = is_crowded_out && has_time && has_room && self.is_plan_allowed(1);
        if !may_wait || !self.fits_alone(&request) {
            return Some(request);
        }
        let waits_for_another = |asked: &Asked| asked.newcomer.is_some();
        if !self.planning.asked.as_ref().is_some_and(waits_for_another)
            && !self.ask_for_plan(Some((id, &request)), reason.clone(), out)
        {
            return Some(request);
        }
        self.planning.held.insert(id, request);
        None
    }

    /// Returns whether the newcomer would be on time without any others.
    fn fits_alone(&self, request: &Request) -> bool {
        let nobody = self.begin_sweep().into_promised();
        self.try_hopeful(request, &nobody).is_some()
    }

    /// Removes and returns a newcomer whose answer waits.
    pub(crate) fn release_held(&mut self, id: RequestId) -> Option<Request> {
        self.planning.held.remove(&id)
    }

    /// Returns a newcomer whose answer waits.
    pub(crate) fn held_mut(&mut self, id: RequestId) -> Option<&mut Request> {
        self.planning.held.get_mut(&id)
    }

    /// Answers newcomers for which no plan is in progress any more. Each is weighed again, and
    /// waits for a plan of its own if that refuses it.
    pub(super) fn answer_held(&mut self, out: &mut Outbox) {
        while self.planning.asked.is_none()
            && let Some((id, request)) = self.planning.held.pop_first()
        {
            self.answer(id, request, true, out);
        }
    }

    /// Answers the newcomer for which a plan was asked. It is accepted if the plan keeps its
    /// deadline and all that are kept without, otherwise judged as if no plan had been asked for.
    pub(super) fn answer_newcomer(
        &mut self,
        id: RequestId,
        asked: &Asked,
        schedule: Option<&Schedule>,
        out: &mut Outbox,
    ) {
        let Some(mut request) = self.planning.held.remove(&id) else {
            return;
        };
        let place = asked.demands.iter().position(|drawn| drawn.request == id);
        let kept = place.zip(schedule).filter(|&(place, schedule)| {
            schedule.shortfalls[place].is_none() && request.spec.deadline > self.now
        });
        let Some((place, schedule)) = kept else {
            self.answer(id, request, false, out);
            return;
        };
        let (belief, was) = (Belief::Hopeful, Way::of(&request));
        let before = self.kept(belief, None, None);
        let fed_before = self.follow(asked, schedule, Some(id));
        let pieces = asked.pieces(schedule, place, &request);
        give_quotas(&mut request, &pieces);
        let after = self.kept(belief, Some((id, &request)), None);
        let keeps_all = before.keys().all(|id| after.contains_key(id));
        let Some(&finish) = after.get(&id).filter(|_| keeps_all) else {
            self.unfollow(fed_before);
            was.put_back(&mut request);
            self.answer(id, request, false, out);
            return;
        };
        let deadline = request.spec.deadline;
        let others = self.tell_plan(&fed_before, &Reason::Rearranged { more: 1 });
        let reason = Reason::Planned {
            finish,
            deadline,
            others,
        };
        let what = self.shares_of(&request);
        self.planning.in_force.insert(id);
        self.take_planned(id, request, finish, reason, out);
        self.remember(id, what, Reason::Rearranged { more: 1 });
    }
}
