//! Sends fragments on between depots, to those nearer the destination (`docs/algorithms/push.md`).
//!
//! Only fragments that are verified where they lie go on, and each counts there only once it is
//! verified there. The centre's uplink has no part in it; depots that are fed from the centre are
//! left alone.

pub(crate) mod follow;

use alloc::{collections::BTreeMap, vec::Vec};
use posthaste_plan::push::{Room, Stand};
use posthaste_types::{Bytes, ChunkIndex, DepotId, FragmentIndex, RequestId};

use crate::{
    contract::{Drain, DrainReason, Reason},
    decide, state,
    state::{Depot, FlightKey, Forwarded, Request, State},
};

/// Consecutive requests for which a depot could do nothing after which it counts as busy for all.
pub(crate) const MISSES_MAX: u32 = 8;

/// Most chunks looked at in one go for one request: a fraction of a millisecond.
pub(crate) const LOOKS_MAX: usize = 512;

/// Stall times that a fragment of a chunk coded elsewhere may last.
pub(crate) const PIECE_STALLS: u32 = 3;

/// Level of a drained depot whose fragments go on: before all others.
const LEAVES: u8 = 0;

/// Depot as a request sees it now, whatever the chunk.
pub(crate) struct Sight {
    pub(crate) lane: usize,
    pub(crate) depot: DepotId,
    pub(crate) level: u8,
    /// True if it is not of the first level that the request uses.
    pub(crate) is_nearer: bool,
    pub(crate) is_live: bool,
    pub(crate) gives: bool,
    pub(crate) is_open: bool,
    /// True if it is being fed from the centre: that goes first.
    pub(crate) is_fed: bool,
}

/// State of the paths between sights, if something may go.
type Ways = BTreeMap<(usize, usize), Room>;

/// Returns whether nothing may start over any of them now.
pub(crate) fn is_full(ways: &Ways) -> bool {
    !ways.values().any(|room| room.may_start)
}

/// Result of one pass over a request.
#[derive(Default)]
pub(crate) struct Pass {
    pub(crate) ways: Ways,
    /// Started pushes, each with the lane of its receiver and its sender.
    pub(crate) started: Vec<(usize, DepotId, FlightKey, Forwarded)>,
    pub(crate) is_cut_short: bool,
}

/// Returns the depots of a request, except the destinations.
pub(crate) fn sights(state: &State, request: &Request) -> Vec<Sight> {
    let lanes = request.lanes.iter().enumerate();
    let lanes = lanes.filter(|&(place, _)| !request.is_destination(place));
    let live = request.replica.live();
    let to = request.lead_depot();
    let sights = lanes.filter_map(|(place, lane)| {
        let depot = state.depots.get(&lane.depot)?;
        let is_there = depot.is_up() && lane.asked_at.is_none();
        Some(Sight {
            lane: place,
            depot: lane.depot,
            // Fragments that leave may go to any of the others.
            level: match depot.drain() {
                Drain::Move => LEAVES,
                Drain::Off | Drain::Keep => state.crossings.level(lane.depot, depot, to),
            },
            is_nearer: false,
            is_live: live >> place & 1 == 1,
            gives: is_there && state::usable::gives_for(request, depot),
            is_open: is_there
                && !depot.is_draining()
                && state::usable::takes_for(request, depot)
                && depot.is_open_to(request, place, state.now)
                && depot.space() - state.index.kept(lane.depot)
                    >= request.replica.bytes_of(ChunkIndex::new(0), FIRST),
            is_fed: depot.link.flights > 0 || (request.is_moving() && lane.is_active),
        })
    });
    let mut sights: Vec<Sight> = sights.collect();
    let first = sights.iter().map(|at| at.level).min();
    for at in &mut sights {
        at.is_nearer = Some(at.level) > first;
    }
    sights
}

/// Returns the room of the path between two of them; none if nothing may go.
pub(crate) fn room(state: &State, from: &Sight, to: &Sight, bytes: Bytes) -> Option<Room> {
    let (now, settings) = (state.now, &state.settings);
    // Nothing can go from store to store.
    let has_hands = !state::failure_domain::stores(state, from.depot)
        || !state::failure_domain::stores(state, to.depot);
    let is_pair = from.level < to.level && from.gives && to.is_open && !to.is_fed && has_hands;
    let has_space = |depot: &Depot| depot.space() - state.index.kept(to.depot) >= bytes;
    let is_pair = is_pair && state.depots.get(&to.depot).is_some_and(has_space);
    let (from, to) = (from.depot, to.depot);
    let room = is_pair.then(|| state.pushes.room(from, to, bytes, now, settings));
    room.flatten().map(|may_start| Room {
        micros: decide::delivery::micros_between(state, from, to, bytes),
        may_start,
    })
}

