//! Choice of chunks and sources.
//!
//! Each source with room takes the next chunk of the most urgent stage-in. So each gives as much as
//! it can, and no split is planned: a slow source comes back less often. A source first gives what
//! the fewest others hold, since the others can do the rest meanwhile. Towards the end that is not
//! enough. A source gets no chunk if it would finish it later than the others finish all that is
//! left. An idle source is asked again for a chunk with which another is late.

use alloc::{collections::BTreeMap, vec::Vec};
use posthaste_types::{Bytes, ChunkIndex, RequestId, SourceId};

use crate::{
    Mind,
    books::{Arrival, Fetch, Flight, Held, Near, Source},
    contract::{ArrivalState, Command, Happening, Outbox, Reason},
};

/// Factor by which a source must be faster with a chunk to take it from one that is late with it.
const TWICE: u64 = 2;

/// Most chunks asked at once of a source of unknown rate. They hide a round trip, and are few to
/// fetch elsewhere if it is slow.
const UNKNOWN_MAX: u32 = 4;

struct Pick {
    request: RequestId,
    chunk: ChunkIndex,
    is_duplicate: bool,
}

impl Mind {
    /// Asks for chunks as long as a source has room and a stage-in wants something of it.
    pub(crate) fn fetch(&mut self, out: &mut Outbox) {
        let moves = |arrival: &Arrival| arrival.may_read() || arrival.is_whole();
        let order = self.arrivals.in_turn_of(moves);
        for &id in &order {
            self.land_if_whole(id, out);
        }
        for (source, order) in self.wanting(&order) {
            while let Some(pick) = self.pick(source, &order) {
                self.start_fetch(source, &pick, out);
            }
            self.prestage(source, &order, out);
        }
    }

    /// Returns the sources that may give something to any of these now, each with its stage-ins in
    /// order. So a source visits only its own.
    fn wanting(&self, order: &[RequestId]) -> BTreeMap<SourceId, Vec<RequestId>> {
        let mut wanting: BTreeMap<SourceId, Vec<RequestId>> = BTreeMap::new();
        for id in order {
            let arrival = self.arrivals.requests.get(id);
            let moving = arrival.filter(|arrival| arrival.may_read());
            let lanes = moving.into_iter().flat_map(|arrival| &arrival.lanes);
            for lane in lanes.filter(|lane| !lane.is_gone) {
                wanting.entry(lane.source).or_default().push(*id);
            }
        }
        wanting
    }

    fn pick(&self, id: SourceId, order: &[RequestId]) -> Option<Pick> {
        let source = self.arrivals.sources.get(&id)?;
        if !source.is_open(self.now) || source.is_hopeless(&self.settings) {
            return None;
        }
        order.iter().find_map(|request| {
            let arrival = self.arrivals.requests.get(request)?;
            let may = arrival.is_due
                && !arrival.is_paused()
                && arrival.asked_at.is_none()
                && arrival.held_until <= self.now
                && arrival.paced_until <= self.now
                && arrival.uses(id)
                && !self.waits_for_depots(*request);
            if !may {
                return None;
            }
            let (chunk, is_duplicate) = match self.next_of(id, arrival) {
                Some(chunk) => (chunk, false),
                None => (self.find_late(id, source, arrival)?, true),
            };
            let bytes = arrival.chunk_bytes(chunk.get());
            let is_taken = self.has_room(source, bytes)
                && (is_duplicate || !self.is_better_left(id, source, arrival, chunk));
            is_taken.then_some(Pick {
                request: *request,
                chunk,
                is_duplicate,
            })
        })
    }

    /// Returns the next chunk to ask of a source: one that lies at the fewest that answer. Chunks
    /// that also lie near the centre come only if nothing else is left.
    fn next_of(&self, id: SourceId, arrival: &Arrival) -> Option<ChunkIndex> {
        let first = |near: &Near| near.open.first().map(ChunkIndex::new);
        if let Some(near) = arrival.near_as(id) {
            let chunk = first(near).filter(|_| arrival.is_near_due);
            return chunk.filter(|chunk| self.pays_near(id, arrival)(near, *chunk));
        }
        let far = self.next_far(id, arrival, |held| held.is_due);
        far.or_else(|| {
            let pays = self.pays_near(id, arrival);
            let near = arrival.near.iter().filter(|_| arrival.is_near_due);
            let mut chunks = near.filter_map(|near| Some((near, first(near)?)));
            let found =
                chunks.find(|(near, chunk)| arrival.lies_at(*chunk, id) && pays(near, *chunk));
            found.map(|(_, chunk)| chunk)
        })
    }

