//! Sends fragments on between depots, to those nearer the destination (`docs/algorithms/push.md`).
//!
//! Only fragments that are verified where they lie go on, and each counts there only once it is
//! verified there. The centre's uplink has no part in it; depots that are fed from the centre are
//! left alone.

mod failures;
pub(crate) mod follow;
mod offers;

use alloc::{
    collections::{BTreeMap, BTreeSet},
    vec,
    vec::Vec,
};
use posthaste_plan::push::{self, Push as Next, Room, Stand};
use posthaste_types::{Bytes, ChunkIndex, DepotId, FragmentIndex, RequestId};

use crate::{
    Mind,
    books::{Depot, FlightKey, Forwarded, Push, Request},
    contract::{Drain, DrainReason, Fault, Happening, Outbox, Reason},
    outlook::SLICE_PAUSE,
};

/// Consecutive requests for which a depot could do nothing after which it counts as busy for all.
const MISSES_MAX: u32 = 8;
/// Most chunks looked at in one go for one request: a fraction of a millisecond.
const LOOKS_MAX: usize = 512;
/// Stall times that a fragment of a chunk coded elsewhere may last.
const PIECE_STALLS: u32 = 3;
/// Level of a drained depot whose fragments go on: before all others.
const LEAVES: u8 = 0;

/// Depot as a request sees it now, whatever the chunk.
struct Sight {
    lane: usize,
    depot: DepotId,
    level: u8,
    /// True if it is not of the first level that the request uses.
    is_nearer: bool,
    is_live: bool,
    gives: bool,
    is_open: bool,
    /// True if it is being fed from the centre: that goes first.
    is_fed: bool,
}

/// State of the paths between sights, if something may go.
type Ways = BTreeMap<(usize, usize), Room>;

/// Returns whether nothing may start over any of them now.
fn is_full(ways: &Ways) -> bool {
    !ways.values().any(|room| room.may_start)
}

/// Result of one pass over a request.
#[derive(Default)]
struct Pass {
    ways: Ways,
    /// Started pushes, each with the lane of its receiver and its sender.
    started: Vec<(usize, DepotId, FlightKey, Forwarded)>,
    is_cut_short: bool,
}

impl Mind {
    /// Sends fragments on, the most urgent request first.
    ///
    /// Only requests with new offers are looked at, and those that wait for a depot about which
    /// something changed.
    pub(crate) fn push_on(&mut self, out: &mut Outbox) {
        self.pushes.more_at = None;
        let offered = self.pushes.take_offered();
        // Requests with a deliver-by get room before others.
        let (first, then) = match self.index.due().is_empty() {
            true => (offered, BTreeSet::new()),
            false => (BTreeSet::new(), offered),
        };
        self.push_offered(first, out);
        self.push_touched(out);
        self.push_offered(then, out);
    }

    fn push_offered(&mut self, offered: BTreeSet<RequestId>, out: &mut Outbox) {
        for id in offered {
            self.mend_for(id, out);
            self.push_for(id, out);
            self.deliver_for(id, out);
            self.deliver_following(id, out);
        }
    }

    fn push_touched(&mut self, out: &mut Outbox) {
        if !self.pushes.has_touched() {
            return;
        }
        self.bring_up_to_date();
        for to in self.pushes.take_touched() {
            let (mut after, mut misses) = (None, 0);
            while misses < MISSES_MAX
                && let Some(urgency) = self.index.next_push(to, after)
            {
                after = Some(urgency);
                let has_moved = self.mend_for(urgency.request, out);
                let has_moved = self.push_for(urgency.request, out) || has_moved;
                let has_moved = self.deliver_for(urgency.request, out) || has_moved;
                let has_moved = self.deliver_following(urgency.request, out) || has_moved;
                misses = if has_moved { 0 } else { misses + 1 };
            }
        }
        self.bring_up_to_date();
    }

    /// Tries everything once a tick: pairs at rest, depots that were fed.
    pub(crate) fn review_pushes(&mut self, out: &mut Outbox) {
        let settings = &self.settings;
        let (stalled_since, failed_since) =
            (self.now - settings.push_wait, self.now - settings.hold_max);
        // A coding depot must receive the chunk before it sends anything on.
        let pieces_since = self.now - settings.stall * PIECE_STALLS;
        for (id, from, to) in self.pushes.stalled(stalled_since, pieces_since) {
            self.back_off(from, to);
            let fault = Fault::Unreachable;
            self.abandon_pushes(id, to, &Reason::DepotLost { fault }, out);
        }
        self.pushes.forget_failures(failed_since);
        for to in self.index.push_targets() {
            self.pushes.touch(to);
        }
    }

