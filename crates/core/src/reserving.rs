//! Reservations for a request (`docs/algorithms/circuits.md`): whether, how much and when. Rate is
//! reserved if its user wished it, or its deadline asks for it and the time to set it up pays.
//! Meanwhile data goes at best effort, and again when the reservation is refused, fails or is over.

mod bid;
mod change;
mod stream;

use alloc::vec::Vec;
use core::time::Duration;
use posthaste_types::{CircuitId, RequestId, ReservationId};

use crate::{
    Mind,
    books::{Circuits, Request, Reservation},
    contract::{
        CircuitReason, CircuitTerms, Command, Happening, Outbox, Reason, ReservationState,
        ReservationView, Reserve, Step,
    },
    outlook::Sweep,
};
pub(crate) use bid::Bid;

/// Most reservations that a request may ask for in all: one refused so often gets none.
const ASKS_MAX: u32 = 8;
/// Most reservations of a request at a time.
const LIVE_MAX: usize = 4;
/// Time before a look that found nothing to ask for is repeated.
const LOOK_AGAIN: Duration = Duration::from_secs(10);
/// Time after which an unanswered request counts as lost.
pub(crate) const ANSWER_WAIT: Duration = Duration::from_secs(120);
/// Time within which a circuit reports that its time is over.
pub(crate) const OVER_WAIT: Duration = Duration::from_secs(30);
/// Times that a reservation is given back without an answer: then its own end must suffice.
const RETURNS_MAX: u32 = 5;
/// Most requests searched for one that can use what another one leaves.
const HEIRS_MAX: usize = 32;

impl Mind {
    /// Asks for rate if a request needs it, and checks whether its reservations are too large or
    /// end too early.
    pub(crate) fn review_reservations(&mut self, id: RequestId, sweep: &Sweep, out: &mut Outbox) {
        if self.circuits.is_idle() || self.circuits.is_awaited(id) {
            return;
        }
        let Some(request) = self.requests.get(&id) else {
            return;
        };
        if !request.is_under_way() || request.wishes.reserve == Reserve::Never {
            return;
        }
        if self.review_held(id, sweep, out) || !self.may_ask(id) {
            return;
        }
        let bid = self.best_bid(id, sweep);
        if bid.is_none()
            && let Some(request) = self.requests.get_mut(&id)
        {
            request.uncommon.asks.not_before = self.now + LOOK_AGAIN;
        }
        if let Some(bid) = bid {
            self.ask_for(id, bid, out);
        }
    }

    /// Returns whether a request may ask for rate now, and wants it.
    fn may_ask(&self, id: RequestId) -> bool {
        let Some(request) = self.requests.get(&id) else {
            return false;
        };
        let (asks, mine) = (request.uncommon.asks, self.circuits.of(id).count());
        let may = asks.count < ASKS_MAX
            && asks.not_before <= self.now
            && mine < LIVE_MAX
            && self.circuits.reservations.len() < Circuits::RESERVATIONS_MAX
            && !self.circuits.offered.is_empty();
        let is_late = request.late_ticks >= self.settings.behind_ticks && !request.missed;
        may && match request.wishes.reserve {
            Reserve::Auto => is_late,
            Reserve::Always => is_late || mine == 0,
            Reserve::Never => false,
        }
    }

    /// Asks for a reservation as found.
    pub(crate) fn ask_for(&mut self, id: RequestId, bid: Bid, out: &mut Outbox) {
        let Some(circuit) = self.circuits.offered.get_mut(&bid.circuit) else {
            return;
        };
        circuit.fits = None;
        let name = circuit.terms.name.clone();
        self.circuits.asked += 1;
        let reservation = ReservationId::new(self.circuits.asked);
        let (rate, from, until) = (bid.rate, bid.from, bid.until);
        let Some(request) = self.requests.get_mut(&id) else {
            return;
        };
        request.uncommon.asks.count += 1;
        let why = match request.wishes.reserve {
            Reserve::Always => CircuitReason::Wished { rate, from, until },
            Reserve::Auto | Reserve::Never => CircuitReason::Needed {
                rate,
                from,
                until,
                without: bid.without,
                finish: bid.finish,
                deadline: request.spec.deadline,
            },
        };
        let held = Reservation {
            circuit: bid.circuit,
            name: name.clone(),
            depots: bid.depots,
            request: id,
            rate,
            from,
            until,
            state: ReservationState::Asked,
            change: None,
            changes: 0,
            change_at: self.now,
            spare_looks: 0,
            short_looks: 0,
            due: self.now + ANSWER_WAIT,
            returns: 0,
            cost: bid.cost,
        };
        self.circuits.reservations.insert(reservation, held);
        let reason = Reason::Circuit { name, why };
        self.say_step(id, Step::Asked, reason.clone(), out);
        out.commands.push(Command::Reserve {
            reservation,
            circuit: bid.circuit,
            rate,
            from,
            until,
            reason,
        });
    }

