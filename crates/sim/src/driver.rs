//! The driver executes the mind's commands in the model world and reports events to it. Its journal
//! allows a restart after a kill at any moment.

mod asks;
mod circuits;
mod claims;
mod commands;
mod costs;
mod fates;
mod faults;
mod follows;
mod forwards;
mod gathers;
mod inbound;
mod journal;
mod near;
mod notes;
mod omissions;
mod plans;
mod probes;
mod scatters;
mod scored;
mod sends;
mod senses;
mod setup;
mod spaces;
mod told;
mod verdict;
mod ways;

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use posthaste_core::{
    Mind, Settings,
    contract::{DeliveryReason, Event, Happening, Input, Outbox, Reason},
};
use posthaste_types::{ByteRate, Bytes, DepotId, Record, RequestId, Timestamp};

use crate::{
    Checkers, Entry, Report, Scenario,
    deadlines::Seen,
    random::Dice,
    report::{Fate, Recorder, What},
    rivals::Decider,
    scenario::FaultKind,
    world::{self, World},
};
use fates::Fates;
use forwards::Forwards;
use gathers::Gathers;
use journal::Journal;
use scatters::Scatters;
pub(crate) use scored::{score, score_only, watch};

/// Start of every run: 2027-01-15 08:00:00 UTC.
const START: Timestamp = Timestamp::from_secs(1_800_000_000);
/// Time a driver waits for the answer to a probe.
const PROBE_TIMEOUT: Duration = Duration::from_secs(5);
/// Time until a connection to an absent depot fails.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
/// Period of throughput measurements and samples.
const MEASURE_EVERY: Duration = Duration::from_secs(1);
/// Steps after which a run is stopped as endless, and further steps for each request.
const STEPS_MAX: u64 = 5_000_000;
const STEPS_PER_REQUEST: u64 = 1000;

pub use notes::{simulate_explained, simulate_recorded};

/// Future event.
#[derive(Debug, Clone)]
enum Pending {
    /// Input for the mind from the driver of this epoch.
    Tell { epoch: u32, input: Input },
    /// Action of a user; it waits while the driver is down.
    Ask { input: Input },
    /// Liveness probe of all depots by the driver of this epoch.
    Probe { epoch: u32 },
    /// Throughput measurement by the driver of this epoch.
    Measure { epoch: u32 },
    /// Sample for the recorder.
    Sample,
    /// Event of a circuit.
    Circuit { turn: circuits::Turn },
    /// Outage or return of a gateway.
    Gateway { gateway: usize, is_gone: bool },
    /// Deadline by which a probe should be over.
    Overdue { epoch: u32, number: u64 },
    /// Removal of the source from scratch, for the driver of this epoch.
    Remove { epoch: u32, request: RequestId },
    /// Removal of the source by another party.
    Purge { request: RequestId },
    /// Fault of a depot or of the service.
    Strike { place: usize, blow: Blow },
    /// Fault of a source.
    StrikeSource { place: usize, blow: Blow },
    /// End of a source's fault.
    HealSource {
        kind: FaultKind,
        place: usize,
        ordeal: u32,
    },
    /// End of a fault.
    Heal {
        kind: FaultKind,
        place: usize,
        ordeal: u32,
        is_routine: bool,
    },
}

/// Details of a fault of a depot or of the service.
#[derive(Debug, Clone, Copy)]
struct Blow {
    kind: FaultKind,
    /// Rate of a slow link, in bytes a second.
    rate: Option<u64>,
    /// Bytes another party takes.
    takes: Option<u64>,
    /// Duration; without one the fault is permanent.
    lasts: Option<Duration>,
    /// Recurrence of the fault.
    is_routine: bool,
}

