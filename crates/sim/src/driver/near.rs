//! Stage-ins that wait at depots near the centre: the driver's work for them in the model world.

#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "only what concerns such depots matters here"
)]

use std::{collections::BTreeMap, time::Duration};

use posthaste_core::contract::{Fault, Input, NearDepot, StageInNews};
use posthaste_types::{ChunkIndex, DepotId, FragmentIndex, RequestId, SourceId};

use super::{CONNECT_TIMEOUT, Pending, Run, faults::BREAK_NOTICED_MS_MAX};
use crate::{
    scenario::StageInPlan,
    world::{Arrival, Condition, Node, Sending},
};

type Leg = (RequestId, SourceId, ChunkIndex);

/// Chunks on their way from a source to a depot near the centre.
#[derive(Debug, Default)]
pub(super) struct Nears {
    under_way: BTreeMap<Leg, DepotId>,
}

impl Nears {
    /// Returns the leg of a stage-in's chunk that is on its way to a depot.
    fn to(&self, depot: DepotId, request: RequestId, chunk: ChunkIndex) -> Option<Leg> {
        let mut all = self.under_way.iter();
        let found = all.find(|((of, _, which), to)| (*of, *which, **to) == (request, chunk, depot));
        found.map(|(leg, _)| *leg)
    }
}

