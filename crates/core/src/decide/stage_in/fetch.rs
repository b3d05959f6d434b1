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
    decide, state,
    state::{Arrival, Held, Near, Source, State},
};

/// Factor by which a source must be faster with a chunk to take it from one that is late with it.
const TWICE: u64 = 2;

/// Most chunks asked at once of a source of unknown rate. They hide a round trip, and are few to
/// fetch elsewhere if it is slow.
const UNKNOWN_MAX: u32 = 4;

pub(crate) struct Pick {
    pub(crate) request: RequestId,
    pub(crate) chunk: ChunkIndex,
    pub(crate) is_duplicate: bool,
}

/// Returns the sources that may give something to any of these now, each with its stage-ins in
/// order. So a source visits only its own.
pub(crate) fn wanting(state: &State, order: &[RequestId]) -> BTreeMap<SourceId, Vec<RequestId>> {
    let mut wanting: BTreeMap<SourceId, Vec<RequestId>> = BTreeMap::new();
    for id in order {
        let arrival = state.arrivals.requests.get(id);
        let moving = arrival.filter(|arrival| arrival.may_read());
        let lanes = moving.into_iter().flat_map(|arrival| &arrival.lanes);
        for lane in lanes.filter(|lane| !lane.is_gone) {
            wanting.entry(lane.source).or_default().push(*id);
        }
    }
    wanting
}

pub(crate) fn pick(state: &State, id: SourceId, order: &[RequestId]) -> Option<Pick> {
    let source = state.arrivals.sources.get(&id)?;
    if !source.is_open(state.now) || source.is_hopeless(&state.settings) {
        return None;
    }
    order.iter().find_map(|request| {
        let arrival = state.arrivals.requests.get(request)?;
        let may = arrival.is_due
            && !arrival.is_paused()
            && arrival.asked_at.is_none()
            && arrival.held_until <= state.now
            && arrival.paced_until <= state.now
            && arrival.uses(id)
            && !state::onward::waits_for_depots(state, *request);
        if !may {
            return None;
        }
        let (chunk, is_duplicate) = match next_of(state, id, arrival) {
            Some(chunk) => (chunk, false),
            None => (find_late(state, id, source, arrival)?, true),
        };
        let bytes = arrival.chunk_bytes(chunk.get());
        let is_taken = has_room(state, source, bytes)
            && (is_duplicate || !is_better_left(state, id, source, arrival, chunk));
        is_taken.then_some(Pick {
            request: *request,
            chunk,
            is_duplicate,
        })
    })
}

/// Returns the next chunk to ask of a source: one that lies at the fewest that answer. Chunks
/// that also lie near the centre come only if nothing else is left.
fn next_of(state: &State, id: SourceId, arrival: &Arrival) -> Option<ChunkIndex> {
    let first = |near: &Near| near.open.first().map(ChunkIndex::new);
    if let Some(near) = arrival.near_as(id) {
        let chunk = first(near).filter(|_| arrival.is_near_due);
        return chunk
            .filter(|chunk| decide::stage_in::budget::pays_near(state, id, arrival)(near, *chunk));
    }
    let far = next_far(state, id, arrival, |held| held.is_due);
    far.or_else(|| {
        let pays = decide::stage_in::budget::pays_near(state, id, arrival);
        let near = arrival.near.iter().filter(|_| arrival.is_near_due);
        let mut chunks = near.filter_map(|near| Some((near, first(near)?)));
        let found = chunks.find(|(near, chunk)| arrival.lies_at(*chunk, id) && pays(near, *chunk));
        found.map(|(_, chunk)| chunk)
    })
}

/// Returns the next chunk among those that lie at sources only, one that lies at the fewest
/// that answer.
pub(crate) fn next_far(
    state: &State,
    id: SourceId,
    arrival: &Arrival,
    may: impl Fn(&Held) -> bool,
) -> Option<ChunkIndex> {
    let pays = decide::stage_in::budget::pays(state, id, arrival);
    let held = arrival.held.iter().enumerate();
    let held = held.filter(|(place, held)| {
        may(held) && held.open.len() > 0 && held.sources.contains(&id) && pays(*place)
    });
    let (place, _) = held.min_by_key(|(_, held)| holders_that_answer(state, held))?;
    arrival.next_open(place)
}

/// Counts the holders that answer.
fn holders_that_answer(state: &State, held: &Held) -> usize {
    let sources = &state.arrivals.sources;
    let answers = |source: &&SourceId| {
        let source = sources.get(source);
        source.is_some_and(|source| !source.is_down())
    };
    held.sources.iter().filter(answers).count()
}

/// Returns whether a source has room. A lost source gets one try at a time, one of unknown rate
/// a few.
pub(crate) fn has_room(state: &State, source: &Source, bytes: Bytes) -> bool {
    if source.is_down() {
        return source.link.flights == 0;
    }
    let settings = &state.settings;
    let is_known = source.link.is_measured() || source.link.advert().is_some();
    (is_known || source.link.flights < UNKNOWN_MAX)
        && source.link.has_window(bytes, settings.window, settings)
}

/// Returns whether another source that holds this chunk would fetch all that is left there
/// before this one has that chunk.
fn is_better_left(
    state: &State,
    id: SourceId,
    source: &Source,
    arrival: &Arrival,
    chunk: ChunkIndex,
) -> bool {
    let own = source.link.finish_micros(arrival.chunk_bytes(chunk.get()));
    let mut others = others(state, id, arrival);
    others.any(|(other, about)| {
        if !decide::stage_in::budget::may_give_the_rest(state, arrival, chunk, id, other) {
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
    state: &'a State,
    id: SourceId,
    arrival: &'a Arrival,
) -> impl Iterator<Item = (SourceId, &'a Source)> {
    let lanes = arrival.lanes.iter();
    let others = lanes.filter(move |lane| lane.source != id && !lane.is_gone);
    let others =
        others.filter_map(|lane| Some((lane.source, state.arrivals.sources.get(&lane.source)?)));
    others.filter(|(_, other)| other.is_open(state.now) && !other.is_down())
}

/// Returns the chunk with which another source is latest, if this one would have it in half the
/// time. Chunks in flight there take as long as forecast; one that lasted long lasts as long
/// again.
fn find_late(
    state: &State,
    id: SourceId,
    source: &Source,
    arrival: &Arrival,
) -> Option<ChunkIndex> {
    let late = arrival.fetches.iter().filter_map(|(fetch, flight)| {
        let is_once = fetch.source != id
            && arrival.lies_at(fetch.chunk, id)
            && arrival.fetches_of(fetch.chunk) == 1
            && !arrival.here.contains(fetch.chunk.get());
        let other = state.arrivals.sources.get(&fetch.source)?;
        let age = u64::try_from(state.now.since(flight.since).as_micros()).unwrap_or(u64::MAX);
        let left = other.link.finish_micros(Bytes::ZERO).max(age);
        let own = source.link.finish_micros(flight.bytes);
        let is_late = own.saturating_mul(TWICE) < left;
        let is_paid =
            || decide::stage_in::budget::pays_twice(state, id, arrival, fetch.source, flight.bytes);
        (is_once && is_late && is_paid()).then_some((left, fetch.chunk))
    });
    late.max().map(|(_, chunk)| chunk)
}