    /// Returns the next chunk among those that lie at sources only, one that lies at the fewest
    /// that answer.
    pub(super) fn next_far(
        &self,
        id: SourceId,
        arrival: &Arrival,
        may: impl Fn(&Held) -> bool,
    ) -> Option<ChunkIndex> {
        let pays = self.pays(id, arrival);
        let held = arrival.held.iter().enumerate();
        let held = held.filter(|(place, held)| {
            may(held) && held.open.len() > 0 && held.sources.contains(&id) && pays(*place)
        });
        let (place, _) = held.min_by_key(|(_, held)| self.holders_that_answer(held))?;
        arrival.next_open(place)
    }

    /// Counts the holders that answer.
    pub(crate) fn holders_that_answer(&self, held: &Held) -> usize {
        let sources = &self.arrivals.sources;
        let answers = |source: &&SourceId| {
            let source = sources.get(source);
            source.is_some_and(|source| !source.is_down())
        };
        held.sources.iter().filter(answers).count()
    }

    /// Returns whether a source has room. A lost source gets one try at a time, one of unknown rate
    /// a few.
    pub(super) fn has_room(&self, source: &Source, bytes: Bytes) -> bool {
        if source.is_down() {
            return source.link.flights == 0;
        }
        let settings = &self.settings;
        let is_known = source.link.is_measured() || source.link.advert().is_some();
        (is_known || source.link.flights < UNKNOWN_MAX)
            && source.link.has_window(bytes, settings.window, settings)
    }

    /// Returns whether another source that holds this chunk would fetch all that is left there
    /// before this one has that chunk.
    fn is_better_left(
        &self,
        id: SourceId,
        source: &Source,
        arrival: &Arrival,
        chunk: ChunkIndex,
    ) -> bool {
        let own = source.link.finish_micros(arrival.chunk_bytes(chunk.get()));
        let mut others = self.others(id, arrival);
        others.any(|(other, about)| {
            if !self.may_give_the_rest(arrival, chunk, id, other) {
                return false;
            }
            let rest = arrival.spec.chunk_size;
            let rest = rest.times(arrival.open_at(other).into());
            let rest = rest.min(arrival.missing());
            arrival.lies_at(chunk, other) && about.link.finish_micros(rest) < own
        })
    }