    /// Removes a push from the books.
    pub(crate) fn land_push(
        &mut self,
        key: FlightKey,
        fragment: FragmentIndex,
    ) -> Option<Forwarded> {
        let flight = self.pushes.end(key, fragment)?;
        if let Some(depot) = self.depots.get_mut(&key.depot) {
            depot.arriving -= flight.bytes;
        }
        if let Some(request) = self.requests.get_mut(&key.request) {
            let lane = request.lane_of(key.depot);
            if flight.is_piece {
                lane.into_iter()
                    .for_each(|lane| request.end_piece(lane, key.chunk));
                return Some(flight);
            }
            let is_delivery = lane.is_some_and(|lane| request.is_destination(lane));
            let push = match (flight.is_mend, is_delivery) {
                (true, _) => &mut request.mend,
                (false, true) => &mut request.delivery,
                (false, false) => &mut request.push,
            };
            if let Some(push) = push {
                push.flying -= 1;
                push.offer(key.chunk);
            }
        }
        Some(flight)
    }

    /// Returns the depots of a request, except the destinations.
    fn sights(&self, request: &Request) -> Vec<Sight> {
        let lanes = request.lanes.iter().enumerate();
        let lanes = lanes.filter(|&(place, _)| !request.is_destination(place));
        let live = request.replica.live();
        let to = request.lead_depot();
        let sights = lanes.filter_map(|(place, lane)| {
            let depot = self.depots.get(&lane.depot)?;
            let is_there = depot.is_up() && lane.asked_at.is_none();
            Some(Sight {
                lane: place,
                depot: lane.depot,
                // Fragments that leave may go to any of the others.
                level: match depot.drain() {
                    Drain::Move => LEAVES,
                    Drain::Off | Drain::Keep => self.crossings.level(lane.depot, depot, to),
                },
                is_nearer: false,
                is_live: live >> place & 1 == 1,
                gives: is_there
                    && (request.wishes.budget_micro_usd.is_none() || depot.gives_free()),
                is_open: is_there
                    && !depot.is_draining()
                    && (request.wishes.budget_micro_usd.is_none() || depot.is_free())
                    && depot.is_open_to(request, place, self.now)
                    && depot.space() - self.index.kept(lane.depot)
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
    fn room(&self, from: &Sight, to: &Sight, bytes: Bytes) -> Option<Room> {
        let (now, settings) = (self.now, &self.settings);
        // Nothing can go from store to store.
        let has_hands = !self.stores(from.depot) || !self.stores(to.depot);
        let is_pair = from.level < to.level && from.gives && to.is_open && !to.is_fed && has_hands;
        let has_space = |depot: &Depot| depot.space() - self.index.kept(to.depot) >= bytes;
        let is_pair = is_pair && self.depots.get(&to.depot).is_some_and(has_space);
        let (from, to) = (from.depot, to.depot);
        let room = is_pair.then(|| self.pushes.room(from, to, bytes, now, settings));
        room.flatten().map(|may_start| Room {
            micros: self.micros_between(from, to, bytes),
            may_start,
        })
    }

    /// Starts what can start for a request. Returns whether anything did.
    fn push_for(&mut self, id: RequestId, out: &mut Outbox) -> bool {
        let Some(request) = self.requests.get(&id).filter(|request| request.is_kept()) else {
            return false;
        };
        if request.push.is_none() || request.is_paused() {
            return false;
        }
        let sights = self.sights(request);
        let Some(mut push) = self
            .requests
            .get_mut(&id)
            .and_then(|request| request.push.take())
        else {
            return false;
        };
        let mut pass = self.pass_over(id, &sights, &mut push);
        self.follow_over(id, &sights, &mut push, &mut pass);
        if pass.is_cut_short {
            self.pushes.offer(id);
            self.pushes.more_at = Some(self.now + SLICE_PAUSE);
        }
        let has_started = !pass.started.is_empty();
        let mut said = push.said;
        for (lane, from, key, flight) in pass.started {
            let reason = match flight.is_following {
                true => Reason::GoesOnAsItComes,
                false => self.why_pushed(&sights, from, key.depot),
            };
            if said >> lane & 1 == 0 {
                said |= 1 << lane;
                let to = Some(key.depot);
                self.tell(out, Some(id), to, Happening::Pushing, reason.clone());
            }
            out.commands
                .push(follow::command(from, key, &flight, reason));
        }
        push.said = said;
        push.is_said_done &= !has_started;
        let is_safe = self
            .requests
            .get(&id)
            .is_some_and(|request| request.replica.is_safe());
        if is_safe && push.is_done() && push.said != 0 && !push.is_said_done {
            push.is_said_done = true;
            let reason = why_all_pushed(&sights);
            self.tell(out, Some(id), None, Happening::Pushed, reason);
        }
        if let Some(request) = self.requests.get_mut(&id) {
            request.push = Some(push);
        }
        has_started
    }

    fn why_pushed(&self, sights: &[Sight], from: DepotId, to: DepotId) -> Reason {
        let leaves = |at: &Sight| at.depot == from && at.level == LEAVES;
        if sights.iter().any(leaves) {
            let why = DrainReason::Leaves;
            return Reason::Drained { why };
        }
        let target = sights.iter().find(|at| at.depot == to);
        let level = target.map_or(0, |at| at.level);
        Reason::Nearer { level }
    }

    fn pass_over(&mut self, id: RequestId, sights: &[Sight], push: &mut Push) -> Pass {
        let mut pass = Pass {
            ways: self.ways(id, sights),
            ..Pass::default()
        };
        push.begin(self.now);
        for (nearer, chunk) in push.opened() {
            if is_full(&pass.ways) {
                return pass;
            }
            if self.could_go(id, sights, &pass.ways, chunk) {
                push.close(chunk, nearer);
                self.look_at_chunk(id, sights, chunk, push, &mut pass);
            }
        }
        for _ in 0..LOOKS_MAX {
            if is_full(&pass.ways) {
                return pass;
            }
            let Some(chunk) = push.next() else {
                return pass;
            };
            self.look_at_chunk(id, sights, chunk, push, &mut pass);
        }
        pass.is_cut_short = push.has_todo();
        pass
    }

    /// Returns the state of the paths between them, if something may go.
    fn ways(&self, id: RequestId, sights: &[Sight]) -> Ways {
        let bytes = self.requests.get(&id).map_or(Bytes::ZERO, |request| {
            request.replica.bytes_of(ChunkIndex::new(0), FIRST)
        });
        let mut ways = Ways::new();
        for (to, target) in sights.iter().enumerate() {
            for (from, source) in sights.iter().enumerate() {
                let room = self.room(source, target, bytes);
                ways.extend(room.map(|room| ((from, to), room)));
            }
        }
        ways
    }

    /// Returns whether a chunk could use any of the paths, by a quick check.
    fn could_go(&self, id: RequestId, sights: &[Sight], ways: &Ways, chunk: u32) -> bool {
        let Some(request) = self.requests.get(&id) else {
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

    /// Starts what can start of a chunk, and files it by what it waits for.
    fn look_at_chunk(
        &mut self,
        id: RequestId,
        sights: &[Sight],
        chunk: u32,
        push: &mut Push,
        pass: &mut Pass,
    ) {
        let index = ChunkIndex::new(chunk);
        loop {
            let Some(request) = self.requests.get(&id).filter(|of| is_ripe(of, index)) else {
                return;
            };
            let stands = self.stands(request, id, sights, index);
            let bytes = request.replica.bytes_of(index, FIRST);
            let room = |from: usize, to: usize| pass.ways.get(&(from, to)).copied();
            match push::next(&stands, room) {
                Next::Go { from, to, fragment } => {
                    let way = (from, to);
                    let (from, to) = (&sights[from], &sights[to]);
                    let key = FlightKey {
                        depot: to.depot,
                        request: id,
                        chunk: index,
                    };
                    let flight = Forwarded {
                        givers: vec![from.depot],
                        fragment: FragmentIndex::new(fragment),
                        bytes,
                        share: bytes,
                        is_blamed: false,
                        is_piece: false,
                        is_following: false,
                        is_mend: false,
                        since: self.now,
                    };
                    self.begin_flight_between(to.lane, key, flight.clone());
                    push.flying += 1;
                    pass.started.push((to.lane, from.depot, key, flight));
                    match self.room(from, to, bytes) {
                        Some(room) => pass.ways.insert(way, room),
                        None => pass.ways.remove(&way),
                    };
                }
                Next::Busy => return push.keep_open(chunk, push::nearer(&stands)),
                Next::Stuck => return push.set_stuck(chunk),
                Next::Done => return,
            }
        }
    }

    /// Returns the depots as one chunk sees them.
    fn stands(
        &self,
        request: &Request,
        id: RequestId,
        sights: &[Sight],
        chunk: ChunkIndex,
    ) -> Vec<Stand> {
        let mut taken = 0;
        let stand = |at: &Sight| {
            let held = request.replica.fragment_at(at.lane, chunk);
            let awaited = at.is_nearer.then(|| self.pushes.get(at.depot, id, chunk));
            let awaited = awaited.flatten();
            let is_sent = at.is_fed && self.transfers.get(at.depot, id, chunk).is_some();
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
    pub(crate) fn is_push_balanced(&self) -> bool {
        let depots = self.depots.iter().all(|(id, depot)| {
            let bytes: Bytes = self
                .pushes
                .to(*id, None)
                .map(|(_, flight)| flight.bytes)
                .sum();
            bytes == depot.arriving
        });
        depots && self.pushes.is_balanced()
    }
}

/// Fragment whose size stands for all: those of a chunk have one size.
const FIRST: FragmentIndex = FragmentIndex::new(0);

/// Returns why fragments lie where they do once all went on: nearer the destination, or not where
/// they were.
fn why_all_pushed(sights: &[Sight]) -> Reason {
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
fn is_ripe(request: &Request, chunk: ChunkIndex) -> bool {
    let mut whole = request.destinations();
    let is_there = whole.any(|lane| request.replica.counts(lane, chunk));
    !is_there && (!request.is_moving() || request.replica.lost(chunk) == 0)
}
