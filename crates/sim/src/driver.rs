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
mod losses;
mod near;
mod notes;
mod omissions;
mod plans;
mod probes;
mod queue;
mod scatters;
mod scored;
mod sends;
mod senses;
mod setup;
mod spaces;
mod step;
mod told;
mod verdict;
mod ways;

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use posthaste_core::{Mind, Settings, contract::Input};
use posthaste_types::{ByteRate, Bytes, ChunkIndex, DepotId, RequestId, Timestamp};

use crate::{
    Checkers, Entry, Report, Scenario,
    deadlines::Score,
    deadlines::Seen,
    random::Dice,
    report::{Fate, Recorder},
    rivals::Decider,
    scenario::FaultKind,
    world::{self, World},
};
use fates::Fates;
use forwards::Forwards;
use gathers::Gathers;
use journal::Journal;
use scatters::Scatters;
use scored::Noted;
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

    /// Plays to the end and counts.
    fn score(mut self, seed: u64) -> Score {
        self.noted = Some(Noted::default());
        self.set_up(seed);
        self.play();
        let noted = self.noted.take().unwrap_or_default();
        let sizes = self.world.specs.iter().map(|(request, spec)| {
            let needed = (0..spec.chunks()).map(|chunk| {
                let size = spec.chunk_bytes(chunk);
                if noted.whole.contains(&(*request, ChunkIndex::new(chunk))) {
                    size
                } else {
                    spec.code
                        .fragment_size(size)
                        .times(spec.code.total().into())
                }
            });
            (*request, (spec.bytes, needed.sum()))
        });
        Score {
            sizes: sizes.collect(),
            report: self.into_report(seed),
            reached: noted.reached,
            delivered: noted.delivered,
        }
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
