//! Rebuilds fragments that were lost with depots after the source left, from those at other depots
//! (`docs/algorithms/repair.md`).
//!
//! The centre has no part in it. A depot that has nothing of a chunk takes as many of its fragments
//! as the code needs. It rebuilds the lost one, and keeps that one alone.

use alloc::{collections::BTreeMap, vec::Vec};
use posthaste_plan::deliver::{Piece, Spot};
use posthaste_types::{ChunkIndex, DepotId, FragmentIndex, RequestId};

use crate::{
    contract::RequestState,
    state,
    state::{Request, State},
};

/// Most chunks looked at in one go for one request: a fraction of a millisecond.
pub(crate) const LOOKS_MAX: usize = 512;

/// Most chunks waiting for a busy path that are looked at in one go.
pub(crate) const OPENED_MAX: usize = 16;

/// Fragments asked for beyond those a chunk needs.
pub(crate) const RESERVE: usize = 1;

/// Fragment whose size stands for all: those of a chunk have one size.
pub(crate) const FIRST: FragmentIndex = FragmentIndex::new(0);

/// Depot as a request sees it now, whatever the chunk.
pub(crate) struct Bench {
    pub(crate) lane: usize,
    pub(crate) depot: DepotId,
    pub(crate) is_live: bool,
    pub(crate) gives: bool,
    pub(crate) is_open: bool,
}

/// Number of fragments that may still start towards each depot, by its place among the benches.
pub(crate) type Rooms = BTreeMap<usize, u32>;

/// Returns a fragment of the chunk that lies nowhere and is not on its way.
pub(crate) fn lost_of(
    state: &State,
    request: &Request,
    id: RequestId,
    benches: &[Bench],
    chunk: ChunkIndex,
) -> Option<FragmentIndex> {
    let mut lost = request.replica.lacking(chunk);
    for at in benches {
        if let Some(coming) = state.pushes.get(at.depot, id, chunk) {
            lost &= !1u64.unbounded_shl(u32::from(coming.fragment.get()));
        }
    }
    // Fragments that lie nowhere come before copies for pinned depots.
    let nowhere = lost & request.replica.lost(chunk);
    let first = if nowhere == 0 { lost } else { nowhere };
    let first = u8::try_from(first.trailing_zeros()).unwrap_or(u8::MAX);
    (lost != 0).then(|| FragmentIndex::new(first))
}

/// Returns the depots of a request, except its destinations.
pub(crate) fn benches(state: &State, request: &Request) -> Vec<Bench> {
    let live = request.replica.live();
    let bytes = request.replica.bytes_of(ChunkIndex::new(0), FIRST);
    let benches = request.depot_lanes().filter_map(|place| {
        let lane = &request.lanes[place];
        let depot = state.depots.get(&lane.depot)?;
        let is_there = depot.is_up() && lane.asked_at.is_none();
        let is_wished =
            request.uncommon.barred >> place & 1 == 0 && state::usable::takes_for(request, depot);
        Some(Bench {
            lane: place,
            depot: lane.depot,
            is_live: live >> place & 1 == 1,
            gives: is_there && state::usable::gives_for(request, depot),
            // A store can't rebuild.
            is_open: is_there
                && is_wished
                && !depot.stores
                && !depot.is_draining()
                && depot.is_open_to(request, place, state.now)
                && depot.space() - state.index.kept(lane.depot) >= bytes,
        })
    });
    benches.collect()
}

/// Returns how much may start at each depot: bounded as at destinations, and less if the centre
/// feeds it.
pub(crate) fn bench_rooms(state: &State, benches: &[Bench]) -> Rooms {
    let open = benches.iter().enumerate().filter(|(_, at)| at.is_open);
    let rooms = open.filter_map(|(place, at)| {
        let depot = state.depots.get(&at.depot)?;
        let most = match depot.link.flights > 0 {
            true => state.settings.deliver_flights_fed,
            false => state.settings.deliver_flights_max,
        };
        let under_way = state.pushes.to(at.depot, None).count();
        let under_way = u32::try_from(under_way).unwrap_or(u32::MAX);
        Some((place, most.saturating_sub(under_way)))
    });
    rooms.filter(|(_, room)| *room > 0).collect()
}

/// Returns depots as one chunk sees them. One whose failure domain holds too much of it takes
/// nothing, unless no other can.
pub(crate) fn mend_spots(
    state: &State,
    request: &Request,
    id: RequestId,
    benches: &[Bench],
    chunk: ChunkIndex,
    fragment: FragmentIndex,
) -> Vec<Spot> {
    let is_coming = |at: &Bench| {
        state.pushes.get(at.depot, id, chunk).is_some()
            || state.transfers.get(at.depot, id, chunk).is_some()
    };
    // A fragment that an earlier depot has too is no obstacle: another takes its place.
    let replica = &request.replica;
    let holds = |at: &Bench| {
        let is_needed = request.is_pinned(at.lane) || !replica.is_redundant(at.lane, chunk);
        replica.holds(at.lane, chunk) && is_needed
    };
    let has_some = |at: &&Bench| holds(at) || is_coming(at);
    let taken = benches.iter().filter(has_some);
    let taken = taken.fold(0u64, |mask, at| mask | 1 << at.lane);
    // Pinned depots come first, as far as one of them can take anything; a copy is for them
    // alone.
    let is_copy = replica.lost(chunk) & 1u64.unbounded_shl(fragment.get().into()) == 0;
    let is_pinned = |at: &Bench| request.is_pinned(at.lane) && taken >> at.lane & 1 == 0;
    let for_pinned = is_copy || benches.iter().any(|at| at.is_open && is_pinned(at));
    let is_empty =
        |at: &Bench| taken >> at.lane & 1 == 0 && (!for_pinned || request.is_pinned(at.lane));
    let is_apart = |at: &Bench| is_empty(at) && request.is_free(taken, at.lane);
    let is_alone = |at: &Bench| is_empty(at) && request.fits(taken, at.lane);
    let has_apart = benches.iter().any(|at| at.is_open && is_apart(at));
    let has_alone = benches.iter().any(|at| at.is_open && is_alone(at));
    let spot = |at: &Bench| Spot {
        holds: replica
            .fragment_at(at.lane, chunk)
            .filter(|_| at.is_live)
            .map(|fragment| Piece::Fragment(fragment.get())),
        gives: at.gives,
        lacks: match (has_apart, has_alone) {
            (true, _) => is_apart(at),
            (false, true) => is_alone(at),
            (false, false) => is_empty(at),
        },
        arrives: false,
        is_open: at.is_open,
    };
    benches.iter().map(spot).collect()
}

/// Returns whether depots rebuild what a request, or some of its chunks, lack.
pub(crate) fn is_mended(request: &Request) -> bool {
    let has_left = request.is_moving() && request.replica.has_left() && !request.is_paused();
    has_left || request.state == RequestState::Released
}

pub(crate) fn held(spot: Spot) -> Option<FragmentIndex> {
    match spot.holds? {
        Piece::Whole => None,
        Piece::Fragment(fragment) => Some(FragmentIndex::new(fragment)),
    }
}