impl Run<'_> {
    /// Returns the depots at which a stage-in may wait, as its plan says.
    pub(super) fn near_of(&self, request: RequestId, plan: &StageInPlan) -> Option<Input> {
        let near = plan.via.iter().filter_map(|name| {
            let origins = self.world.origins.iter();
            let site = self.world.sites.iter().find(|site| site.name == *name)?;
            let mut origins = origins.filter(|origin| origin.near == Some(site.id));
            let source = origins.next()?.id;
            let depot = site.id;
            Some(NearDepot { depot, source })
        });
        let near: Vec<NearDepot> = near.collect();
        (!near.is_empty()).then_some(Input::StageInTold {
            request,
            news: StageInNews::MayWait { near },
        })
    }

    /// Fetches a chunk that goes on to a depot near the centre.
    pub(super) fn prestage(&mut self, leg: Leg, depot: DepotId) {
        let (request, source, chunk) = leg;
        let found = self.checkers.arrivals.on_prestage(request, source, chunk);
        self.checkers.note(self.now, found);
        let found = self.checkers.drains.on_prestage(depot);
        self.checkers.note(self.now, found);
        let Some(place) = self.world.origin(source) else {
            return;
        };
        let origin = &self.world.origins[place];
        self.nears.under_way.insert(leg, depot);
        if origin.condition == Condition::Dead {
            self.miss(CONNECT_TIMEOUT, leg, Fault::Unreachable);
        } else {
            let sending = self.whole(request, chunk);
            self.world.send(origin.node, Node::CENTRE, sending);
        }
    }

    fn whole(&self, request: RequestId, chunk: ChunkIndex) -> Sending {
        Sending {
            request,
            chunk,
            fragment: FragmentIndex::WHOLE,
            bytes: self.checkers.arrivals.bytes_of(request, chunk),
        }
    }

    /// Handles a failed read from the source.
    fn miss(&mut self, span: Duration, leg: Leg, fault: Fault) {
        self.nears.under_way.remove(&leg);
        let (request, source, chunk) = leg;
        let input = Input::ChunkMissed {
            request,
            source,
            chunk,
            fault,
        };
        self.tell_after(span, input);
    }

    /// Answers whether the depot stored the chunk.
    fn answer_prestage(&mut self, span: Duration, leg: Leg, depot: DepotId, fault: Option<Fault>) {
        self.nears.under_way.remove(&leg);
        let (request, source, chunk) = leg;
        let news = match fault {
            None => StageInNews::Stored {
                source,
                chunk,
                depot,
            },
            Some(fault) => StageInNews::Failed {
                source,
                chunk,
                depot,
                fault,
            },
        };
        let input = Input::StageInTold { request, news };
        self.tell_after(span, input);
    }

    /// Forwards a chunk from a source to a depot near the centre. Returns whether the arrival was
    /// one.
    pub(super) fn on_read_for_near(&mut self, leg: Leg, fault: Option<Fault>) -> bool {
        let Some(&depot) = self.nears.under_way.get(&leg) else {
            return false;
        };
        let span = Duration::from_millis(self.dice.between(1, 40));
        if let Some(fault) = fault {
            self.miss(span, leg, fault);
            return true;
        }
        let Some(place) = self.world.place(depot) else {
            return true;
        };
        if self.world.sites[place].condition() == Condition::Dead {
            self.answer_prestage(CONNECT_TIMEOUT, leg, depot, Some(Fault::Unreachable));
        } else {
            let sending = self.whole(leg.0, leg.2);
            self.world.send(Node::CENTRE, Node::site(place), sending);
        }
        true
    }

    /// Handles a chunk that arrived at a depot near the centre, or was lost. Returns whether the
    /// arrival was one.
    pub(super) fn on_near(&mut self, arrival: &Arrival, lost: Option<Duration>) -> bool {
        let Arrival { from, to, sending } = arrival;
        let (request, chunk) = (sending.request, sending.chunk);
        let Some(place) = to.place().filter(|_| *from == Node::CENTRE) else {
            return false;
        };
        let depot = self.world.sites[place].id;
        let Some(leg) = self.nears.to(depot, request, chunk) else {
            // Nobody waits for it any more, or its driver is dead.
            return self.checkers.arrivals.is_known(request);
        };
        if let Some(span) = lost {
            self.answer_prestage(span, leg, depot, Some(Fault::Unreachable));
            return true;
        }
        let chunks = self.checkers.arrivals.chunks_of(request);
        let is_lost = self.dice.chance(self.scenario.answer_lost_permille);
        let site = &mut self.world.sites[place];
        let latency = Duration::from_micros(site.latency_micros);
        let is_stored = site.store(sending, chunks);
        let (used, capacity) = (site.used, site.capacity);
        let found = self.checkers.capacity.on_stored(depot, used, capacity);
        self.checkers.note(self.now, found);
        let fault = match (is_stored, is_lost) {
            (false, _) => Some(Fault::Full),
            (true, true) => Some(Fault::Unreachable),
            (true, false) => None,
        };
        if fault.is_none() {
            self.checkers.arrivals.on_kept_near(request, chunk);
        }
        self.answer_prestage(latency, leg, depot, fault);
        true
    }

    /// Stops prestaging from a source to depots near the centre, and forgets its answers.
    pub(super) fn quit_near(&mut self, matches: impl Fn(RequestId, SourceId) -> bool) {
        let all = self.nears.under_way.iter();
        let quit = all.filter(|((request, source, _), _)| matches(*request, *source));
        let quit: Vec<(Leg, DepotId)> = quit.map(|(leg, depot)| (*leg, *depot)).collect();
        for ((request, source, chunk), depot) in quit {
            self.nears.under_way.remove(&(request, source, chunk));
            if let Some(place) = self.world.place(depot) {
                self.world.drop_sends(place, |sending| {
                    (sending.request, sending.chunk) == (request, chunk)
                });
            }
        }
        let answers =
            self.queue
                .iter()
                .filter_map(|(key, pending)| match pending {
                    Pending::Tell {
                        input:
                            Input::StageInTold {
                                request,
                                news:
                                    StageInNews::Stored { source, .. }
                                    | StageInNews::Failed { source, .. },
                            },
                        ..
                    } => matches(*request, *source).then_some(*key),
                    _ => None,
                });
        let answers: Vec<_> = answers.collect();
        for key in answers {
            self.queue.remove(&key);
            self.upcoming -= 1;
        }
    }

    /// Returns the fault of a depot near the centre that lacks the chunk or is unreachable.
    pub(super) fn lacks(
        &self,
        source: SourceId,
        request: RequestId,
        chunk: ChunkIndex,
    ) -> Option<Fault> {
        let place = self.world.origin(source)?;
        let depot = self.world.origins[place].near?;
        let site = &self.world.sites[self.world.place(depot)?];
        if site.condition() != Condition::Well {
            return Some(Fault::Unreachable);
        }
        let holds = site.holds(request, chunk, FragmentIndex::WHOLE);
        (!holds).then_some(Fault::SourceVanished)
    }

    /// Fails reads from a depot near the centre, because its connections broke.
    pub(super) fn break_off_near(&mut self, depot: DepotId) {
        let origins = self.world.origins.iter();
        let place = origins
            .enumerate()
            .find(|(_, origin)| origin.near == Some(depot));
        if let Some((place, _)) = place {
            self.break_off_reads(place);
        }
    }

    /// Fails every read from a source, because its connections broke.
    pub(super) fn break_off_reads(&mut self, place: usize) {
        let source = self.world.origins[place].id;
        for sending in self.world.drop_inbound(place, |_| true) {
            let span = Duration::from_millis(self.dice.between(1, BREAK_NOTICED_MS_MAX));
            let leg = (sending.request, source, sending.chunk);
            self.miss(span, leg, Fault::Unreachable);
        }
    }

    /// Returns whether every chunk can be rebuilt from depots that answer.
    pub(super) fn can_pull(&self, request: RequestId) -> bool {
        let Some(spec) = self.world.specs.get(&request) else {
            return false;
        };
        let there = self.world.sites.iter().filter(|site| site.is_reachable());
        let holders: Vec<(bool, &Vec<u64>)> = there
            .filter_map(|site| {
                Some((
                    spec.destinations.contains(&site.id),
                    site.held.get(&request)?,
                ))
            })
            .collect();
        (0..spec.chunks() as usize).all(|chunk| {
            let is_whole = holders
                .iter()
                .any(|(is_end, held)| *is_end && held[chunk] & 1 == 1);
            let staged = holders.iter().filter(|(is_end, _)| !is_end);
            let fragments = staged.fold(0, |mask, (_, held)| mask | held[chunk]);
            is_whole || fragments.count_ones() >= u32::from(spec.code.data())
        })
    }
}