pub(crate) fn why_pushed(_state: &State, sights: &[Sight], from: DepotId, to: DepotId) -> Reason {
    let leaves = |at: &Sight| at.depot == from && at.level == LEAVES;
    if sights.iter().any(leaves) {
        let why = DrainReason::Leaves;
        return Reason::Drained { why };
    }
    let target = sights.iter().find(|at| at.depot == to);
    let level = target.map_or(0, |at| at.level);
    Reason::Nearer { level }
}

/// Returns the state of the paths between them, if something may go.
pub(crate) fn ways(state: &State, id: RequestId, sights: &[Sight]) -> Ways {
    let bytes = state.requests.get(&id).map_or(Bytes::ZERO, |request| {
        request.replica.bytes_of(ChunkIndex::new(0), FIRST)
    });
    let mut ways = Ways::new();
    for (to, target) in sights.iter().enumerate() {
        for (from, source) in sights.iter().enumerate() {
            let room = room(state, source, target, bytes);
            ways.extend(room.map(|room| ((from, to), room)));
        }
    }
    ways
}

/// Returns whether a chunk could use any of the paths, by a quick check.
pub(crate) fn could_go(
    state: &State,
    id: RequestId,
    sights: &[Sight],
    ways: &Ways,
    chunk: u32,
) -> bool {
    let Some(request) = state.requests.get(&id) else {
        return false;
    };
    let holds = |place: usize| {
        request
            .replica
            .holds(sights[place].lane, ChunkIndex::new(chunk))
    };
    let ready = ways.iter().filter(|(_, room)| room.may_start);
    ready
        .map(|(way, _)| *way)
        .any(|(from, to)| holds(from) && !holds(to))
}

/// Returns the depots as one chunk sees them.
pub(crate) fn stands(
    state: &State,
    request: &Request,
    id: RequestId,
    sights: &[Sight],
    chunk: ChunkIndex,
) -> Vec<Stand> {
    let mut taken = 0;
    let stand = |at: &Sight| {
        let held = request.replica.fragment_at(at.lane, chunk);
        let awaited = at.is_nearer.then(|| state.pushes.get(at.depot, id, chunk));
        let awaited = awaited.flatten();
        let is_sent = at.is_fed && state.transfers.get(at.depot, id, chunk).is_some();
        let stays = at.level != LEAVES;
        let is_taken = stays && (held.is_some() || awaited.is_some() || is_sent);
        taken |= u64::from(is_taken) << at.lane;
        Stand {
            level: at.level,
            holds: held.filter(|_| at.is_live).map(FragmentIndex::get),
            awaits: awaited.map(|flight| flight.fragment.get()),
            arrives: None,
            gives: at.gives,
            is_free: true,
            is_open: at.is_open,
        }
    };
    let mut stands: Vec<Stand> = sights.iter().map(stand).collect();
    for (stand, at) in stands.iter_mut().zip(sights).filter(|(_, at)| at.is_nearer) {
        stand.is_free = request.is_free(taken, at.lane);
    }
    stands
}

/// Returns whether the books of pushes agree with each other.
pub(crate) fn is_push_balanced(state: &State) -> bool {
    let depots = state.depots.iter().all(|(id, depot)| {
        let bytes: Bytes = state
            .pushes
            .to(*id, None)
            .map(|(_, flight)| flight.bytes)
            .sum();
        bytes == depot.arriving
    });
    depots && state.pushes.is_balanced()
}

/// Fragment whose size stands for all: those of a chunk have one size.
pub(crate) const FIRST: FragmentIndex = FragmentIndex::new(0);

/// Returns why fragments lie where they do once all went on: nearer the destination, or not where
/// they were.
pub(crate) fn why_all_pushed(sights: &[Sight]) -> Reason {
    let level = sights.iter().map(|at| at.level).max().unwrap_or(0);
    let is_nearer = |at: &Sight| at.level != LEAVES && at.level < level;
    if sights.iter().any(is_nearer) {
        return Reason::Nearer { level };
    }
    let why = DrainReason::Leaves;
    Reason::Drained { why }
}

/// Returns whether the chunk may go on. Making it safe comes first, as long as the source is there;
/// a chunk at the destination is not needed nearer.
pub(crate) fn is_ripe(request: &Request, chunk: ChunkIndex) -> bool {
    let mut whole = request.destinations();
    let is_there = whole.any(|lane| request.replica.counts(lane, chunk));
    !is_there && (!request.is_moving() || request.replica.lost(chunk) == 0)
}
