//! Circuit providers, which grant and refuse, and the driver's requests to them.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use posthaste_core::contract::{Input, News};
use posthaste_types::{ByteRate, CircuitId, DepotId, ReservationId, Timestamp};

use super::{Pending, Run, START};
use crate::{report::What, scenario::CircuitPlan};

/// Reservations, as the circuit providers know them.
#[derive(Debug, Default)]
pub(super) struct Circuits {
    held: BTreeMap<ReservationId, Held>,
    /// Reservations that are over. None comes back.
    over: BTreeSet<ReservationId>,
    /// Circuits that carry nothing now.
    down: BTreeSet<usize>,
}

#[derive(Debug, Clone, Copy)]
struct Held {
    circuit: usize,
    rate: u64,
    from: Timestamp,
    until: Timestamp,
    is_up: bool,
}

/// Event of a circuit.
#[derive(Debug, Clone, Copy)]
pub(super) enum Turn {
    /// Start of a reservation's time.
    Begins(ReservationId),
    /// End of a reservation's time, unless it was extended.
    Ends(ReservationId),
    /// Failure of a circuit; it carries nothing.
    Down(usize),
    /// Recovery of a circuit.
    Back(usize),
    /// Loss of all reservations on a circuit.
    Fails(usize),
}

fn seconds(at: f64) -> Timestamp {
    START + Duration::from_secs_f64(at)
}

