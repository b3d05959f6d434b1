//! Brings every chunk to every destination, from any holder (`docs/algorithms/delivery.md`).
//!
//! The centre sends a chunk once, so that it is safe. Destinations that lack it then take it from
//! where it lies, without the centre's uplink. While the centre still sends to a destination, that
//! goes first. Delivery waits for a destination that is away.

pub(crate) mod follow;
pub(crate) mod promise;
pub(crate) mod space;

use alloc::{collections::BTreeMap, vec::Vec};
use core::cmp::Reverse;
use posthaste_plan::deliver::{Piece, Spot};
use posthaste_types::{ByteRate, Bytes, ChunkIndex, DepotId, FragmentIndex, RequestId};

use crate::{
    contract::{Command, Reason},
    decide, state,
    state::{FlightKey, Request, State},
};

/// Most chunks looked at in one go for one request: a fraction of a millisecond.
pub(crate) const LOOKS_MAX: usize = 512;

/// Most chunks waiting for a busy path that are looked at in one go.
pub(crate) const OPENED_MAX: usize = 16;

/// Depot or destination as a request sees it now, whatever the chunk.
pub(crate) struct Perch {
    pub(crate) lane: usize,
    pub(crate) depot: DepotId,
    pub(crate) is_destination: bool,
    pub(crate) is_live: bool,
    pub(crate) gives: bool,
    pub(crate) is_open: bool,
}

/// Number of chunks that may still start towards each destination, by its place among the perches.
pub(crate) type Rooms = BTreeMap<usize, u32>;

/// Result of one pass over a request.
pub(crate) struct Pass {
    pub(crate) rooms: Rooms,
    pub(crate) commands: Vec<(usize, Command)>,
}

/// Returns the destination on which plans count now: one that is up, then one with space for
/// all of it, then the fastest. Another replaces the present one for speed only if it is faster
/// by a quarter.
pub(crate) fn best_destination(state: &State, request: &Request) -> Option<usize> {
    let key = |lane: usize| {
        let depot = state.depots.get(&request.lanes[lane].depot);
        let is_there = depot.is_some_and(|depot| depot.is_expected() && !depot.is_down());
        // The budget is worked out for the destination that is chosen here.
        let is_usable = request.uncommon.barred >> lane & 1 == 0 && is_there;
        let lacks = request.spec.bytes - request.replica.stored(lane).1;
        let has_space = depot.is_some_and(|depot| depot.free >= lacks);
        let rate = depot.map_or(ByteRate::ZERO, |depot| depot.link.rates.p50);
        let favour = if request.lead() == Some(lane) { 5 } else { 4 };
        (
            !is_usable,
            !has_space,
            Reverse(rate.scaled(favour, 4)),
            lane,
        )
    };
    request.destinations().min_by_key(|&lane| key(lane))
}

/// Returns the microseconds until so much would arrive from one at another; none if nothing may
/// start there now.
pub(crate) fn micros(state: &State, from: DepotId, to: DepotId, share: Bytes) -> Option<u64> {
    let (now, settings) = (state.now, &state.settings);
    let may_start = state.pushes.room(from, to, share, now, settings) == Some(true);
    may_start.then(|| micros_between(state, from, to, share))
}

/// Returns the microseconds until so much would arrive from one at another, after what is in
/// progress.
pub(crate) fn micros_between(state: &State, from: DepotId, to: DepotId, share: Bytes) -> u64 {
    let (now, settings) = (state.now, &state.settings);
    let known = state.crossings.rates(from, to, now, settings);
    // A path over which nothing went yet includes both ends' links to the world.
    let ends = || {
        let ends = [from, to].into_iter();
        let ends = ends.filter_map(|end| Some(state.depots.get(&end)?.link.rates.p50));
        ends.min().unwrap_or_default()
    };
    let rate = known.map_or_else(ends, |rates| rates.p50);
    let waits = state.pushes.under_way(from, to);
    let span = rate.time_for(waits + share);
    u64::try_from(span.as_micros()).unwrap_or(u64::MAX)
}