    /// Returns the other sources of a stage-in that answer.
    fn others<'a>(
        &'a self,
        id: SourceId,
        arrival: &'a Arrival,
    ) -> impl Iterator<Item = (SourceId, &'a Source)> {
        let lanes = arrival.lanes.iter();
        let others = lanes.filter(move |lane| lane.source != id && !lane.is_gone);
        let others =
            others.filter_map(|lane| Some((lane.source, self.arrivals.sources.get(&lane.source)?)));
        others.filter(|(_, other)| other.is_open(self.now) && !other.is_down())
    }

    /// Returns the chunk with which another source is latest, if this one would have it in half the
    /// time. Chunks in flight there take as long as forecast; one that lasted long lasts as long
    /// again.
    fn find_late(&self, id: SourceId, source: &Source, arrival: &Arrival) -> Option<ChunkIndex> {
        let late = arrival.fetches.iter().filter_map(|(fetch, flight)| {
            let is_once = fetch.source != id
                && arrival.lies_at(fetch.chunk, id)
                && arrival.fetches_of(fetch.chunk) == 1
                && !arrival.here.contains(fetch.chunk.get());
            let other = self.arrivals.sources.get(&fetch.source)?;
            let age = u64::try_from(self.now.since(flight.since).as_micros()).unwrap_or(u64::MAX);
            let left = other.link.finish_micros(Bytes::ZERO).max(age);
            let own = source.link.finish_micros(flight.bytes);
            let is_late = own.saturating_mul(TWICE) < left;
            let is_paid = || self.pays_twice(id, arrival, fetch.source, flight.bytes);
            (is_once && is_late && is_paid()).then_some((left, fetch.chunk))
        });
        late.max().map(|(_, chunk)| chunk)
    }

    fn start_fetch(&mut self, source: SourceId, pick: &Pick, out: &mut Outbox) {
        let now = self.now;
        let begun = self.begin_arrival(pick.request, out);
        let key = Fetch {
            chunk: pick.chunk,
            source,
        };
        self.pay_for(pick.request, key, None, pick.is_duplicate);
        let arrivals = &mut self.arrivals;
        let (Some(arrival), Some(from)) = (
            arrivals.requests.get_mut(&pick.request),
            arrivals.sources.get_mut(&source),
        ) else {
            return;
        };
        let bytes = arrival.chunk_bytes(pick.chunk.get());
        let flight = Flight::of_chunk(bytes, now);
        from.link.begin_flight(now, &flight);
        if !pick.is_duplicate {
            arrival.take_open(pick.chunk);
        }
        let before = arrival.fetches.insert(key, flight);
        debug_assert!(before.is_none(), "a source is asked for a chunk once");
        if let Some(lane) = arrival.lane_mut(source) {
            lane.in_flight += 1;
        }
        arrival.pace(now, bytes);
        let reason = match (pick.is_duplicate, begun) {
            (true, _) => Reason::Endgame,
            (false, Some(reason)) => reason,
            (false, None) => Reason::ArrivesFirst,
        };
        arrival.duplicates += u32::from(pick.is_duplicate);
        out.commands.push(Command::Fetch {
            request: pick.request,
            source,
            chunk: pick.chunk,
            reason,
        });
    }

    /// Reports that a stage-in begins and why now, when it does.
    fn begin_arrival(&mut self, id: RequestId, out: &mut Outbox) -> Option<Reason> {
        let now = self.now;
        let arrival = self.arrivals.requests.get_mut(&id)?;
        if arrival.state != ArrivalState::Waiting {
            return None;
        }
        arrival.state = ArrivalState::Moving;
        arrival.begun_at = Some(now);
        let deadline = arrival.spec.deadline;
        let reason = match arrival.spec.not_before {
            Some(at) if at > now => Reason::MustBegin { deadline },
            Some(not_before) => Reason::MayArrive { not_before },
            None => Reason::NothingMoreUrgent,
        };
        self.tell(out, Some(id), None, Happening::Fetching, reason.clone());
        Some(reason)
    }

    /// Ends one fetch, or a chunk's way to a depot near the centre. Returns whether it was in
    /// progress.
    pub(crate) fn end_fetch(&mut self, id: RequestId, fetch: Fetch) -> bool {
        let arrivals = &mut self.arrivals;
        let Some(arrival) = arrivals.requests.get_mut(&id) else {
            return false;
        };
        let Some(flight) = arrival.fetches.remove(&fetch) else {
            return self.end_prestage(id, fetch);
        };
        if let Some(source) = arrivals.sources.get_mut(&fetch.source) {
            source.link.end_flight(&flight);
        }
        if let Some(lane) = arrival.lane_mut(fetch.source) {
            lane.in_flight -= 1;
        }
        let chunk = fetch.chunk;
        let is_wanted = arrival.state.is_live() && !arrival.here.contains(chunk.get());
        if is_wanted && arrival.fetches_of(chunk) == 0 {
            arrival.reopen(chunk);
        }
        true
    }

    /// Ends all fetches of one stage-in, or of all, from one source. Returns the stage-ins
    /// affected.
    pub(crate) fn end_fetches(
        &mut self,
        source: SourceId,
        of: Option<RequestId>,
    ) -> Vec<RequestId> {
        let all = self.arrivals.requests.iter();
        let under_way: Vec<(RequestId, Fetch)> = all
            .filter(|(id, _)| of.is_none_or(|of| of == **id))
            .flat_map(|(id, arrival)| {
                let under_way = arrival.fetches.keys().chain(arrival.prestages.keys());
                under_way.map(|fetch| (*id, *fetch))
            })
            .filter(|(_, fetch)| fetch.source == source)
            .collect();
        let mut ended = Vec::new();
        for (id, fetch) in under_way {
            self.end_fetch(id, fetch);
            if ended.last() != Some(&id) {
                ended.push(id);
            }
        }
        ended
    }
}
