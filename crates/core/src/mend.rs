//! Rebuilds fragments that were lost with depots after the source left, from those at other depots
//! (`docs/algorithms/repair.md`).
//!
//! The centre has no part in it. A depot that has nothing of a chunk takes as many of its fragments
//! as the code needs. It rebuilds the lost one, and keeps that one alone.

use alloc::{boxed::Box, collections::BTreeMap, vec::Vec};
use posthaste_plan::deliver::{self, Deliver, Piece, Spot};
use posthaste_types::{ChunkIndex, DepotId, FragmentIndex, RequestId};

use crate::{
    Mind,
    books::{FlightKey, Forwarded, Push, Request},
    contract::{Command, Outbox, Reason, RequestState},
    outlook::SLICE_PAUSE,
};

/// Most chunks looked at in one go for one request: a fraction of a millisecond.
const LOOKS_MAX: usize = 512;
/// Most chunks waiting for a busy path that are looked at in one go.
const OPENED_MAX: usize = 16;
/// Fragments asked for beyond those a chunk needs.
const RESERVE: usize = 1;
/// Fragment whose size stands for all: those of a chunk have one size.
const FIRST: FragmentIndex = FragmentIndex::new(0);

/// Depot as a request sees it now, whatever the chunk.
struct Bench {
    lane: usize,
    depot: DepotId,
    is_live: bool,
    gives: bool,
    is_open: bool,
}

/// Number of fragments that may still start towards each depot, by its place among the benches.
type Rooms = BTreeMap<usize, u32>;

impl Mind {
    /// Begins the repair of a request whose source is gone, or of chunks that the source can't give
    /// any more.
    pub(crate) fn begin_mend(&mut self, id: RequestId) {
        let lacks = |request: &Request| {
            is_mended(request) && request.mend.is_none() && !request.replica.is_safe()
        };
        if self.requests.get(&id).is_some_and(lacks)
            && let Some(request) = self.requests.get_mut(&id)
        {
            request.mend = Some(Box::new(Push::new(request.replica.chunks(), 0)));
            self.pushes.offer(id);
        }
    }

    /// Offers a chunk of which something was stored, or failed: it may be rebuilt from there.
    pub(crate) fn offer_mend(&mut self, id: RequestId, chunk: ChunkIndex) {
        let lacks = |request: &Request| request.replica.lacking(chunk) != 0;
        if self
            .requests
            .get(&id)
            .is_some_and(|of| of.mend.is_some() && lacks(of))
            && let Some(request) = self.requests.get_mut(&id)
            && let Some(mend) = &mut request.mend
        {
            mend.offer(chunk);
            self.pushes.offer(id);
        }
    }

    /// Starts what can be rebuilt of a request now. Returns whether anything started.
    pub(crate) fn mend_for(&mut self, id: RequestId, out: &mut Outbox) -> bool {
        let has_work = |request: &Request| {
            is_mended(request) && request.mend.as_deref().is_some_and(Push::has_work)
        };
        let Some(request) = self.requests.get(&id).filter(|of| has_work(of)) else {
            return false;
        };
        let benches = self.benches(request);
        let mut rooms = self.bench_rooms(&benches);
        if rooms.is_empty() {
            return false;
        }
        let Some(mut mend) = self
            .requests
            .get_mut(&id)
            .and_then(|request| request.mend.take())
        else {
            return false;
        };
        let before = out.commands.len();
        self.mend_over(id, &benches, &mut rooms, &mut mend, out);
        if let Some(request) = self.requests.get_mut(&id) {
            request.mend = Some(mend);
        }
        out.commands.len() > before
    }

    fn mend_over(
        &mut self,
        id: RequestId,
        benches: &[Bench],
        rooms: &mut Rooms,
        mend: &mut Push,
        out: &mut Outbox,
    ) {
        mend.begin(self.now);
        for (rank, chunk) in mend.opened().into_iter().take(OPENED_MAX) {
            if rooms.is_empty() {
                return;
            }
            mend.close(chunk, rank);
            self.mend_chunk(id, benches, chunk, (&mut *mend, &mut *rooms), out);
        }
        for _ in 0..LOOKS_MAX {
            if rooms.is_empty() {
                return;
            }
            let Some(chunk) = mend.next() else {
                return;
            };
            self.mend_chunk(id, benches, chunk, (&mut *mend, &mut *rooms), out);
        }
        if mend.has_todo() {
            self.pushes.offer(id);
            self.pushes.more_at = Some(self.now + SLICE_PAUSE);
        }
    }

