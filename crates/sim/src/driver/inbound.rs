//! Stage-ins: the driver's work for them in the model world, and the faults of their sources.

#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "only what concerns stage-ins matters here"
)]

use std::time::Duration;

use posthaste_core::contract::{ArrivalSpec, ArrivalView, Fault, Holding, Input, StageInNews};
use posthaste_types::{ByteRate, Bytes, ChunkIndex, FragmentIndex, RequestId, SourceId, Timestamp};

use super::{Blow, CONNECT_TIMEOUT, MEASURE_EVERY, Pending, Run, START};
use crate::{
    random::Dice,
    report::What,
    scenario::{Amount, FaultKind, FaultPlan, StageInPlan, mebi},
    world::{Arrival, Carried, Condition, Node, Sending},
};

/// Earliest time of a submission, after the sources were examined.
const FIRST_AFTER: Duration = Duration::from_millis(200);

/// Permille of removals that fail temporarily.
const KEPT_PERMILLE: u64 = 200;

impl Run<'_> {
    /// Returns the reports about sources for the mind.
    pub(super) fn found_sources(&self) -> Vec<Input> {
        let found = self.world.origins.iter().map(|origin| Input::SourceFound {
            source: origin.id,
            name: origin.name.clone(),
            rate_max: origin
                .advertises
                .then_some(ByteRate::new(origin.first_rate)),
        });
        found.collect()
    }

    /// Queues the stage-ins, numbered after the stage-outs.
    pub(super) fn queue_stage_ins(&mut self, seed: u64) {
        let before: u64 = self.scenario.requests.iter().map(|plan| plan.count).sum();
        let plans = self.scenario.stage_ins.iter();
        let plans = plans.flat_map(|plan| (0..plan.count).map(move |_| plan));
        for (number, plan) in (before + 1..).zip(plans) {
            let request = RequestId::new(number);
            let mut dice = Dice::new(seed, &format!("stage-in {number}"));
            let at = Duration::from_millis(plan.at_s.draw_milli(&mut dice)) + FIRST_AFTER;
            let spec = self.stage_in_spec(plan, at, &mut dice);
            if !plan.expect.is_empty() {
                self.expected.insert(request, plan.expect.clone());
            }
            let holdings = self.holdings(plan, spec.bytes);
            let costs = self.costs_of(plan, &spec.sources);
            let input = if holdings.is_empty() {
                Input::ArrivalAsked { request, spec }
            } else {
                Input::ArrivalGathered {
                    request,
                    spec,
                    holdings,
                }
            };
            let tell = |news: StageInNews| Pending::Ask {
                input: Input::StageInTold { request, news },
            };
            for news in plan.goes_elsewhere().into_iter().chain(costs) {
                self.after(at, tell(news));
            }
            self.after(at, Pending::Ask { input });
            if let Some(news) = plan.is_for() {
                self.after(at, tell(news));
            }
            if let Some(input) = self.near_of(request, plan) {
                self.after(at, Pending::Ask { input });
            }
            for one in &plan.moves {
                let mut draw =
                    |amount: Amount| at + Duration::from_millis(amount.draw_milli(&mut dice));
                let [after, not_before, deadline] =
                    [one.after_s, one.not_before_s, one.deadline_s].map(&mut draw);
                let input = Input::ArrivalMoved {
                    request,
                    not_before: START + not_before,
                    deadline: START + deadline,
                };
                self.after(after, Pending::Ask { input });
            }
            let mut later = |after: Amount| Duration::from_millis(after.draw_milli(&mut dice));
            let paused_at = plan.pause_after_s.map(|after| at + later(after));
            let lasts = plan.pause_for_s.map(later);
            let resumed_at = paused_at.zip(lasts).map(|(paused, lasts)| paused + lasts);
            self.queue_pause(request, paused_at, resumed_at);
            if let Some(after) = plan.cancel_after_s {
                let at = at + Duration::from_millis(after.draw_milli(&mut dice));
                let input = Input::RequestCancelled { request };
                self.after(at, Pending::Ask { input });
            }
        }
    }

    fn stage_in_spec(&self, plan: &StageInPlan, at: Duration, dice: &mut Dice) -> ArrivalSpec {
        let bytes = Bytes::new(plan.size_mib.draw_bytes(dice));
        let deadline = Duration::from_millis(plan.deadline_s.draw_milli(dice));
        let not_before = plan.not_before_s.map(|after| {
            let after = Duration::from_millis(after.draw_milli(dice));
            START + at + after.min(deadline)
        });
        let origins = self.world.origins.iter();
        let named = |name: &String| plan.sources.is_empty() || plan.sources.contains(name);
        ArrivalSpec {
            bytes,
            files: 1,
            chunk_size: Bytes::new(mebi(plan.chunk_mib)),
            deadline: START + at + deadline,
            not_before,
            sources: origins
                .filter(|origin| origin.near.is_none() && named(&origin.name))
                .map(|origin| origin.id)
                .collect(),
            priority: plan.priority().unwrap_or_default(),
            rate_max: plan
                .rate_max_mib_per_s
                .map(|rate| ByteRate::new(rate.draw_bytes(dice).max(1))),
            best_effort: plan.best_effort,
        }
    }

    /// Returns the holdings of a stage-in, as its plan says.
    fn holdings(&self, plan: &StageInPlan, bytes: Bytes) -> Vec<Holding> {
        let sizes = plan.split(bytes).into_iter();
        let holdings = plan.holdings.iter().zip(sizes);
        let holdings = holdings.map(|(holding, bytes)| {
            let origins = self.world.origins.iter();
            let lies_there = |name: &String| holding.sources.contains(name);
            let origins = origins.filter(|origin| lies_there(&origin.name));
            Holding {
                bytes,
                sources: origins.map(|origin| origin.id).collect(),
            }
        });
        holdings.collect()
    }

    pub(super) fn on_stage_in(
        &mut self,
        request: RequestId,
        spec: &ArrivalSpec,
        holdings: &[Holding],
    ) {
        self.checkers.deadlines.on_submitted(request, spec.deadline);
        let chunks = self.checkers.arrivals.on_submitted(request, spec, holdings);
        let asked = format!(
            "{} in {chunks} chunks here by {:.0} s",
            spec.bytes,
            spec.deadline.since(START).as_secs_f64(),
        );
        self.log(Some(request), None, What::User(asked));
    }

    pub(super) fn on_stage_in_moved(
        &mut self,
        request: RequestId,
        not_before: Timestamp,
        deadline: Timestamp,
    ) {
        self.checkers
            .arrivals
            .on_moved(request, not_before, deadline);
        self.checkers.deadlines.on_moved(request, deadline);
        let by = deadline.since(START).as_secs_f64();
        let asked = format!("wanted by {by:.0} s");
        self.log(Some(request), None, What::User(asked));
    }

    /// Fetches a chunk from a source.
    pub(super) fn fetch(&mut self, request: RequestId, source: SourceId, chunk: ChunkIndex) {
        let found = self.checkers.arrivals.on_fetch(request, source, chunk);
        self.checkers.note(self.now, found);
        let found = self.checkers.onward.on_fetch(request);
        self.checkers.note(self.now, found);
        let bytes = self.checkers.arrivals.bytes_of(request, chunk);
        let Some(place) = self.world.origin(source) else {
            return;
        };
        let origin = &self.world.origins[place];
        let of = self.checkers.onward.of(request);
        let is_out_of_reach = of.is_some_and(|of| !self.can_pull(of));
        let lacks = is_out_of_reach.then_some(Fault::Unreachable);
        let lacks = lacks.or(self.lacks(source, request, chunk));
        let is_dead = origin.condition == Condition::Dead;
        if let Some(fault) = is_dead.then_some(Fault::Unreachable).or(lacks) {
            self.tell_after(
                CONNECT_TIMEOUT,
                Input::ChunkMissed {
                    request,
                    source,
                    chunk,
                    fault,
                },
            );
        } else {
            let sending = Sending {
                request,
                chunk,
                fragment: FragmentIndex::WHOLE,
                bytes,
            };
            self.world.send(origin.node, Node::CENTRE, sending);
        }
    }

    /// Stops fetches and forgets their answers.
    pub(super) fn quit(&mut self, request: RequestId, source: SourceId) {
        if let Some(place) = self.world.origin(source) {
            let dropped = self
                .world
                .drop_inbound(place, |sending| sending.request == request);
            for sending in dropped {
                self.checkers
                    .arrivals
                    .on_end(request, source, sending.chunk);
            }
        }
        self.forget_chunks(|of, from| of == request && from == source);
        self.quit_near(|of, from| of == request && from == source);
    }

    /// Forgets answers about chunks on their way to the mind.
    fn forget_chunks(&mut self, matches: impl Fn(RequestId, SourceId) -> bool) {
        let answers: Vec<_> = self
            .queue
            .iter()
            .filter_map(|(key, pending)| match pending {
                Pending::Tell {
                    input:
                        Input::ChunkArrived {
                            request,
                            source,
                            chunk,
                        }
                        | Input::ChunkMissed {
                            request,
                            source,
                            chunk,
                            ..
                        },
                    ..
                } => Some((*key, *request, *source, *chunk)),
                _ => None,
            })
            .filter(|(_, request, source, _)| matches(*request, *source))
            .collect();
        for (key, request, source, chunk) in answers {
            self.queue.remove(&key);
            self.upcoming -= 1;
            self.checkers.arrivals.on_end(request, source, chunk);
        }
    }

    /// Reports the chunks that are here.
    pub(super) fn survey(&mut self, request: RequestId) {
        let chunks = self.checkers.arrivals.here(request);
        let span = Duration::from_millis(self.dice.between(1, 300));
        self.tell_after(span, Input::ArrivalSurveyed { request, chunks });
    }

    /// Publishes the files, or removes the written data.
    pub(super) fn settle_arrival(&mut self, request: RequestId, keep: bool) {
        let found = self.checkers.arrivals.on_settle(request, keep);
        self.checkers.note(self.now, found);
        if keep {
            let span = Duration::from_millis(self.dice.between(1, 800));
            self.tell_after(span, Input::Landed { request });
        }
    }

    /// Removes the source of an export.
    pub(super) fn release_arrival(&mut self, request: RequestId) {
        let found = self.checkers.arrivals.on_release(request);
        self.checkers.note(self.now, found);
        let span = Duration::from_millis(self.dice.between(10, 2000));
        let input = if self.dice.chance(KEPT_PERMILLE) {
            let fault = Fault::Other;
            Input::SourceKept { request, fault }
        } else {
            Input::SourceReleased { request }
        };
        self.tell_after(span, input);
    }

    /// Informs the checkers about an input before the mind sees it.
    pub(super) fn on_told_inbound(&mut self, input: &Input) {
        match input {
            Input::ChunkArrived {
                request,
                source,
                chunk,
            } => {
                self.checkers.arrivals.on_end(*request, *source, *chunk);
                self.checkers.arrivals.on_told(*request, &[*chunk]);
            }
            Input::ChunkMissed {
                request,
                source,
                chunk,
                ..
            } => self.checkers.arrivals.on_end(*request, *source, *chunk),
            Input::ArrivalSurveyed { request, chunks } => {
                self.checkers.arrivals.on_told(*request, chunks);
            }
            Input::Landed { request } => self.checkers.arrivals.on_landed(*request),
            _ => {}
        }
    }

    /// Handles a chunk from a source: writes it, notes it, and reports it to the mind unless the
    /// answer is lost.
    pub(super) fn on_chunk(&mut self, arrival: &Arrival) {
        let Some(place) = self.world.origin_at(arrival.from) else {
            return;
        };
        let origin = &self.world.origins[place];
        let (source, is_changed) = (origin.id, origin.is_changed);
        let latency = Duration::from_micros(origin.latency_micros);
        let Sending { request, chunk, .. } = arrival.sending;
        let is_corrupt = self.dice.chance(self.scenario.corrupt_permille);
        let fault = if is_changed {
            Some(Fault::SourceChanged)
        } else {
            is_corrupt.then_some(Fault::Corrupt)
        };
        if self.on_read_for_near((request, source, chunk), fault) {
            return;
        }
        let span = Duration::from_millis(self.dice.between(1, 40));
        let input = match fault {
            None => {
                self.checkers.arrivals.on_noted(request, chunk);
                Input::ChunkArrived {
                    request,
                    source,
                    chunk,
                }
            }
            Some(fault) => Input::ChunkMissed {
                request,
                source,
                chunk,
                fault,
            },
        };
        self.tell_after(latency + span, input);
    }

    /// Returns the bytes a path from a source carried since the last measurement.
    pub(super) fn measure_inbound(&self, carried: &Carried) -> Option<Input> {
        let place = self.world.origin_at(carried.from)?;
        Some(Input::Inbound {
            source: self.world.origins[place].id,
            bytes: Bytes::new(carried.bytes),
            window: MEASURE_EVERY,
            saturated: carried.is_saturated,
        })
    }

    /// Kills the driver. Its fetches and pending answers are lost.
    pub(super) fn crash_inbound(&mut self) {
        for place in 0..self.world.origins.len() {
            self.world.drop_inbound(place, |_| true);
        }
        self.forget_chunks(|_, _| true);
        self.quit_near(|_, _| true);
        self.checkers.arrivals.forget_told();
    }

    /// Queues a fault of a source.
    pub(super) fn queue_fault_of_source(&mut self, plan: &FaultPlan, at: Duration, blow: Blow) {
        let origins = &self.world.origins;
        let place = origins
            .iter()
            .position(|origin| Some(&origin.name) == plan.source.as_ref());
        if let Some(place) = place {
            self.after(at, Pending::StrikeSource { place, blow });
        }
    }

    /// Applies a fault to a source.
    pub(super) fn strike_source(&mut self, place: usize, blow: Blow) {
        let Blow { kind, lasts, .. } = blow;
        self.last_change = self.now + lasts.unwrap_or_default();
        let name = self.world.origins[place].name.clone();
        self.world.origins[place].ordeal += 1;
        let ordeal = self.world.origins[place].ordeal;
        let what = match kind {
            FaultKind::Vanishes => {
                self.world.set_origin(place, Condition::Vanished);
                format!("{name} vanishes")
            }
            FaultKind::Slows => {
                let rate = blow.rate.unwrap_or(0);
                self.world.cut_inbound(place, Some(rate));
                format!("the link from {name} carries {}", ByteRate::new(rate))
            }
            FaultKind::SourceChanges => {
                self.world.origins[place].is_changed = true;
                format!("what {name} holds changes")
            }
            _ => {
                self.break_off_source(place);
                format!("{name} dies")
            }
        };
        self.log(None, None, What::World(what));
        if let Some(lasts) = lasts {
            self.after(
                lasts,
                Pending::HealSource {
                    kind,
                    place,
                    ordeal,
                },
            );
        }
    }

    /// Breaks every connection to a source. The driver notices that soon.
    fn break_off_source(&mut self, place: usize) {
        self.world.set_origin(place, Condition::Dead);
        self.break_off_reads(place);
    }

    /// Ends a fault of a source.
    pub(super) fn heal_source(&mut self, kind: FaultKind, place: usize, ordeal: u32) {
        let name = self.world.origins[place].name.clone();
        let what = match kind {
            FaultKind::Slows => {
                self.world.cut_inbound(place, None);
                format!("the link from {name} is as before")
            }
            FaultKind::SourceChanges => format!("{name} stays changed"),
            _ if self.world.origins[place].ordeal != ordeal => return,
            _ => {
                self.world.set_origin(place, Condition::Well);
                format!("{name} is well again")
            }
        };
        self.last_change = self.now;
        self.log(None, None, What::World(what));
    }

    /// Returns whether the remaining sources could have given all data within the time.
    pub(super) fn could_be_here(&self, view: &ArrivalView, needed_s: u64) -> bool {
        let gives = |id: &SourceId| {
            let mut shares = view.shares.iter();
            let is_named = shares.any(|share| share.source == *id && !share.is_gone);
            self.world.origin(*id).is_some_and(|place| {
                let origin = &self.world.origins[place];
                is_named
                    && origin.condition == Condition::Well
                    && !origin.is_changed
                    && self.world.inbound_rate(place) > 0
            })
        };
        // With separate holdings, each one needs a source that gives it.
        let holdings = self.checkers.arrivals.holdings(view.request);
        let is_there = if holdings.is_empty() {
            view.spec.sources.iter().any(gives)
        } else {
            let mut holdings = holdings.iter();
            holdings.all(|holding| holding.sources.iter().any(gives))
        };
        let paced_s = view
            .spec
            .rate_max
            .map_or(0, |rate| rate.time_for(view.spec.bytes).as_secs());
        let since = self.last_change.max(view.submitted);
        let since = view
            .spec
            .not_before
            .map_or(since, |not_before| since.max(not_before));
        is_there && self.is_paid(view) && self.now.since(since).as_secs() > needed_s + 2 * paced_s
    }
}
