use std::time::Duration;

use posthaste_core::contract::{Command, Fault, Input, Reason, RequestState};
use posthaste_types::{Bytes, ChunkIndex, DepotId, FragmentIndex, RequestId};

use super::{CONNECT_TIMEOUT, PROBE_TIMEOUT, Pending, Run, sends::answer};
use crate::{
    checkers::{Conservation, End},
    rivals::Decider,
    world::{Condition, Node, Sending},
};

impl Run<'_> {
    /// Checks that a command sends nothing to a drained depot, and requires nothing of a store that
    /// it can't do.
    fn check_places(&mut self, command: &Command) {
        let world = &self.world;
        let stores = |depot| (world.place(depot)).is_some_and(|at| world.sites[at].stores);
        let found = Conservation::on_order(command, stores);
        self.checkers.note(self.now, found);
        if let Command::Send { request, .. }
        | Command::Forward { request, .. }
        | Command::Follow { request, .. }
        | Command::Gather { request, .. }
        | Command::Mend { request, .. }
        | Command::Scatter { request, .. } = command
            && let Some(spec) = self.world.specs.get(request)
        {
            let found = self.checkers.drains.on_command(command, spec);
            self.checkers.note(self.now, found);
        }
    }

    #[expect(clippy::too_many_lines, reason = "every kind of command, in one place")]
    pub(super) fn execute(&mut self, command: Command) {
        self.check_places(&command);
        let found = self.checkers.pauses.on_command(&command);
        self.checkers.note(self.now, found);
        let found = self.checkers.owners.on_command(&command);
        self.checkers.note(self.now, found);
        match command {
            Command::Send {
                request,
                depot,
                chunk,
                fragment,
                ..
            } => {
                let bytes = self.bytes_of(request, chunk, fragment);
                let found = (self.checkers.kept).on_send(self.now, request, depot, bytes);
                self.checkers.note(self.now, found);
                self.send(request, depot, chunk, fragment);
            }
            Command::Forward {
                request,
                from,
                to,
                chunk,
                fragment,
                ..
            } => {
                let bytes = self.bytes_of(request, chunk, fragment);
                let found = self.checkers.kept.on_sent_on(request, to, bytes);
                self.checkers.note(self.now, found);
                let found = self.checkers.kept.on_given(request, from, bytes);
                self.checkers.note(self.now, found);
                self.forward(from, (to, request, chunk, fragment));
            }
            Command::Follow {
                request,
                from,
                to,
                chunk,
                fragment,
                ..
            } => {
                let bytes = self.bytes_of(request, chunk, fragment);
                let found = self.checkers.kept.on_sent_on(request, to, bytes);
                self.checkers.note(self.now, found);
                let found = self.checkers.kept.on_given(request, from, bytes);
                self.checkers.note(self.now, found);
                self.follow(from, (to, request, chunk, fragment));
            }
            Command::Gather {
                request,
                to,
                chunk,
                from,
                ..
            } => {
                let bytes = self.bytes_of(request, chunk, FragmentIndex::WHOLE);
                let found = self.checkers.kept.on_sent_on(request, to, bytes);
                self.checkers.note(self.now, found);
                for (giver, _) in &from {
                    let found = self.checkers.kept.on_given(request, *giver, Bytes::ZERO);
                    self.checkers.note(self.now, found);
                }
                self.gather((to, request, chunk), FragmentIndex::WHOLE, from);
            }
            Command::Mend {
                request,
                to,
                chunk,
                fragment,
                from,
                ..
            } => {
                let bytes = self.bytes_of(request, chunk, fragment);
                let found = self.checkers.kept.on_sent_on(request, to, bytes);
                self.checkers.note(self.now, found);
                for (giver, _) in &from {
                    let found = self.checkers.kept.on_given(request, *giver, Bytes::ZERO);
                    self.checkers.note(self.now, found);
                }
                self.gather((to, request, chunk), fragment, from);
            }
            Command::Scatter {
                request,
                depot,
                chunk,
                fragment,
                to,
                ..
            } => self.scatter((depot, request, chunk), fragment, &to),
            Command::Recall {
                request,
                depot,
                chunk,
                fragment,
                ..
            } => self.recall((depot, request, chunk, fragment)),
            Command::Abandon { request, depot, .. } => self.abandon(request, depot),
            Command::Inventory { request, depot, .. } => self.inventory(request, depot),
            Command::Release { request, .. } if self.checkers.arrivals.is_known(request) => {
                self.release_arrival(request);
            }
            Command::Release { request, .. } => {
                self.check_claim(request, u8::MAX, true);
                let epoch = self.epoch;
                let span = Duration::from_millis(self.dice.between(10, 2000));
                self.after(span, Pending::Remove { epoch, request });
            }
            Command::LeaveOut { request, .. } => self.leave_out(request),
            Command::Renew { request, chunk, .. } => self.renew(request, chunk),
            Command::Forget { request, depot, .. } => self.forget(request, depot),
            Command::Fetch {
                request,
                source,
                chunk,
                ..
            } => {
                self.count_reading(request, source, chunk, None);
                self.fetch(request, source, chunk);
            }
            Command::Prestage {
                request,
                source,
                chunk,
                depot,
                ..
            } => {
                self.count_reading(request, source, chunk, Some(depot));
                self.prestage((request, source, chunk), depot);
            }
            Command::Quit {
                request, source, ..
            } => self.quit(request, source),
            Command::Survey { request, .. } => self.survey(request),
            Command::Settle { request, keep, .. } => self.settle_arrival(request, keep),
            Command::Probe {
                depot,
                budget,
                reason,
            } => self.start_probe(None, depot, budget, reason == Reason::Asked),
            Command::ProbeCrossing {
                from,
                to,
                budget,
                reason,
            } => self.start_probe(Some(from), to, budget, reason == Reason::Asked),
            Command::Solve {
                number,
                problem,
                effort,
                ..
            } => self.solve(number, &problem, effort),
            Command::Reserve {
                reservation,
                circuit,
                rate,
                from,
                until,
                ..
            } => self.reserve(reservation, circuit, rate, (from, until)),
            Command::Rearrange {
                reservation,
                rate,
                until,
                ..
            } => self.rearrange(reservation, rate, until),
            Command::GiveBack { reservation, .. } => self.give_back(reservation),
            Command::ReserveSpace {
                request,
                depot,
                bytes,
                until,
                ..
            } => self.reserve_space(request, depot, bytes, until),
            Command::ReleaseSpace { request, depot, .. } => self.release_space(request, depot),
            Command::Take { depot, way, .. } => self.take(depot, way),
        }
    }

    /// Starts a fragment from the centre.
    fn send(
        &mut self,
        request: RequestId,
        depot: DepotId,
        chunk: ChunkIndex,
        fragment: FragmentIndex,
    ) {
        let bytes = self.bytes_of(request, chunk, fragment);
        if let Some(noted) = &mut self.noted {
            noted.reached.insert((request, depot));
        }
        let found = self.checkers.capacity.on_send(depot, request, chunk, bytes);
        self.checkers.note(self.now, found);
        let found = self.checkers.lent.on_send(self.now, request, depot);
        self.checkers.note(self.now, found);
        let found = self
            .checkers
            .conservation
            .on_send((depot, request, chunk, fragment), bytes);
        self.checkers.note(self.now, found);
        let failed = |fault| answer((depot, request, chunk, fragment), Some(fault));
        let is_gone = self.source_gone.get(&request).copied().unwrap_or(false);
        if is_gone {
            self.tell_after(Duration::from_millis(1), failed(Fault::SourceVanished));
            return;
        }
        let Some(place) = self.world.place(depot) else {
            return;
        };
        if self.world.sites[place].condition() == Condition::Dead {
            self.tell_after(CONNECT_TIMEOUT, failed(Fault::Unreachable));
        } else {
            let sending = Sending {
                request,
                chunk,
                fragment,
                bytes,
            };
            self.left += bytes;
            self.world.send(Node::CENTRE, Node::site(place), sending);
        }
    }

    /// Stops sends and forgets their answers, like a driver that drops a connection.
    fn abandon(&mut self, request: RequestId, depot: DepotId) {
        self.drop_scatters(request, depot);
        self.drop_follows(request, depot);
        let place = self.world.place(depot);
        let dropped = place
            .map(|place| {
                self.world
                    .drop_sends(place, |sending| sending.request == request)
            })
            .unwrap_or_default();
        for sending in dropped {
            self.end_send(
                (depot, request, sending.chunk, sending.fragment),
                End::Dropped,
            );
        }
        self.drop_forwards(request, depot);
        self.forget_answers(|send| send.1 == request && send.0 == depot);
    }

    fn inventory(&mut self, request: RequestId, depot: DepotId) {
        let spec = self.world.specs.get(&request);
        let whole = spec.map_or(self.checkers.arrivals.is_known(request), |spec| {
            spec.destinations.contains(&depot)
        });
        let Some(site) = self.world.site(depot) else {
            return;
        };
        let latency = Duration::from_micros(site.latency_micros);
        if !site.is_reachable() {
            let is_silent = site.condition() == Condition::Vanished;
            let span = if is_silent { PROBE_TIMEOUT } else { latency };
            self.tell_after(
                span,
                Input::DepotDown {
                    depot,
                    fault: Fault::Unreachable,
                },
            );
            return;
        }
        let mut held = Vec::new();
        let masks = site.held.get(&request).cloned().unwrap_or_default();
        for (chunk, mask) in (0..).map(ChunkIndex::new).zip(masks) {
            for fragment in (0..64).filter(|fragment| mask >> fragment & 1 == 1) {
                let index = FragmentIndex::new(fragment);
                held.push((chunk, if whole { FragmentIndex::WHOLE } else { index }));
            }
        }
        self.tell_after(
            latency * 2,
            Input::DepotInventory {
                depot,
                request,
                held,
            },
        );
    }

    fn forget(&mut self, request: RequestId, depot: DepotId) {
        let Some(place) = self.world.place(depot) else {
            return;
        };
        let mind = self.mind.as_ref().and_then(Decider::as_mind);
        let view = mind.and_then(|mind| mind.request(request));
        let state = view.map(|view| view.state);
        let is_unwanted = matches!(state, Some(RequestState::Cancelled | RequestState::Failed));
        // Data that waited for a stage-in is no stage-out.
        let is_said = matches!(state, None | Some(RequestState::Delivered));
        let found = self.checkers.arrivals.on_forget(request);
        self.checkers.note(self.now, found);
        let found = self.checkers.onward.on_forget(request, is_unwanted);
        self.checkers.note(self.now, found);
        let lacking = self.world.undelivered(request);
        let found = crate::checkers::on_forget(request, (is_unwanted, is_said), lacking);
        self.checkers.note(self.now, found);
        let site = &mut self.world.sites[place];
        let latency = Duration::from_micros(site.latency_micros) * 2;
        let done = site.condition() == Condition::Well;
        let span = match site.condition() {
            Condition::Well | Condition::Dead => latency,
            Condition::Hung | Condition::Vanished => PROBE_TIMEOUT,
        };
        if done {
            site.forget(request);
            let (span, free) = self.probe_one(place);
            self.tell_after(span, free);
        }
        let told = Input::Forgotten {
            request,
            depot,
            done,
        };
        self.tell_after(span, told);
    }
}