impl Run<'_> {
    /// Returns the circuit offers for the mind.
    pub(super) fn offered_circuits(&self) -> Vec<Input> {
        let places = self.scenario.places();
        let plans = self.scenario.circuits.iter().enumerate();
        let offer = |(number, plan): (usize, &CircuitPlan)| {
            let named = plan.depots.iter();
            let named = named.filter_map(|name| places.get(name.as_str()));
            let depots: Vec<DepotId> = named
                .flatten()
                .map(|place| self.world.sites[*place].id)
                .collect();
            Input::CircuitOffered {
                circuit: number_of(number),
                terms: plan.terms(depots),
            }
        };
        plans.map(offer).collect()
    }

    /// Queues the events of circuits.
    pub(super) fn queue_circuits(&mut self) {
        let scenario = self.scenario;
        for (circuit, plan) in scenario.circuits.iter().enumerate() {
            for [from, until] in &plan.down_s {
                self.turn_at(seconds(*from), Turn::Down(circuit));
                self.turn_at(seconds(*until), Turn::Back(circuit));
            }
            for at in &plan.fails_s {
                self.turn_at(seconds(*at), Turn::Fails(circuit));
            }
        }
    }

    fn turn_at(&mut self, at: Timestamp, turn: Turn) {
        let span = at.since(self.now);
        self.after(span, Pending::Circuit { turn });
    }

    fn answer_circuit(&mut self, circuit: usize, reservation: ReservationId, news: News) {
        let plan = self.scenario.circuits.get(circuit);
        let span = plan.map_or(0, |plan| plan.answer_s.draw_milli(&mut self.dice));
        let input = Input::ReservationTold { reservation, news };
        self.tell_after(Duration::from_millis(span), input);
    }

    /// Returns the free rate of a circuit over a time, not counting one reservation.
    fn free(&self, circuit: usize, span: (Timestamp, Timestamp), but: ReservationId) -> u64 {
        let plan = &self.scenario.circuits[circuit];
        let taken = plan.taken.iter().map(|[from, until, rate]| {
            let rate = crate::scenario::mebi(*rate);
            (seconds(*from), seconds(*until), rate)
        });
        let held = self.circuits.held.iter();
        let held = held.filter(|(id, held)| held.circuit == circuit && **id != but);
        let held = held.map(|(_, held)| (held.from, held.until, held.rate));
        let all: Vec<(Timestamp, Timestamp, u64)> = taken.chain(held).collect();
        let begins = all.iter().map(|(from, ..)| *from).chain([span.0]);
        let at_worst = begins.filter(|at| *at >= span.0 && *at < span.1).map(|at| {
            let there = all
                .iter()
                .filter(|(from, until, _)| *from <= at && at < *until);
            there.map(|(_, _, rate)| *rate).sum::<u64>()
        });
        plan.rate().saturating_sub(at_worst.max().unwrap_or(0))
    }

    /// Requests a reservation from the provider. For a number that exists, the provider reports its
    /// state.
    pub(super) fn reserve(
        &mut self,
        id: ReservationId,
        circuit: CircuitId,
        rate: ByteRate,
        (from, until): (Timestamp, Timestamp),
    ) {
        let circuit = place_of(circuit);
        if let Some(held) = self.circuits.held.get(&id).copied() {
            self.answer_circuit(circuit, id, News::Granted);
            if held.is_up {
                self.answer_circuit(circuit, id, News::Up);
            }
            return;
        }
        let Some(plan) = self.scenario.circuits.get(circuit) else {
            return;
        };
        if self.circuits.over.contains(&id) {
            self.answer_circuit(circuit, id, News::Over);
            return;
        }
        let is_closed =
            |[begin, end]: &[f64; 2]| seconds(*begin) <= self.now && self.now < seconds(*end);
        let is_closed = plan.refuses_s.iter().any(is_closed);
        let permille = plan.refused_permille;
        let free = self.free(circuit, (from, until), id);
        if is_closed || (permille > 0 && self.dice.chance(permille)) || free == 0 {
            self.answer_circuit(circuit, id, News::Refused { fits: None });
            return;
        }
        if free < rate.get() {
            let fits = Some(ByteRate::new(free));
            self.answer_circuit(circuit, id, News::Refused { fits });
            return;
        }
        let held = Held {
            circuit,
            rate: rate.get(),
            from,
            until,
            is_up: false,
        };
        self.circuits.held.insert(id, held);
        self.checkers.reserved.on_made(id, self.now);
        self.answer_circuit(circuit, id, News::Granted);
        let soonest = self.now + Duration::from_secs(plan.lead_s);
        let late = plan.up_late_s.draw_milli(&mut self.dice);
        let begins = from.max(soonest) + Duration::from_millis(late);
        self.turn_at(begins, Turn::Begins(id));
        self.turn_at(until, Turn::Ends(id));
    }

    pub(super) fn rearrange(&mut self, id: ReservationId, rate: ByteRate, until: Timestamp) {
        let Some(held) = self.circuits.held.get(&id).copied() else {
            return;
        };
        let free = self.free(held.circuit, (self.now, until), id);
        if free < rate.get() {
            self.answer_circuit(held.circuit, id, News::Unchanged);
            return;
        }
        if let Some(held) = self.circuits.held.get_mut(&id) {
            (held.rate, held.until) = (rate.get(), until);
        }
        self.refresh_circuit(held.circuit);
        self.answer_circuit(held.circuit, id, News::Changed);
        self.turn_at(until, Turn::Ends(id));
    }

    pub(super) fn give_back(&mut self, id: ReservationId) {
        let circuit = self.lose_reservation(id);
        self.circuits.over.insert(id);
        self.answer_circuit(circuit.unwrap_or(0), id, News::Over);
    }

    fn lose_reservation(&mut self, id: ReservationId) -> Option<usize> {
        let held = self.circuits.held.remove(&id)?;
        self.circuits.over.insert(id);
        self.checkers.reserved.on_over(id);
        self.refresh_circuit(held.circuit);
        Some(held.circuit)
    }

    fn refresh_circuit(&mut self, circuit: usize) {
        let held = self.circuits.held.values();
        let up = held.filter(|held| held.circuit == circuit && held.is_up);
        let rate = up.map(|held| held.rate).sum();
        self.world.set_circuit(circuit, rate);
    }

    pub(super) fn on_turn(&mut self, turn: Turn) {
        match turn {
            Turn::Begins(id) => self.begin_reservation(id),
            Turn::Ends(id) => {
                let held = self.circuits.held.get(&id);
                if held.is_some_and(|held| held.until <= self.now)
                    && let Some(circuit) = self.lose_reservation(id)
                {
                    self.answer_circuit(circuit, id, News::Over);
                }
            }
            Turn::Down(circuit) => {
                self.circuits.down.insert(circuit);
                self.say_of(circuit, "carries nothing");
                for id in self.held_on(circuit) {
                    let held = self.circuits.held.get_mut(&id);
                    if held.is_some_and(|held| std::mem::take(&mut held.is_up)) {
                        self.answer_circuit(circuit, id, News::Down);
                    }
                }
                self.refresh_circuit(circuit);
            }
            Turn::Back(circuit) => {
                self.circuits.down.remove(&circuit);
                self.say_of(circuit, "carries again");
                for id in self.held_on(circuit) {
                    self.begin_reservation(id);
                }
            }
            Turn::Fails(circuit) => {
                self.say_of(circuit, "fails");
                for id in self.held_on(circuit) {
                    self.lose_reservation(id);
                    self.answer_circuit(circuit, id, News::Failed);
                }
            }
        }
    }

    /// Starts the time of a reservation, so that its circuit carries data.
    fn begin_reservation(&mut self, id: ReservationId) {
        let now = self.now;
        let down = &self.circuits.down;
        let held = self.circuits.held.get_mut(&id);
        let held = held.filter(|held| held.from <= now && !down.contains(&held.circuit));
        if let Some(held) = held.filter(|held| !held.is_up) {
            held.is_up = true;
            let circuit = held.circuit;
            self.refresh_circuit(circuit);
            self.answer_circuit(circuit, id, News::Up);
        }
    }

    fn held_on(&self, circuit: usize) -> Vec<ReservationId> {
        let held = self.circuits.held.iter();
        let held = held.filter(|(_, held)| held.circuit == circuit);
        held.map(|(id, _)| *id).collect()
    }

    fn say_of(&mut self, circuit: usize, what: &str) {
        let name = &self.scenario.circuits[circuit].name;
        let what = What::World(format!("circuit {name} {what}"));
        self.last_change = self.now;
        self.log(None, None, what);
    }

    /// Compares reservations with the mind's need, and transferred bytes with the possible ones.
    pub(super) fn check_reserved(&mut self) {
        if self.scenario.circuits.is_empty() {
            return;
        }
        self.world.steer();
        let mind = self.mind.as_ref().and_then(|mind| mind.as_mind());
        let Some(mind) = mind else {
            self.checkers.reserved.on_blind(self.now);
            return;
        };
        let needed = mind.reservations().into_iter().filter(|view| {
            let request = mind.request(view.request);
            request.is_some_and(|request| {
                request.state == posthaste_core::contract::RequestState::Moving
            })
        });
        let needed: BTreeSet<ReservationId> = needed.map(|view| view.reservation).collect();
        let found = self.checkers.reserved.on_look(self.now, &needed);
        self.checkers.note(self.now, found);
    }
}

/// Circuits are numbered from one.
fn number_of(place: usize) -> CircuitId {
    CircuitId::new(u32::try_from(place + 1).unwrap_or(u32::MAX))
}

fn place_of(circuit: CircuitId) -> usize {
    usize::try_from(circuit.get()).map_or(usize::MAX, |number| number.wrapping_sub(1))
}
