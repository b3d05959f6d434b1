//! Depots near the centre, on which a stage-in waits until it is welcome
//! (`docs/algorithms/just-in-time-arrival.md`). This part decides what goes there, follows its
//! fate, and tells them when it is over.

use alloc::{
    collections::{BTreeMap, BTreeSet},
    string::String,
    vec::Vec,
};
use posthaste_forecast::Quantiles;
use posthaste_types::{Bytes, ChunkIndex, DepotId, FragmentIndex, RequestId, SourceId};

use crate::{
    Mind,
    books::{Arrival, Depot, Fetch, Flight, Forget, Link, Near, Source},
    contract::{Command, Fault, Happening, Knowledge, NearDepot, NearReason, Outbox, Reason},
};

/// Most chunks on their way to one depot near the centre for one stage-in: enough to hide the round
/// trip, and little memory.
const FLIGHTS_MAX: u32 = 4;

impl Mind {
    /// Returns the depots that are read as sources because they are near the centre of some
    /// stage-in.
    pub(super) fn depots_as_sources(&self) -> BTreeMap<SourceId, DepotId> {
        let live = self.arrivals.live();
        let near = live.flat_map(|(_, arrival)| arrival.near.iter());
        near.map(|near| (near.source, near.depot)).collect()
    }

    /// Returns the rate of a source. A depot near the centre from which nothing was read yet is
    /// assumed to give at the rate at which it accepts.
    pub(super) fn rates_of(&self, source: &Source, near: Option<DepotId>) -> Quantiles {
        let depot = near.and_then(|near| self.depots.get(&near));
        let taken = depot.filter(|depot| !source.link.is_measured() && depot.link.is_measured());
        taken.map_or(source.link.rates, |depot| depot.link.rates)
    }

    /// Returns whether the rate of a source is only a guess.
    pub(super) fn is_assumed(&self, source: &Source, near: Option<DepotId>) -> bool {
        let depot = near.and_then(|near| self.depots.get(&near));
        let links = [Some(&source.link), depot.map(|depot| &depot.link)];
        let is_guess = |link: &Link| link.knowledge(self.now, &self.settings) == Knowledge::Assumed;
        links.into_iter().flatten().all(is_guess)
    }

    /// Returns whether nothing can come from a source now.
    pub(super) fn gives_nothing(&self, source: &Source, near: Option<DepotId>) -> bool {
        let depot = near.map(|near| self.depots.get(&near).is_some_and(Depot::is_up));
        source.is_down() || depot == Some(false)
    }

    /// Returns whether a depot accepts more of a stage-in that waits there.
    pub(super) fn takes_more(&self, arrival: &Arrival, near: &Near) -> bool {
        let depot = self.depots.get(&near.depot);
        let source = self.arrivals.sources.get(&near.source);
        let needed = near.flying + arrival.spec.chunk_size;
        let is_usable = |depot: &Depot| {
            let is_open = depot.is_up() && !depot.is_draining();
            is_open && depot.is_open(self.now) && depot.space() >= needed
        };
        let is_paid =
            |depot: &Depot| !arrival.has_budget() || (depot.is_free() && depot.gives_free());
        depot.is_some_and(|depot| is_usable(depot) && is_paid(depot))
            && source.is_some_and(|source| !source.is_down())
            && near.resume_at <= self.now
    }

    /// Returns whether nothing at all is known of the rate of a depot near the centre; then a
    /// beginning is made.
    pub(super) fn is_near_unknown(&self, near: &Near) -> bool {
        let source = self.arrivals.sources.get(&near.source);
        let depot = self.depots.get(&near.depot);
        source.is_some_and(|source| !source.link.is_measured())
            && depot.is_some_and(|depot| !depot.link.is_measured())
    }

    /// Returns the bytes that may be sent to measure the rate of a depot near the centre. None if
    /// it is known, or a probe was tried.
    fn probe_budget(&self, arrival: &Arrival, near: &Near) -> Option<Bytes> {
        let settings = &self.settings;
        let depot = self.depots.get(&near.depot)?;
        let is_known = depot.link.is_measured() || depot.link.probed_at.is_some();
        if is_known || arrival.spec.rate_max.is_some() {
            return None;
        }
        let share = u128::from(arrival.spec.bytes.get()) * u128::from(settings.probe_permille);
        let budget = Bytes::new(u64::try_from(share / 1000).unwrap_or(u64::MAX));
        let budget = (budget - arrival.probed).min(settings.probe_bytes_max);
        (budget >= settings.probe_bytes_min).then_some(budget)
    }

    /// Probes the path to a depot near the centre before data goes there: data at the pace of a
    /// slow source shows only that rate.
    pub(super) fn probe_near(&mut self, out: &mut Outbox) {
        let wanted = self.arrivals.live().find_map(|(id, arrival)| {
            let may = arrival.held.iter().any(|held| held.may_prestage) && !arrival.is_paused();
            let near = arrival
                .near
                .iter()
                .filter(|near| may && self.takes_more(arrival, near));
            let mut wanted =
                near.filter_map(|near| Some((near.depot, self.probe_budget(arrival, near)?)));
            wanted.next().map(|(depot, budget)| (*id, depot, budget))
        });
        if let Some((id, depot, budget)) = wanted {
            self.probe_before(id, depot, budget, out);
        }
    }

