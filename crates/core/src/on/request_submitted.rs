use alloc::string::String;
use posthaste_types::{RequestId, Timestamp};

use crate::{
    Mind,
    admission::Verdict,
    books::{Account, Depot, Request},
    contract::{CircuitReason, Forecast, Happening, Outbox, Reason, RequestState},
    outlook::Promised,
};

/// Most requests before a new one that are searched for equal wishes.
const ALIKE_MAX: usize = 8;

impl Mind {
    /// Accepts a stage-out of a user, which starts within this step, or refuses it with the reason.
    /// A known number is ignored, so that a replay does no harm.
    pub(crate) fn on_request_submitted(
        &mut self,
        id: RequestId,
        mut request: Request,
        out: &mut Outbox,
    ) {
        let lent = self.lent.remove(&id);
        let is_known = self.requests.contains_key(&id) || self.planning.is_held(id);
        if is_known || self.is_stage_in(id) {
            return;
        }
        if let Some(lent) = lent.filter(|lent| !lent.is_empty()) {
            request.uncommon.lent = lent;
            self.wind_for_lent(&request);
        }
        self.answer(id, request, true, out);
    }

    /// Accepts a newcomer or refuses it. With `may_wait`, one that turns would refuse may wait for
    /// a plan over time.
    pub(crate) fn answer(
        &mut self,
        id: RequestId,
        mut request: Request,
        may_wait: bool,
        out: &mut Outbox,
    ) {
        for lane in &request.lanes {
            self.look_at_link(lane.depot);
        }
        request.uncommon.drained = self.drained_lanes(&request);
        request.set_kin(self.kin(&request));
        self.bring_up_to_date();
        let lead = self.best_destination(&request);
        lead.into_iter().for_each(|lead| request.set_lead(lead));
        let left = self.left_for_newcomers();
        let (verdict, tardy) = self.weigh_with_delivery(id, &mut request, &left);
        match verdict {
            Verdict::Refuse(reason) => {
                self.promised = Some(left);
                // A plan over time does not cover what destinations take from others.
                let may_wait = may_wait && request.wishes.deliver_by.is_none();
                let request = match may_wait && !request.spec.best_effort {
                    true => self.hold(id, request, &reason, out),
                    false => Some(request),
                };
                if let Some(request) = request {
                    self.refuse(id, request, reason, out);
                }
            }
            Verdict::Admit {
                route,
                active,
                reason,
                finish,
                is_leftover,
            } => {
                let (reason, _) = self.bargain(&request, &left, reason);
                request.route = route;
                request.is_leftover = is_leftover;
                request.due.is_leftover = is_leftover || tardy.is_some();
                if is_leftover {
                    request.uncommon.turn =
                        self.shares.turn(request.wishes.claim(), &self.settings);
                }
                let whole = request.whole_lanes();
                for (place, lane) in request.lanes.iter_mut().enumerate() {
                    // A destination that is away is fed as soon as it is back.
                    lane.is_active = active.contains(&place) || whole >> place & 1 == 1;
                }
                self.promised = Some(left);
                self.take_in(id, request, finish, reason, out);
                if let Some(reason) = tardy {
                    self.remember(id, "delivery can't be in time".into(), reason);
                    self.say_delivery_at_risk(id, out);
                }
            }
        }
    }

    /// Weighs a newcomer so that it is delivered in time; returns the reason with one that is
    /// accepted although it can't be.
    fn weigh_with_delivery(
        &self,
        id: RequestId,
        request: &mut Request,
        left: &Promised,
    ) -> (Verdict, Option<Reason>) {
        match self.weigh_delivered(id, request, left, Self::weigh_newcomer) {
            Ok(verdict) => (verdict, None),
            Err(reason) if request.spec.best_effort => {
                (self.weigh_newcomer(request, left), Some(reason))
            }
            Err(reason) => (Verdict::Refuse(reason), None),
        }
    }

    fn refuse(&mut self, id: RequestId, request: Request, reason: Reason, out: &mut Outbox) {
        let left = self.left_for_newcomers();
        let Some(mut request) = self.take_reserving(id, request, &left, &reason, out) else {
            return;
        };
        let (reason, would_buy) = self.bargain(&request, &left, reason);
        request.state = RequestState::Refused;
        request.close_books();
        self.requests.insert(id, request);
        self.tell(out, Some(id), None, Happening::Refused, reason);
        self.refuse_onward(id, out);
        self.remember_drained(id);
        self.remember_binding(id);
        if !would_buy.is_empty() {
            self.remember(id, "offered".into(), Reason::Offered { would_buy });
        }
        self.promised = Some(left);
    }