    /// Starts what can start of a chunk, and files it by what it waits for.
    fn mend_chunk(
        &mut self,
        id: RequestId,
        benches: &[Bench],
        chunk: u32,
        (mend, rooms): (&mut Push, &mut Rooms),
        out: &mut Outbox,
    ) {
        let index = ChunkIndex::new(chunk);
        loop {
            let Some(request) = self.requests.get(&id) else {
                return;
            };
            if request.is_moving() && !request.replica.is_left(index) {
                return;
            }
            let Some(fragment) = self.lost_of(request, id, benches, index) else {
                return;
            };
            let spots = self.mend_spots(request, id, benches, index, fragment);
            let bytes = request.replica.bytes_of(index, FIRST);
            let micros = |from: usize, to: usize| {
                let (now, settings) = (self.now, &self.settings);
                let (giver, taker) = (benches[from].depot, benches[to].depot);
                let has_room = from != to
                    && rooms.contains_key(&to)
                    && self.pushes.room(giver, taker, bytes, now, settings) == Some(true);
                has_room.then(|| self.micros_between(giver, taker, bytes))
            };
            let data = request.spec.code.data();
            match deliver::next(&spots, data, RESERVE, micros) {
                Deliver::Go { to, from } => {
                    let lost = request.uncommon.last_lost;
                    let from: Vec<(DepotId, FragmentIndex)> = from
                        .into_iter()
                        .filter_map(|at| Some((benches[at].depot, held(spots[at])?)))
                        .collect();
                    let flight = Forwarded {
                        givers: from.iter().map(|(depot, _)| *depot).collect(),
                        fragment,
                        bytes,
                        share: bytes,
                        is_blamed: false,
                        is_piece: false,
                        is_following: false,
                        is_mend: true,
                        since: self.now,
                    };
                    let depot = benches[to].depot;
                    let key = FlightKey {
                        depot,
                        request: id,
                        chunk: index,
                    };
                    self.begin_flight_between(benches[to].lane, key, flight);
                    mend.flying += 1;
                    out.commands.push(Command::Mend {
                        request: id,
                        to: depot,
                        chunk: index,
                        fragment,
                        from,
                        reason: lost.map_or(Reason::HasIt, |lost| Reason::Repair { lost }),
                    });
                    if let Some(room) = rooms.get_mut(&to) {
                        *room -= 1;
                    }
                    rooms.retain(|_, room| *room > 0);
                }
                Deliver::Busy => return mend.keep_open(chunk, deliver::holders(&spots)),
                Deliver::Stuck | Deliver::Done => return mend.set_stuck(chunk),
            }
        }
    }

    /// Returns a fragment of the chunk that lies nowhere and is not on its way.
    fn lost_of(
        &self,
        request: &Request,
        id: RequestId,
        benches: &[Bench],
        chunk: ChunkIndex,
    ) -> Option<FragmentIndex> {
        let mut lost = request.replica.lacking(chunk);
        for at in benches {
            if let Some(coming) = self.pushes.get(at.depot, id, chunk) {
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
    fn benches(&self, request: &Request) -> Vec<Bench> {
        let live = request.replica.live();
        let bytes = request.replica.bytes_of(ChunkIndex::new(0), FIRST);
        let benches = request.depot_lanes().filter_map(|place| {
            let lane = &request.lanes[place];
            let depot = self.depots.get(&lane.depot)?;
            let is_there = depot.is_up() && lane.asked_at.is_none();
            let is_wished = request.uncommon.barred >> place & 1 == 0
                && (request.wishes.budget_micro_usd.is_none() || depot.is_free());
            Some(Bench {
                lane: place,
                depot: lane.depot,
                is_live: live >> place & 1 == 1,
                gives: is_there
                    && (request.wishes.budget_micro_usd.is_none() || depot.gives_free()),
                // A store can't rebuild.
                is_open: is_there
                    && is_wished
                    && !depot.stores
                    && !depot.is_draining()
                    && depot.is_open_to(request, place, self.now)
                    && depot.space() - self.index.kept(lane.depot) >= bytes,
            })
        });
        benches.collect()
    }

    /// Returns how much may start at each depot: bounded as at destinations, and less if the centre
    /// feeds it.
    fn bench_rooms(&self, benches: &[Bench]) -> Rooms {
        let open = benches.iter().enumerate().filter(|(_, at)| at.is_open);
        let rooms = open.filter_map(|(place, at)| {
            let depot = self.depots.get(&at.depot)?;
            let most = match depot.link.flights > 0 {
                true => self.settings.deliver_flights_fed,
                false => self.settings.deliver_flights_max,
            };
            let under_way = self.pushes.to(at.depot, None).count();
            let under_way = u32::try_from(under_way).unwrap_or(u32::MAX);
            Some((place, most.saturating_sub(under_way)))
        });
        rooms.filter(|(_, room)| *room > 0).collect()
    }

    /// Returns depots as one chunk sees them. One whose failure domain holds too much of it takes
    /// nothing, unless no other can.
    fn mend_spots(
        &self,
        request: &Request,
        id: RequestId,
        benches: &[Bench],
        chunk: ChunkIndex,
        fragment: FragmentIndex,
    ) -> Vec<Spot> {
        let is_coming = |at: &Bench| {
            self.pushes.get(at.depot, id, chunk).is_some()
                || self.transfers.get(at.depot, id, chunk).is_some()
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
}

/// Returns whether depots rebuild what a request, or some of its chunks, lack.
fn is_mended(request: &Request) -> bool {
    let has_left = request.is_moving() && request.replica.has_left() && !request.is_paused();
    has_left || request.state == RequestState::Released
}

fn held(spot: Spot) -> Option<FragmentIndex> {
    match spot.holds? {
        Piece::Whole => None,
        Piece::Fragment(fragment) => Some(FragmentIndex::new(fragment)),
    }
}