struct Run<'a> {
    scenario: &'a Scenario,
    now: Timestamp,
    world: World,
    mind: Option<Decider>,
    journal: Journal,
    epoch: u32,
    queue: BTreeMap<(Timestamp, u64), Pending>,
    sequence: u64,
    /// Future events that are not routine.
    upcoming: usize,
    dice: Dice,
    checkers: Checkers,
    timeline: Vec<Entry>,
    timeline_left_out: u64,
    /// Recorder of samples, if requested.
    recorder: Option<Recorder>,
    expected: BTreeMap<RequestId, Vec<Fate>>,
    source_gone: BTreeMap<RequestId, bool>,
    /// Datasets that their users have pulled.
    pulled: BTreeSet<RequestId>,
    source_changed: bool,
    omissions: omissions::Omissions,
    /// Number of fragments that arrived and whose answer never reached the mind.
    surplus: BTreeMap<(DepotId, RequestId), usize>,
    fates: Fates,
    /// Forwards that depots were ordered to start.
    forwards: Forwards,
    gathers: Gathers,
    circuits: circuits::Circuits,
    ways: ways::Ways,
    /// Chunks that depots were ordered to code.
    scatters: Scatters,
    nears: near::Nears,
    /// Bytes that left the centre, or are about to.
    left: Bytes,
    /// Longest time that an answer is in flight.
    answer_max: Duration,
    /// Running probe of a path.
    probing: Option<probes::UnderWay>,
    /// Site of the centre's probe at the last measurement, if one ran.
    was_probed: Option<usize>,
    last_change: Timestamp,
    blind_since: Option<Timestamp>,
    fan_outs: Vec<u32>,
    /// Records for scores and of the world, if requested.
    noted: Option<scored::Noted>,
    seen: Option<Seen>,
    /// Requests that are submitted, if not all.
    only: Option<BTreeSet<RequestId>>,
    fingerprint: u64,
}

/// Plays `scenario` with `seed` to its end and returns the report. Equal arguments give equal
/// reports.
#[must_use]
pub fn simulate(scenario: &Scenario, seed: u64) -> Report {
    simulate_with(scenario, seed, Settings::default())
}

/// Plays `scenario` like [`simulate`], with other settings of the mind. Scores a constant against
/// its alternatives.
#[must_use]
pub fn simulate_with(scenario: &Scenario, seed: u64, settings: Settings) -> Report {
    let mut run = Run::new(scenario, seed, settings);
    run.set_up(seed);
    run.play();
    run.into_report(seed)
}

impl<'a> Run<'a> {
    fn new(scenario: &'a Scenario, seed: u64, mut settings: Settings) -> Self {
        settings.egress = scenario
            .egress()
            .filter(|_| scenario.egress_known)
            .map(ByteRate::new);
        settings.encode = scenario.encode();
        let mind = Mind::new(settings.clone());
        Self {
            scenario,
            now: START,
            world: world::build(scenario, seed, START),
            journal: Journal::new(&mind, scenario.kills_driver()),
            mind: Some(Decider::mind(mind)),
            epoch: 0,
            queue: BTreeMap::new(),
            sequence: 0,
            upcoming: 0,
            dice: Dice::new(seed, "driver"),
            checkers: Checkers::new(&settings),
            timeline: Vec::new(),
            timeline_left_out: 0,
            recorder: None,
            expected: BTreeMap::new(),
            source_gone: BTreeMap::new(),
            pulled: BTreeSet::new(),
            source_changed: false,
            omissions: omissions::Omissions::default(),
            surplus: BTreeMap::new(),
            fates: Fates::default(),
            forwards: Forwards::default(),
            gathers: Gathers::default(),
            circuits: circuits::Circuits::default(),
            ways: ways::Ways::default(),
            scatters: Scatters::default(),
            nears: near::Nears::default(),
            left: Bytes::ZERO,
            answer_max: Duration::ZERO,
            probing: None,
            was_probed: None,
            last_change: START,
            blind_since: None,
            fan_outs: Vec::new(),
            noted: None,
            seen: None,
            only: None,
            fingerprint: 0xcbf2_9ce4_8422_2325,
        }
    }

    fn after(&mut self, span: Duration, pending: Pending) {
        self.upcoming += usize::from(!is_routine(&pending));
        self.sequence += 1;
        self.queue.insert((self.now + span, self.sequence), pending);
    }

    fn tell_after(&mut self, span: Duration, input: Input) {
        let epoch = self.epoch;
        self.after(span, Pending::Tell { epoch, input });
    }

