//! The driver's view of the world: answers to probes, measurements, arrivals.

use std::time::Duration;

use posthaste_core::contract::{Fault, Input, RequestSpec};
use posthaste_types::{ByteRate, Bytes};

use super::{MEASURE_EVERY, PROBE_TIMEOUT, Run, START};
use crate::world::{Arrival, Condition, Node, Sending};

impl Run<'_> {
    /// Probes every depot for liveness.
    pub(super) fn probe(&mut self) {
        for place in 0..self.world.sites.len() {
            let (span, input) = self.probe_one(place);
            self.tell_after(span, input);
        }
    }

    /// Returns the answer of one depot, and its delay.
    pub(super) fn probe_one(&mut self, place: usize) -> (Duration, Input) {
        let site = &mut self.world.sites[place];
        site.lapse(self.now);
        let latency = Duration::from_micros(site.latency_micros);
        let rate_max = site.advertises.then_some(ByteRate::new(site.first_rate));
        if site.is_reachable() {
            (
                latency,
                Input::DepotUp {
                    depot: site.id,
                    free: site.free(),
                    rate_max,
                },
            )
        } else {
            let is_silent = site.condition() == Condition::Vanished;
            let span = if is_silent { PROBE_TIMEOUT } else { latency };
            (
                span,
                Input::DepotDown {
                    depot: site.id,
                    fault: Fault::Unreachable,
                },
            )
        }
    }

    /// Measures the bytes each depot received since the last time.
    pub(super) fn measure(&mut self, inputs: &mut Vec<Input>) {
        for carried in self.world.measure() {
            let Some(place) = carried.to.place() else {
                inputs.extend(self.measure_inbound(&carried));
                continue;
            };
            if self.is_probed(place) {
                continue;
            }
            let depot = self.world.sites[place].id;
            if !self.scenario.circuits.is_empty() {
                let free = self.world.take_highest(place);
                let reserved = &mut self.checkers.reserved;
                let found = reserved.on_carried(self.now, place, carried.bytes, free);
                self.checkers.note(self.now, found);
            }
            if let Some(recorder) = &mut self.recorder {
                recorder.on_moved(depot, carried.bytes);
            }
            inputs.push(Input::Throughput {
                depot,
                bytes: Bytes::new(carried.bytes),
                window: MEASURE_EVERY,
                saturated: carried.is_saturated && !self.was_turning(place),
            });
        }
        self.measure_probe();
        inputs.extend(self.monitor());
        self.check_reserved();
        self.check_spaces();
    }

    /// Returns the rate of one path as other traffic shows it, at the start of a scenario with
    /// monitoring.
    fn monitor(&self) -> Option<Input> {
        let gone = self.now.since(START);
        if gone >= Duration::from_secs(self.scenario.monitored_s) {
            return None;
        }
        let sites = self.world.sites.len() as u64;
        let place = usize::try_from(gone.as_secs() % sites.max(1)).ok()?;
        let site = self
            .world
            .sites
            .get(place)
            .filter(|site| site.is_reachable())?;
        Some(Input::Throughput {
            depot: site.id,
            bytes: ByteRate::new(self.world.rate(place)).volume(MEASURE_EVERY),
            window: MEASURE_EVERY,
            saturated: true,
        })
    }

    /// Handles a fragment that arrived at a depot: checks it, stores it and answers, unless a fault
    /// prevents it.
    pub(super) fn on_arrival(&mut self, arrival: Arrival) {
        let Arrival { from, to, sending } = arrival;
        if to == Node::CENTRE {
            self.on_chunk(&arrival);
            return;
        }
        if self.on_block(&sending) || self.on_near(&arrival, None) {
            return;
        }
        if self.on_gathered(&arrival, false) {
            return;
        }
        if self.on_to_be_coded(&arrival, None) {
            return;
        }
        let is_orphan = self.is_orphan(&arrival);
        if !is_orphan && self.on_file(&arrival) {
            return;
        }
        let spec = self.world.specs.get(&sending.request);
        let chunks = spec.map_or(0, RequestSpec::chunks);
        let is_corrupt = self.dice.chance(self.scenario.corrupt_permille);
        let is_lost = self.dice.chance(self.scenario.answer_lost_permille);
        let is_changed = self.source_changed && from == Node::CENTRE;
        let giver = from.place().map(|place| &self.world.sites[place]);
        let is_led = giver.is_none_or(|site| {
            site.ordeal > 0 || site.holds(sending.request, sending.chunk, sending.fragment)
        });
        let far = giver.map_or(0, |site| site.latency_micros);
        let Some(site) = to.place().and_then(|place| self.world.sites.get_mut(place)) else {
            return;
        };
        let latency = Duration::from_micros(site.latency_micros.max(far));
        let depot = site.id;
        let (id, used, capacity) = (site.id, site.used, site.capacity);
        let fault = if is_changed {
            Some(Fault::SourceChanged)
        } else if is_corrupt {
            Some(Fault::Corrupt)
        } else if !site.store(&sending, chunks) {
            Some(Fault::Full)
        } else {
            (is_lost || is_orphan).then_some(Fault::Unreachable)
        };
        let Sending {
            request,
            chunk,
            fragment,
            ..
        } = sending;
        if fault == Some(Fault::Unreachable) {
            *self.surplus.entry((depot, request)).or_default() += 1;
        }
        let send = (depot, request, chunk, fragment);
        let is_led = is_led || !self.forwards.following.contains_key(&send);
        let found = self.checkers.conservation.on_followed(send, is_led);
        self.checkers.note(self.now, found);
        if matches!(fault, None | Some(Fault::Unreachable))
            && let Some(place) = to.place()
        {
            self.world.lead(place, &sending);
        }
        let found = self.checkers.capacity.on_stored(id, used, capacity);
        self.checkers.note(self.now, found);
        if is_orphan {
            // The driver that ordered it is dead.
            return;
        }
        if fault.is_none() {
            self.on_stored((depot, request, chunk, fragment), latency);
        }
        self.tell_send(latency, (depot, request, chunk, fragment), fault);
    }
}
