use posthaste_types::{ByteRate, ReservationId};

use crate::{
    Mind,
    contract::{CircuitReason, Command, News, Outbox, Reason, ReservationState, Step},
    reserving::{ANSWER_WAIT, OVER_WAIT},
};

impl Mind {
    /// Handles news of a reservation, asked for or unasked.
    pub(crate) fn on_reservation_told(&mut self, id: ReservationId, news: News, out: &mut Outbox) {
        let Some(state) = self.circuits.reservations.get(&id).map(|held| held.state) else {
            give_back_unknown(id, news, out);
            return;
        };
        let is_asked = state == ReservationState::Asked;
        let may_rise = matches!(state, ReservationState::Granted | ReservationState::Down);
        match news {
            News::Granted if is_asked => self.grant(id, out),
            News::Up if is_asked => {
                self.grant(id, out);
                self.bring_up(id, out);
            }
            News::Up if may_rise => self.bring_up(id, out),
            News::Down if state == ReservationState::Up => self.bring_down(id, out),
            News::Changed => self.end_change(id, true, out),
            News::Unchanged => self.end_change(id, false, out),
            News::Refused { fits } if is_asked => {
                let step = (Step::Refused, CircuitReason::Refused { fits });
                self.end_asked(id, fits, step, out);
            }
            News::Unobtainable { why } if is_asked => {
                let step = (Step::Unobtainable, CircuitReason::Unobtainable { why });
                self.end_asked(id, None, step, out);
            }
            // It was granted before: a refusal now means its loss.
            News::Refused { .. } | News::Failed => {
                self.end_reservation(id, CircuitReason::Failed, out);
            }
            News::Unobtainable { why } => {
                self.end_reservation(id, CircuitReason::Unobtainable { why }, out);
            }
            News::Over => self.end_reservation(id, CircuitReason::Over, out),
            News::Granted | News::Up | News::Down => {}
        }
    }

    fn grant(&mut self, id: ReservationId, out: &mut Outbox) {
        let Some(held) = self.circuits.reservations.get_mut(&id) else {
            return;
        };
        held.state = ReservationState::Granted;
        held.due = held.from.max(self.now) + ANSWER_WAIT;
        let (request, cost, circuit) = (held.request, held.cost, held.circuit);
        let (name, rate, from, until) = (held.name.clone(), held.rate, held.from, held.until);
        if let Some(circuit) = self.circuits.offered.get_mut(&circuit) {
            circuit.refusals = 0;
        }
        self.charge_reservation(request, 0, cost);
        let why = CircuitReason::Granted { rate, from, until };
        self.say_step(request, Step::Granted, Reason::Circuit { name, why }, out);
        self.look_now();
    }

    /// Brings up a reservation whose rate is available: the depots to which it leads are fed.
    fn bring_up(&mut self, id: ReservationId, out: &mut Outbox) {
        let Some(held) = self.circuits.reservations.get_mut(&id) else {
            return;
        };
        held.state = ReservationState::Up;
        held.due = held.until + OVER_WAIT;
        let (request, circuit, depots) = (held.request, held.circuit, held.depots.clone());
        let (name, rate, until) = (held.name.clone(), held.rate, held.until);
        let why = CircuitReason::Carries { rate, until };
        self.say_step(request, Step::Up, Reason::Circuit { name, why }, out);
        if depots.iter().any(|depot| self.is_trial_of(*depot)) {
            // The way being tried may not lie on the circuit, and shows nothing from now on.
            self.end_trial(out);
        }
        self.take_ways_of(circuit, &depots, out);
        let request = self.requests.get_mut(&request);
        if let Some(request) = request.filter(|request| request.is_moving()) {
            for place in 0..request.lanes.len() {
                let leads = depots.contains(&request.lanes[place].depot);
                if leads && request.is_on_route(place) && !request.lanes[place].is_active {
                    request.lanes[place].is_active = true;
                    request.replica.unpark();
                }
            }
        }
        self.refresh_reserved(id);
        self.look_now();
    }

    fn bring_down(&mut self, id: ReservationId, out: &mut Outbox) {
        let Some(held) = self.circuits.reservations.get_mut(&id) else {
            return;
        };
        held.state = ReservationState::Down;
        let (request, name) = (held.request, held.name.clone());
        let why = CircuitReason::Interrupted;
        self.say_step(request, Step::Down, Reason::Circuit { name, why }, out);
        self.refresh_reserved(id);
        self.look_now();
    }

    /// Handles a refusal. The rate that would fit is asked for at the next look, if it is useful.
    fn end_asked(
        &mut self,
        id: ReservationId,
        fits: Option<ByteRate>,
        (step, why): (Step, CircuitReason),
        out: &mut Outbox,
    ) {
        let Some(held) = self.circuits.reservations.remove(&id) else {
            return;
        };
        self.circuits.put_off(held.circuit, self.now);
        let less = fits.filter(|fits| *fits < held.rate && *fits > ByteRate::ZERO);
        if let Some(circuit) = self.circuits.offered.get_mut(&held.circuit)
            && less.is_some()
        {
            (circuit.fits, circuit.not_before) = (less, self.now);
        }
        let reason = Reason::Circuit {
            name: held.name,
            why,
        };
        self.say_step(held.request, step, reason, out);
        self.look_now();
    }

    /// Ends a reservation, as planned or not.
    fn end_reservation(&mut self, id: ReservationId, why: CircuitReason, out: &mut Outbox) {
        let Some(held) = self.circuits.reservations.get_mut(&id) else {
            return;
        };
        let was = core::mem::replace(&mut held.state, ReservationState::Returning);
        let (request, circuit, name) = (held.request, held.circuit, held.name.clone());
        match was {
            // A return is already reported and paid, and a reservation only asked for costs
            // nothing.
            ReservationState::Returning | ReservationState::Asked => {}
            ReservationState::Granted | ReservationState::Up | ReservationState::Down => {
                self.settle_cost(id);
            }
        }
        self.refresh_reserved(id);
        self.circuits.reservations.remove(&id);
        if was == ReservationState::Returning {
            return;
        }
        if why != CircuitReason::Over {
            self.circuits.put_off(circuit, self.now);
        }
        self.say_step(request, Step::Ended, Reason::Circuit { name, why }, out);
        self.look_now();
    }
}

/// Gives back a reservation that is unknown here, so that nothing stays reserved in vain.
fn give_back_unknown(id: ReservationId, news: News, out: &mut Outbox) {
    match news {
        News::Granted | News::Up | News::Changed => {
            let (name, why) = (alloc::format!("{id}"), CircuitReason::Spare);
            out.commands.push(Command::GiveBack {
                reservation: id,
                reason: Reason::Circuit { name, why },
            });
        }
        News::Refused { .. }
        | News::Unobtainable { .. }
        | News::Unchanged
        | News::Down
        | News::Over
        | News::Failed => {}
    }
}