pub(crate) fn perches(state: &State, id: RequestId, request: &Request) -> Vec<Perch> {
    let live = request.replica.live();
    let lanes = request.lanes.iter().enumerate();
    let perches = lanes.filter_map(|(place, lane)| {
        let depot = state.depots.get(&lane.depot)?;
        let is_there = depot.is_up() && lane.asked_at.is_none();
        let is_destination = request.is_destination(place);
        let chunk = request.spec.chunk_size.min(request.spec.bytes);
        Some(Perch {
            lane: place,
            depot: lane.depot,
            is_destination,
            is_live: live >> place & 1 == 1,
            gives: is_there && state::usable::gives_for(request, depot),
            // A store can't gather.
            is_open: is_destination
                && is_there
                && !depot.stores
                && state::usable::takes_for(request, depot)
                && depot.is_open(state.now)
                && decide::delivery::space::space_to_deliver(state, id, request, place) >= chunk,
        })
    });
    perches.collect()
}

pub(crate) fn rooms(state: &State, id: RequestId, request: &Request, perches: &[Perch]) -> Rooms {
    let open = perches.iter().enumerate().filter(|(_, at)| at.is_open);
    let rooms = open.filter_map(|(place, at)| {
        let depot = state.depots.get(&at.depot)?;
        let most = match depot.link.flights > 0 {
            true => state.settings.deliver_flights_fed,
            false => state.settings.deliver_flights_max,
        };
        let under_way = state.pushes.to(at.depot, None).count();
        let under_way = u32::try_from(under_way).unwrap_or(u32::MAX);
        let chunk = request.spec.chunk_size.get().max(1);
        let space = decide::delivery::space::space_to_deliver(state, id, request, at.lane);
        let space = u32::try_from(space.get() / chunk).unwrap_or(u32::MAX);
        Some((place, most.saturating_sub(under_way).min(space.max(1))))
    });
    rooms.filter(|(_, room)| *room > 0).collect()
}

/// Returns depots and destinations as one chunk sees them.
pub(crate) fn spots(
    state: &State,
    request: &Request,
    id: RequestId,
    perches: &[Perch],
    chunk: ChunkIndex,
) -> Vec<Spot> {
    let spot = |at: &Perch| {
        let held = request.replica.fragment_at(at.lane, chunk);
        let is_coming = state.pushes.get(at.depot, id, chunk).is_some()
            || state.transfers.get(at.depot, id, chunk).is_some();
        Spot {
            holds: held.filter(|_| at.is_live).map(|fragment| match fragment {
                FragmentIndex::WHOLE => Piece::Whole,
                fragment => Piece::Fragment(fragment.get()),
            }),
            gives: at.gives,
            lacks: at.is_destination && held.is_none() && !is_coming,
            arrives: false,
            is_open: at.is_open,
        }
    };
    perches.iter().map(spot).collect()
}

/// Fragments asked for beyond those a chunk needs.
pub(crate) const RESERVE: usize = 1;

/// Returns whether the chunk may be taken: making it safe comes first, as long as the source is
/// there.
pub(crate) fn is_ripe(request: &Request, chunk: ChunkIndex) -> bool {
    !request.is_moving() || request.replica.lost(chunk) == 0
}

pub(crate) fn share(request: &Request, chunk: ChunkIndex, piece: Piece) -> Bytes {
    let fragment = match piece {
        Piece::Whole => FragmentIndex::WHOLE,
        Piece::Fragment(fragment) => FragmentIndex::new(fragment),
    };
    request.replica.bytes_of(chunk, fragment)
}

/// Returns the command to the hands: a chunk goes on from where it lies whole, or is gathered from
/// fragments.
pub(crate) fn command(key: FlightKey, pieces: &[(DepotId, Piece)]) -> Command {
    let (request, to, chunk, reason) = (key.request, key.depot, key.chunk, Reason::HasIt);
    if let [(from, Piece::Whole)] = *pieces {
        return Command::Forward {
            request,
            from,
            to,
            chunk,
            fragment: FragmentIndex::WHOLE,
            reason,
        };
    }
    let fragments = pieces.iter().filter_map(|&(depot, piece)| match piece {
        Piece::Whole => None,
        Piece::Fragment(fragment) => Some((depot, FragmentIndex::new(fragment))),
    });
    Command::Gather {
        request,
        to,
        chunk,
        from: fragments.collect(),
        reason,
    }
}