    /// Reports a step of a request's reservation.
    pub(crate) fn say_step(
        &mut self,
        request: RequestId,
        step: Step,
        reason: Reason,
        out: &mut Outbox,
    ) {
        let happening = Happening::Reservation { step };
        self.tell(out, Some(request), None, happening, reason);
    }

    /// Gives a reservation back, and reports why.
    pub(crate) fn give_back_reservation(
        &mut self,
        id: ReservationId,
        why: CircuitReason,
        out: &mut Outbox,
    ) {
        let now = self.now;
        let Some(held) = self.circuits.reservations.get_mut(&id) else {
            return;
        };
        let was = core::mem::replace(&mut held.state, ReservationState::Returning);
        (held.change, held.due) = (None, now + ANSWER_WAIT);
        held.returns = 1;
        let (request, name) = (held.request, held.name.clone());
        if was != ReservationState::Asked {
            self.settle_cost(id);
        }
        let reason = Reason::Circuit { name, why };
        self.say_step(request, Step::Returned, reason.clone(), out);
        out.commands.push(Command::GiveBack {
            reservation: id,
            reason,
        });
        self.refresh_reserved(id);
        self.look_now();
    }

    /// Sets the rate reserved now on the links of a reservation.
    pub(crate) fn refresh_reserved(&mut self, id: ReservationId) {
        let Some(held) = self.circuits.reservations.get(&id) else {
            return;
        };
        for depot in held.depots.clone() {
            let rate = self.circuits.carried(depot);
            if let Some(depot) = self.depots.get_mut(&depot) {
                depot.link.set_reserved(self.now, rate, &self.settings);
            }
        }
    }

    /// Settles the cost of a reservation: only its used part is paid.
    pub(crate) fn settle_cost(&mut self, id: ReservationId) {
        let now = self.now;
        let Some(held) = self.circuits.reservations.get_mut(&id) else {
            return;
        };
        let whole = held.until.since(held.from).as_micros().max(1);
        let used = held.until.min(now).since(held.from).as_micros();
        let paid = u128::from(held.cost) * used / whole;
        let paid = u64::try_from(paid).unwrap_or(u64::MAX);
        let (request, before) = (held.request, core::mem::replace(&mut held.cost, paid));
        self.charge_reservation(request, before, paid);
    }

    /// Changes the cost of a reservation that a request bears.
    pub(crate) fn charge_reservation(&mut self, request: RequestId, before: u64, after: u64) {
        if before != after
            && let Some(request) = self.requests.get_mut(&request)
        {
            let spent = request.spent_micro_usd.saturating_sub(before);
            request.spent_micro_usd = spent.saturating_add(after);
        }
    }

    /// Gives back reservations no longer needed, unless another request can use the rest.
    pub(crate) fn return_unneeded(&mut self, out: &mut Outbox) {
        if self.circuits.reservations.is_empty() {
            return;
        }
        self.bring_up_to_date();
        let all = self.circuits.reservations.iter();
        let unneeded = all.filter(|(_, held)| held.is_live() && !self.is_needed(held));
        let unneeded: Vec<ReservationId> = unneeded.map(|(id, _)| *id).collect();
        for id in unneeded {
            match self.find_heir(id) {
                Some(heir) => self.pass_on(id, heir, out),
                None => self.give_back_reservation(id, CircuitReason::Spare, out),
            }
        }
    }

    /// Returns whether its request still sends to where it leads.
    fn is_needed(&self, held: &Reservation) -> bool {
        let request = self.requests.get(&held.request);
        request.is_some_and(|request| {
            let mut lanes = request.lanes.iter();
            request.is_under_way()
                || lanes.any(|lane| lane.in_flight > 0 && held.depots.contains(&lane.depot))
        })
    }

    /// Returns the most urgent request that sends to the same depots, has no reservation and may
    /// use this one. It gives back what it does not need.
    fn find_heir(&self, id: ReservationId) -> Option<RequestId> {
        let held = self.circuits.reservations.get(&id)?;
        let is_firm = held.is_counted() && held.change.is_none() && held.until > self.now;
        let mut next = self.index.after(None).take(HEIRS_MAX);
        let heir = next.find(|urgency| {
            let request = self.requests.get(&urgency.request);
            let has_own = self.circuits.of(urgency.request).next().is_some();
            request.is_some_and(|request| may_inherit(request, held)) && !has_own
        });
        heir.filter(|_| is_firm).map(|urgency| urgency.request)
    }