    /// Sends a source's chunks to depots near the centre, as far as it has room beside those to
    /// come here.
    pub(super) fn prestage(&mut self, source: SourceId, order: &[RequestId], out: &mut Outbox) {
        while let Some((request, chunk, depot)) = self.pick_prestage(source, order) {
            self.start_prestage(request, Fetch { chunk, source }, depot, out);
        }
    }

    fn pick_prestage(
        &self,
        id: SourceId,
        order: &[RequestId],
    ) -> Option<(RequestId, ChunkIndex, DepotId)> {
        let source = self.arrivals.sources.get(&id)?;
        if !source.is_open(self.now) || source.is_hopeless(&self.settings) {
            return None;
        }
        order.iter().find_map(|request| {
            let arrival = self.arrivals.requests.get(request)?;
            let may = arrival.asked_at.is_none() && arrival.paced_until <= self.now;
            let may = may && !arrival.is_paused();
            if !may || !arrival.uses(id) || arrival.near_as(id).is_some() {
                return None;
            }
            let chunk = self.next_far(id, arrival, |held| held.may_prestage)?;
            let bytes = arrival.chunk_bytes(chunk.get());
            if !self.has_room(source, bytes) {
                return None;
            }
            let depot = self.nearest(arrival, bytes)?;
            Some((*request, chunk, depot))
        })
    }

    /// Returns the depot near the centre from which one chunk more would be here first.
    fn nearest(&self, arrival: &Arrival, bytes: Bytes) -> Option<DepotId> {
        let takes = |near: &&Near| {
            let is_to_be_probed = self.probe_budget(arrival, near).is_some();
            near.in_flight < FLIGHTS_MAX && !is_to_be_probed && self.takes_more(arrival, near)
        };
        let near = arrival.near.iter().filter(takes);
        let first = near.min_by_key(|near| {
            let source = self.arrivals.sources.get(&near.source);
            let rate = source.map(|source| self.rates_of(source, Some(near.depot)).p50);
            let there = near.missing() + near.flying + bytes;
            (rate.map(|rate| rate.time_for(there)), near.depot)
        });
        first.map(|near| near.depot)
    }

    fn start_prestage(
        &mut self,
        request: RequestId,
        fetch: Fetch,
        depot: DepotId,
        out: &mut Outbox,
    ) {
        let now = self.now;
        self.pay_for(request, fetch, Some(depot), false);
        let arrivals = &mut self.arrivals;
        let (Some(arrival), Some(from)) = (
            arrivals.requests.get_mut(&request),
            arrivals.sources.get_mut(&fetch.source),
        ) else {
            return;
        };
        let bytes = arrival.chunk_bytes(fetch.chunk.get());
        let flight = Flight::of_chunk(bytes, now);
        from.link.begin_flight(now, &flight);
        arrival.begin_prestage(fetch, depot, flight);
        arrival.pace(now, bytes);
        let held = arrival.held.iter().filter(|held| held.may_prestage);
        let begin_by = held.filter_map(|held| held.begin_by).min();
        let reason = Reason::Near {
            why: NearReason::ComesEarly {
                begin_by: begin_by.unwrap_or(now),
                not_before: arrival.spec.not_before.unwrap_or(now),
            },
        };
        let is_said = core::mem::replace(&mut arrival.is_near_said, true);
        if !is_said {
            self.tell(
                out,
                Some(request),
                None,
                Happening::Prestaging,
                reason.clone(),
            );
        }
        out.commands.push(Command::Prestage {
            request,
            source: fetch.source,
            chunk: fetch.chunk,
            depot,
            reason,
        });
    }

    /// Ends one chunk's way to a depot near the centre. Returns whether it was in progress.
    pub(super) fn end_prestage(&mut self, id: RequestId, fetch: Fetch) -> bool {
        let arrivals = &mut self.arrivals;
        let arrival = arrivals.requests.get_mut(&id);
        let Some(ended) = arrival.and_then(|arrival| arrival.end_prestage(fetch)) else {
            return false;
        };
        if let Some(source) = arrivals.sources.get_mut(&fetch.source) {
            source.link.end_flight(&ended.flight);
        }
        true
    }

    /// Lets a stage-in wait at these depots.
    pub(super) fn on_may_wait(&mut self, id: RequestId, near: &[NearDepot]) {
        let sources = &self.arrivals.sources;
        let live = self.arrivals.requests.get_mut(&id);
        let Some(arrival) = live.filter(|arrival| arrival.state.is_live()) else {
            return;
        };
        for near in near {
            if sources.contains_key(&near.source) {
                arrival.add_near(*near);
            }
        }
        self.look_at_arrivals_now();
    }