    fn play(&mut self) {
        let end = START + Duration::from_secs(self.scenario.horizon_s);
        let stage_outs = self.scenario.requests.iter().map(|plan| plan.count);
        let stage_ins = self.scenario.stage_ins.iter().map(|plan| plan.count);
        let requests: u64 = stage_outs.chain(stage_ins).sum();
        let steps_max = STEPS_MAX + STEPS_PER_REQUEST * requests;
        while self.checkers.progress.steps() < steps_max && !self.checkers.is_violated() {
            let queued = self.queue.first_key_value().map(|((at, _), _)| *at);
            let wakeup = self
                .mind
                .as_ref()
                .and_then(Decider::next_wakeup)
                .map(|at| at.max(self.now));
            let next = [queued, self.world.next(), wakeup]
                .into_iter()
                .flatten()
                .min();
            let Some(next) = next.filter(|next| *next <= end) else {
                break;
            };
            self.now = next;
            for arrival in self.world.advance(next) {
                self.on_arrival(arrival);
            }
            for strike in self.world.turn() {
                self.on_strike(&strike);
            }
            let mut inputs = Vec::new();
            while let Some(entry) = self
                .queue
                .first_entry()
                .filter(|entry| entry.key().0 <= next)
            {
                let pending = entry.remove();
                self.upcoming -= usize::from(!is_routine(&pending));
                self.happen(pending, &mut inputs);
            }
            if !inputs.is_empty() || wakeup.is_some_and(|wakeup| wakeup <= next) {
                self.step(inputs);
            }
            self.see();
            if self.upcoming == 0 && self.is_settled() {
                break;
            }
        }
    }

    fn is_settled(&self) -> bool {
        let mind = self.mind.as_ref();
        mind.is_some_and(|mind| !self.fates.is_any_moving(mind) && !mind.is_pushing())
            && !self.has_untold_loss()
    }

    fn happen(&mut self, pending: Pending, inputs: &mut Vec<Input>) {
        match pending {
            Pending::Tell { epoch, input } => {
                if epoch == self.epoch && self.mind.is_some() {
                    self.on_told(&input);
                    inputs.push(input);
                }
            }
            Pending::Ask { input } => {
                if self.mind.is_some() && self.may_ask(&input) {
                    self.on_asked(&input);
                    inputs.push(input);
                } else if !matches!(input, Input::LoadTold { .. }) {
                    // A depot repeats its load report to a driver that starts.
                    self.after(Duration::from_secs(1), Pending::Ask { input });
                }
            }
            Pending::Probe { epoch } => {
                if epoch == self.epoch {
                    self.probe();
                    let every = Duration::from_secs(self.scenario.probe_every_s);
                    self.after(every, Pending::Probe { epoch });
                }
            }
            Pending::Measure { epoch } => {
                if epoch == self.epoch {
                    self.measure(inputs);
                    self.after(MEASURE_EVERY, Pending::Measure { epoch });
                }
            }
            Pending::Overdue { epoch, number } => self.on_overdue(epoch, number),
            Pending::Sample => {
                self.sample();
                self.after(MEASURE_EVERY, Pending::Sample);
            }
            Pending::Remove { epoch, request } => {
                if epoch == self.epoch {
                    self.source_gone.insert(request, true);
                    let span = Duration::from_millis(self.dice.between(1, 500));
                    self.tell_after(span, Input::SourceReleased { request });
                }
            }
            Pending::Purge { request } => {
                self.source_gone.insert(request, true);
            }
            Pending::Circuit { turn } => self.on_turn(turn),
            Pending::Gateway { gateway, is_gone } => self.on_gateway(gateway, is_gone),
            Pending::Strike { place, blow } => self.strike(place, blow),
            Pending::StrikeSource { place, blow } => self.strike_source(place, blow),
            Pending::HealSource {
                kind,
                place,
                ordeal,
            } => self.heal_source(kind, place, ordeal),
            Pending::Heal {
                kind,
                place,
                ordeal,
                ..
            } => self.heal(kind, place, ordeal, inputs),
        }
    }