    /// Passes a reservation on to another request. Its cost stays with the one that asked for it.
    fn pass_on(&mut self, id: ReservationId, heir: RequestId, out: &mut Outbox) {
        let Some(held) = self.circuits.reservations.get_mut(&id) else {
            return;
        };
        let before = core::mem::replace(&mut held.request, heir);
        held.cost = 0;
        (held.spare_looks, held.short_looks) = (0, 0);
        let (name, rate, until) = (held.name.clone(), held.rate, held.until);
        let reason = |why| Reason::Circuit {
            name: name.clone(),
            why,
        };
        let why = reason(CircuitReason::Passed);
        self.say_step(before, Step::Passed, why, out);
        let why = reason(CircuitReason::Carries { rate, until });
        self.say_step(heir, Step::Granted, why, out);
        self.look_now();
    }

    /// Handles reservations of which nothing was heard in time.
    pub(crate) fn call_circuits(&mut self, out: &mut Outbox) {
        let now = self.now;
        let due = self.circuits.reservations.iter();
        let due = due.filter(|(_, held)| held.due <= now);
        let due: Vec<(ReservationId, ReservationState, CircuitId)> = due
            .map(|(id, held)| (*id, held.state, held.circuit))
            .collect();
        for (id, state, circuit) in due {
            match state {
                ReservationState::Asked | ReservationState::Granted => {
                    self.circuits.put_off(circuit, now);
                    self.give_back_reservation(id, CircuitReason::Silent, out);
                }
                ReservationState::Up | ReservationState::Down => {
                    self.give_back_reservation(id, CircuitReason::Over, out);
                }
                ReservationState::Returning => self.return_again(id, out),
            }
        }
        // Nothing is due twice in one moment.
        for held in self.circuits.reservations.values_mut() {
            if held.due <= now {
                held.due = now + self.settings.tick;
            }
        }
    }

    /// Gives a reservation back again, so many times, as its return was not confirmed.
    fn return_again(&mut self, id: ReservationId, out: &mut Outbox) {
        let Some(held) = self.circuits.reservations.get_mut(&id) else {
            return;
        };
        if held.returns >= RETURNS_MAX {
            self.circuits.reservations.remove(&id);
            return;
        }
        held.due = self.now + ANSWER_WAIT * (1 << held.returns);
        held.returns += 1;
        let (name, why) = (held.name.clone(), CircuitReason::Silent);
        out.commands.push(Command::GiveBack {
            reservation: id,
            reason: Reason::Circuit { name, why },
        });
    }

    /// Repeats the commands about reservations after a restart of the driver, which takes them up
    /// and reports their state.
    pub(crate) fn take_up_reservations(&mut self, out: &mut Outbox) {
        let now = self.now;
        for (&reservation, held) in &mut self.circuits.reservations {
            let reason = Reason::Restarted;
            if held.state == ReservationState::Returning {
                out.commands.push(Command::GiveBack {
                    reservation,
                    reason,
                });
                continue;
            }
            if held.state == ReservationState::Asked {
                held.due = now + ANSWER_WAIT;
            }
            out.commands.push(Command::Reserve {
                reservation,
                circuit: held.circuit,
                rate: held.rate,
                from: held.from,
                until: held.until,
                reason: reason.clone(),
            });
            if let Some(change) = held.change {
                out.commands.push(Command::Rearrange {
                    reservation,
                    rate: change.rate,
                    until: change.until,
                    reason,
                });
            }
        }
    }

    /// Returns every circuit on offer with its terms, in the order of their numbers.
    #[must_use]
    pub fn circuits(&self) -> Vec<(CircuitId, CircuitTerms)> {
        let all = self.circuits.offered.iter();
        all.map(|(id, circuit)| (*id, circuit.terms.clone()))
            .collect()
    }

    /// Returns every reservation, in the order they were asked for.
    #[must_use]
    pub fn reservations(&self) -> Vec<ReservationView> {
        let all = self.circuits.reservations.iter();
        all.map(|(id, held)| ReservationView {
            reservation: *id,
            request: held.request,
            circuit: held.circuit,
            name: held.name.clone(),
            depots: held.depots.clone(),
            rate: held.rate,
            from: held.from,
            until: held.until,
            state: held.state,
            cost_micro_usd: held.cost,
        })
        .collect()
    }
}

/// Returns whether a request that sends to the depots of a reservation may use what another one
/// leaves of it. One with a budget may not: it would have to pay.
fn may_inherit(request: &Request, held: &Reservation) -> bool {
    let mut lanes = request.lanes.iter().enumerate();
    let is_fed = lanes.any(|(place, lane)| {
        lane.is_active && request.is_on_route(place) && held.depots.contains(&lane.depot)
    });
    let is_free = request.wishes.budget_micro_usd.is_none();
    is_fed && is_free && request.is_under_way() && request.wishes.reserve != Reserve::Never
}