    /// Records that a depot near the centre holds a chunk. A chunk for which no stage-in waits
    /// changes nothing.
    pub(super) fn on_prestaged(
        &mut self,
        id: RequestId,
        fetch: Fetch,
        depot: DepotId,
        out: &mut Outbox,
    ) {
        let now = self.now;
        if !self.end_prestage(id, fetch) {
            return;
        }
        let source = self.arrivals.sources.get_mut(&fetch.source);
        let is_back = source.is_some_and(|source| source.succeed(now));
        if let Some(arrival) = self.arrivals.requests.get_mut(&id) {
            let bytes = arrival.chunk_bytes(fetch.chunk.get());
            arrival.keep_near(fetch.chunk, depot);
            if let Some(near) = arrival.near_at(depot) {
                near.failures = 0;
            }
            if let Some(depot) = self.depots.get_mut(&depot) {
                depot.free -= bytes.min(depot.free);
            }
        }
        if is_back {
            self.say_source_is_back(fetch.source, out);
        }
    }

    /// Records that a depot near the centre did not accept a chunk: it gets none for a while.
    pub(super) fn on_prestage_failed(
        &mut self,
        id: RequestId,
        fetch: Fetch,
        depot: DepotId,
        fault: Fault,
    ) {
        if !self.end_prestage(id, fetch) {
            return;
        }
        if let Some(source) = self.arrivals.sources.get_mut(&fetch.source) {
            source.link.progress_at = self.now;
        }
        let (now, name) = (self.now, self.name_of(depot));
        let settings = &self.settings;
        let arrival = self.arrivals.requests.get_mut(&id);
        let near = arrival.and_then(|arrival| arrival.near_at(depot));
        if near.is_some_and(|near| near.fail(now, settings)) {
            let reason = Reason::DepotLost { fault };
            self.remember_of(
                id,
                name,
                0,
                String::from("takes nothing for a while"),
                reason,
            );
        }
        self.look_at_arrivals_now();
    }

    /// Asks a depot that is back what it holds of stage-ins that wait there.
    pub(crate) fn ask_near(&mut self, depot: DepotId, out: &mut Outbox) {
        let waits = |near: &Near| near.depot == depot && near.held.len() > 0;
        let live = self.arrivals.live();
        let waiting = live.filter(|(_, arrival)| arrival.near.iter().any(waits));
        out.commands
            .extend(waiting.map(|(request, _)| Command::Inventory {
                request: *request,
                depot,
                reason: Reason::DepotBack,
            }));
    }

    /// Replaces what a depot near the centre holds of a stage-in by its report.
    pub(crate) fn found_near(
        &mut self,
        id: RequestId,
        depot: DepotId,
        held: &[(ChunkIndex, FragmentIndex)],
    ) {
        let Some(arrival) = self.arrivals.requests.get_mut(&id) else {
            return;
        };
        let held: BTreeSet<u32> = held.iter().map(|(chunk, _)| chunk.get()).collect();
        let near = arrival.near.iter().find(|near| near.depot == depot);
        let believed = near.into_iter().flat_map(|near| near.held.members());
        let lost: Vec<u32> = believed.filter(|chunk| !held.contains(chunk)).collect();
        for chunk in lost {
            arrival.leave_near(chunk);
        }
        self.look_at_arrivals_now();
    }

    /// Handles a chunk lost or corrupt at a depot near the centre: it is read from its sources
    /// again.
    pub(crate) fn lose_near(&mut self, id: RequestId, chunk: ChunkIndex) {
        if let Some(arrival) = self.arrivals.requests.get_mut(&id) {
            arrival.leave_near(chunk.get());
        }
        self.look_at_arrivals_now();
    }

    /// Stops counting on depots near the centre that are gone for good.
    pub(super) fn leave_hopeless_near(&mut self, id: RequestId) {
        let Some(arrival) = self.arrivals.requests.get_mut(&id) else {
            return;
        };
        let is_lost = |near: &Near| {
            let source = self.arrivals.sources.get(&near.source);
            self.depots.get(&near.depot).is_none()
                || source.is_none_or(|source| source.is_hopeless(&self.settings))
        };
        let near = arrival.near.iter();
        let lost = near.filter(|near| near.held.len() > 0 && is_lost(near));
        let lost: Vec<SourceId> = lost.map(|near| near.source).collect();
        for source in lost {
            arrival.leave_all_near(source);
        }
    }

    /// Tells depots near the centre that they need not keep a stage-in that is over.
    pub(crate) fn empty_near(&mut self, id: RequestId) {
        let now = self.now;
        let Some(arrival) = self.arrivals.requests.get(&id) else {
            return;
        };
        let forget = Forget {
            destinations: 0,
            until: arrival.spec.deadline.max(now) + NearDepot::KEPT,
            due: now,
            told: 0,
        };
        let used = arrival.near.iter().filter(|near| near.is_used);
        for depot in used.map(|near| near.depot) {
            self.forgets.insert((id, depot), forget);
        }
    }
}