    /// Accepts a newcomer that would be refused if rate that can be reserved keeps its deadline,
    /// and asks for that. Returns it if not.
    fn take_reserving(
        &mut self,
        id: RequestId,
        mut request: Request,
        left: &Promised,
        reason: &Reason,
        out: &mut Outbox,
    ) -> Option<Request> {
        if !self.may_bid(&request, reason) {
            return Some(request);
        }
        let earliest = reason.earliest();
        let Some((
            bid,
            Verdict::Admit {
                route,
                active,
                finish: Some(finish),
                is_leftover: false,
                ..
            },
        )) = self.bid_newcomer(&request, left, earliest)
        else {
            return Some(request);
        };
        request.route = route;
        let whole = request.whole_lanes();
        for (place, lane) in request.lanes.iter_mut().enumerate() {
            lane.is_active = active.contains(&place) || whole >> place & 1 == 1;
        }
        let offered = self.circuits.offered.get(&bid.circuit);
        let name = offered.map_or_else(String::new, |circuit| circuit.terms.name.clone());
        let why = CircuitReason::Counted {
            rate: bid.rate,
            from: bid.from,
            finish,
            deadline: request.spec.deadline,
        };
        let reason = Reason::Circuit { name, why };
        self.take_in(id, request, Some(finish), reason, out);
        let taken = self.requests.get(&id);
        if taken.is_some_and(|request| !request.is_final()) {
            self.ask_for(id, bid, out);
        }
        None
    }

    /// Accepts a newcomer with the quotas that a plan gives it.
    pub(crate) fn take_planned(
        &mut self,
        id: RequestId,
        request: Request,
        finish: Timestamp,
        reason: Reason,
        out: &mut Outbox,
    ) {
        // Others have other quotas now.
        self.look_now();
        self.promised = Some(self.left_for_newcomers());
        self.take_in(id, request, Some(finish), reason, out);
    }

    fn take_in(
        &mut self,
        id: RequestId,
        mut request: Request,
        finish: Option<Timestamp>,
        reason: Reason,
        out: &mut Outbox,
    ) {
        let is_leftover = request.is_leftover;
        let onward = match self.weigh_onward(id, finish) {
            Ok(onward) => onward,
            Err(reason) => return self.refuse_here(id, request, reason, out),
        };
        // Consecutive requests of one user mostly have equal wishes.
        let latest = self.requests.iter().rev().take(ALIKE_MAX);
        request.wishes.share(latest.map(|(_, other)| &other.wishes));
        // It may have waited for a plan meanwhile.
        request.uncommon.drained = self.drained_lanes(&request);
        request.finish = finish.map(|finish| Forecast {
            p10: finish,
            p50: finish,
            p90: finish,
        });
        for (place, lane) in request.lanes.iter().enumerate() {
            let depot = self.depots.get(&lane.depot);
            let is_live = depot.is_some_and(Depot::is_expected);
            request.replica.set_live(place, is_live);
        }
        for (place, lane) in request.lanes.iter_mut().enumerate() {
            lane.is_active &= request.uncommon.drained >> place & 1 == 0;
        }
        let mut left = self.left_for_newcomers();
        if !is_leftover {
            let load = self.promised_load(&request, &left);
            left.promise(&load, request.aim());
        }
        self.promised = Some(left);
        request.account = Account::open(request.spec.deadline, finish);
        self.requests.insert(id, request);
        self.sort_by_level(id);
        self.begin_delivery(id);
        self.admit(id, reason, is_leftover, out);
        if let Some(onward) = onward {
            self.take_onward(id, onward, out);
        }
    }

    /// Refuses a request whose depots would be in time, but not the address to which it goes on.
    fn refuse_here(
        &mut self,
        id: RequestId,
        mut request: Request,
        reason: Reason,
        out: &mut Outbox,
    ) {
        request.state = RequestState::Refused;
        request.close_books();
        self.requests.insert(id, request);
        self.tell(out, Some(id), None, Happening::Refused, reason);
        self.refuse_onward(id, out);
    }

    fn admit(&mut self, id: RequestId, reason: Reason, is_leftover: bool, out: &mut Outbox) {
        self.say_code(id, out);
        self.tell(out, Some(id), None, Happening::Admitted, reason);
        self.remember_binding(id);
        self.say_lighter(id);
        self.remember_optimizer(id);
        self.remember_drained(id);
        self.remember_spares(id);
        self.remember_lent(id);
        self.settle(id, out);
        self.bring_up_to_date();
        self.look_ahead();
        self.look_at_deliveries();
        self.remember_what_binds(id);
        if is_leftover {
            self.say_at_risk(id, out);
        }
    }
}