    /// Runs one step of the mind, records it in the journal, checks it and executes its commands.
    fn step(&mut self, inputs: Vec<Input>) {
        let Some(mut mind) = self.mind.take() else {
            self.ask_again(inputs);
            return;
        };
        let mut out = Outbox::default();
        let told = inputs.len();
        self.journal.append(self.now, &inputs);
        mind.step(self.now, inputs, &mut out);
        self.heed_codes(&out.events);
        for event in &out.events {
            let spec = event
                .request
                .and_then(|request| self.world.specs.get(&request));
            let arrival = event
                .request
                .and_then(|request| self.checkers.arrivals.deadline(request));
            let deadline = spec.map(|spec| spec.deadline).or(arrival);
            self.fates.hear(event, &mind, deadline);
        }
        let wakeup = mind.next_wakeup();
        // A mind that asks to be woken may be as busy as it likes.
        let is_busy = wakeup.is_none() && self.fates.is_any_moving(&mind);
        let found = self
            .checkers
            .progress
            .on_step(self.now, told, wakeup, is_busy);
        self.checkers.note(self.now, found);
        if self.journal.is_due(self.scenario.snapshot_every) {
            mind = mind.through(|mind| self.round_trip(mind));
        }
        self.mind = Some(mind);
        self.fold(&out);
        for event in &out.events {
            self.on_event(event);
        }
        if !out.events.is_empty() {
            self.note_fan_out();
        }
        for command in out.commands {
            self.execute(command);
        }
    }

    /// Folds the mind's output into the fingerprint (FNV-1a).
    fn fold(&mut self, out: &Outbox) {
        let mut bytes = Vec::new();
        out.events.iter().for_each(|event| event.write(&mut bytes));
        out.commands
            .iter()
            .for_each(|command| command.write(&mut bytes));
        self.now.write(&mut bytes);
        for byte in bytes {
            self.fingerprint = (self.fingerprint ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }

    fn on_event(&mut self, event: &Event) {
        self.checkers.deadlines.on_event(event);
        self.checkers.pauses.on_event(event);
        let found = self.checkers.dues.on_event(event);
        self.checkers.note(self.now, found);
        let found = (self.checkers.ways).on_said(event.depot, &event.happening);
        self.checkers.note(self.now, found);
        let found = self.checkers.arrivals.on_event(event);
        self.checkers.note(self.now, found);
        self.checkers.onward.on_event(event);
        self.checkers.domains.on_event(event);
        if let (Happening::Safe { .. }, Some(request)) = (&event.happening, event.request) {
            let losses = if let Reason::AllSafe { losses } | Reason::RestFollows { losses, .. } =
                event.reason
            {
                u8::try_from(losses).unwrap_or(u8::MAX)
            } else {
                u8::MAX
            };
            self.check_claim(request, losses, false);
        }
        self.check_release(event);
        if let (
            Reason::Delivery {
                why: DeliveryReason::WholeThere { .. },
            }
            | Reason::Delivery {
                why: DeliveryReason::InTime { .. },
            }
            | Reason::Delivery {
                why: DeliveryReason::Late { .. },
            },
            Some(request),
        ) = (&event.reason, event.request)
        {
            let found = crate::checkers::on_delivered(request, self.world.undelivered(request));
            self.checkers.note(self.now, found);
        }
        let what = What::Said {
            happening: event.happening.clone(),
            reason: event.reason.clone(),
        };
        self.log(event.request, event.depot, what);
    }
}

/// Returns whether the event recurs for ever and changes nothing by itself.
fn is_routine(pending: &Pending) -> bool {
    match pending {
        Pending::Probe { .. }
        | Pending::Measure { .. }
        | Pending::Sample
        | Pending::Circuit { .. }
        | Pending::Gateway { .. }
        | Pending::Overdue { .. } => true,
        Pending::Heal { is_routine, .. } => *is_routine,
        Pending::Tell { input, .. } => {
            matches!(input, Input::DepotUp { .. } | Input::DepotDown { .. })
        }
        Pending::Ask { .. }
        | Pending::Remove { .. }
        | Pending::Purge { .. }
        | Pending::Strike { .. }
        | Pending::StrikeSource { .. }
        | Pending::HealSource { .. } => false,
    }
}
