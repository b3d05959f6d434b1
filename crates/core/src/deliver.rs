//! Brings every chunk to every destination, from any holder (`docs/algorithms/delivery.md`).
//!
//! The centre sends a chunk once, so that it is safe. Destinations that lack it then take it from
//! where it lies, without the centre's uplink. While the centre still sends to a destination, that
//! goes first. Delivery waits for a destination that is away.

mod follow;
mod outlook;
mod promise;
mod space;

pub(crate) use outlook::Awaited;

use alloc::{boxed::Box, collections::BTreeMap, vec::Vec};
use core::cmp::Reverse;
use posthaste_plan::deliver::{self, Deliver, Piece, Spot};
use posthaste_types::{ByteRate, Bytes, ChunkIndex, DepotId, FragmentIndex, RequestId};

use crate::{
    Mind,
    books::{FlightKey, Forwarded, Push, Request},
    contract::{Command, Happening, Outbox, Reason},
    outlook::SLICE_PAUSE,
};

/// Most chunks looked at in one go for one request: a fraction of a millisecond.
const LOOKS_MAX: usize = 512;
/// Most chunks waiting for a busy path that are looked at in one go.
const OPENED_MAX: usize = 16;

/// Depot or destination as a request sees it now, whatever the chunk.
struct Perch {
    lane: usize,
    depot: DepotId,
    is_destination: bool,
    is_live: bool,
    gives: bool,
    is_open: bool,
}

/// Number of chunks that may still start towards each destination, by its place among the perches.
type Rooms = BTreeMap<usize, u32>;

/// Result of one pass over a request.
struct Pass {
    rooms: Rooms,
    commands: Vec<(usize, Command)>,
}

impl Mind {
    /// Begins the delivery of an accepted request: its destinations share what is sent, and take
    /// what lies at depots.
    pub(crate) fn begin_delivery(&mut self, id: RequestId) {
        let Some(request) = self.requests.get(&id) else {
            return;
        };
        let is_wanted = request.lead().is_some() && request.replica.chunks() > 0;
        if is_wanted && let Some(request) = self.requests.get_mut(&id) {
            request.delivery = Some(Box::new(Push::new(request.replica.chunks(), 0)));
            self.pushes.offer(id);
        } else if let Some(request) = self.requests.get_mut(&id)
            && request.lead().is_some()
        {
            // An empty request has nothing to deliver.
            request.due.whole_at = Some(self.now);
        }
    }

    /// Returns the destination on which plans count now: one that is up, then one with space for
    /// all of it, then the fastest. Another replaces the present one for speed only if it is faster
    /// by a quarter.
    pub(crate) fn best_destination(&self, request: &Request) -> Option<usize> {
        let key = |lane: usize| {
            let depot = self.depots.get(&request.lanes[lane].depot);
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

    /// Re-evaluates that for a running request that has a choice.
    pub(crate) fn review_lead(&mut self, id: RequestId) {
        let Some(request) = self.requests.get(&id) else {
            return;
        };
        let has_choice = request.whole_lanes().count_ones() > 1;
        let is_planned = request
            .lead()
            .is_some_and(|lead| request.lanes[lead].quota.is_some());
        if !has_choice || is_planned {
            return;
        }
        let best = self.best_destination(request);
        if best != request.lead()
            && let Some(request) = self.requests.get_mut(&id)
            && let Some(best) = best
        {
            request.set_lead(best);
        }
    }

    /// Offers a chunk of which something was stored: destinations may take it from there.
    pub(crate) fn offer_delivery(&mut self, id: RequestId, chunk: ChunkIndex) {
        let goes = |request: &Request| request.delivery.is_some() && is_ripe(request, chunk);
        if self.requests.get(&id).is_some_and(goes)
            && let Some(request) = self.requests.get_mut(&id)
            && let Some(delivery) = &mut request.delivery
        {
            delivery.offer(chunk);
            self.pushes.offer(id);
        }
    }

    /// Starts what destinations of a request can take from others now. Returns whether anything
    /// started.
    pub(crate) fn deliver_for(&mut self, id: RequestId, out: &mut Outbox) -> bool {
        let Some(request) = self.requests.get(&id).filter(|request| request.is_kept()) else {
            return false;
        };
        if request.is_paused() || !request.delivery.as_deref().is_some_and(Push::has_work) {
            return false;
        }
        let perches = self.perches(id, request);
        let rooms = self.rooms(id, request, &perches);
        if rooms.is_empty() {
            return false;
        }
        let Some(mut delivery) = self
            .requests
            .get_mut(&id)
            .and_then(|request| request.delivery.take())
        else {
            return false;
        };
        let commands = self.deliver_over(id, &perches, rooms, &mut delivery);
        let has_started = !commands.is_empty();
        let mut said = delivery.said;
        for (lane, command) in commands {
            if said >> lane & 1 == 0 {
                said |= 1 << lane;
                let to = perches.iter().find(|at| at.lane == lane);
                let to = to.map(|at| at.depot);
                self.tell(out, Some(id), to, Happening::Delivering, Reason::HasIt);
            }
            out.commands.push(command);
        }
        delivery.said = said;
        if let Some(request) = self.requests.get_mut(&id) {
            request.delivery = Some(delivery);
        }
        if has_started {
            self.hold_for_delivery(id);
        }
        has_started
    }

    fn deliver_over(
        &mut self,
        id: RequestId,
        perches: &[Perch],
        rooms: Rooms,
        delivery: &mut Push,
    ) -> Vec<(usize, Command)> {
        let mut pass = Pass {
            rooms,
            commands: Vec::new(),
        };
        delivery.begin(self.now);
        for (rank, chunk) in delivery.opened().into_iter().take(OPENED_MAX) {
            if pass.rooms.is_empty() {
                return pass.commands;
            }
            delivery.close(chunk, rank);
            self.deliver_chunk(id, perches, chunk, delivery, &mut pass);
        }
        for _ in 0..LOOKS_MAX {
            if pass.rooms.is_empty() {
                return pass.commands;
            }
            let Some(chunk) = delivery.next() else {
                return pass.commands;
            };
            self.deliver_chunk(id, perches, chunk, delivery, &mut pass);
        }
        if delivery.has_todo() {
            self.pushes.offer(id);
            self.pushes.more_at = Some(self.now + SLICE_PAUSE);
        }
        pass.commands
    }

    /// Starts what can start of a chunk, and files it by what it waits for.
    fn deliver_chunk(
        &mut self,
        id: RequestId,
        perches: &[Perch],
        chunk: u32,
        delivery: &mut Push,
        pass: &mut Pass,
    ) {
        let index = ChunkIndex::new(chunk);
        loop {
            let Some(request) = self.requests.get(&id).filter(|of| is_ripe(of, index)) else {
                return;
            };
            let spots = self.spots(request, id, perches, index);
            let data = request.spec.code.data();
            let micros = |from: usize, to: usize| {
                let has_room = pass.rooms.contains_key(&to);
                let share = share(request, index, spots[from].holds?);
                let (from, to) = (perches[from].depot, perches[to].depot);
                let micros = has_room.then(|| self.micros(from, to, share));
                micros.flatten()
            };
            match deliver::next(&spots, data, RESERVE, micros) {
                Deliver::Go { to, from } => {
                    let pieces = from.iter().filter_map(|&at| {
                        let piece = spots[at].holds?;
                        Some((perches[at].depot, piece))
                    });
                    let pieces: Vec<(DepotId, Piece)> = pieces.collect();
                    let bytes = request.replica.bytes_of(index, FragmentIndex::WHOLE);
                    let share = pieces
                        .first()
                        .map_or(bytes, |&(_, piece)| share(request, index, piece));
                    let flight = Forwarded {
                        givers: pieces.iter().map(|(depot, _)| *depot).collect(),
                        fragment: FragmentIndex::WHOLE,
                        bytes,
                        share,
                        is_blamed: false,
                        is_piece: false,
                        is_following: false,
                        is_mend: false,
                        since: self.now,
                    };
                    let at = &perches[to];
                    let key = FlightKey {
                        depot: at.depot,
                        request: id,
                        chunk: index,
                    };
                    self.begin_flight_between(at.lane, key, flight);
                    delivery.flying += 1;
                    pass.commands.push((at.lane, command(key, &pieces)));
                    if let Some(room) = pass.rooms.get_mut(&to) {
                        *room -= 1;
                    }
                    pass.rooms.retain(|_, room| *room > 0);
                }
                Deliver::Busy => return delivery.keep_open(chunk, deliver::holders(&spots)),
                Deliver::Stuck => return delivery.set_stuck(chunk),
                Deliver::Done => return,
            }
        }
    }

    pub(crate) fn begin_flight_between(&mut self, lane: usize, key: FlightKey, flight: Forwarded) {
        if let Some(depot) = self.depots.get_mut(&key.depot) {
            depot.arriving += flight.bytes;
        }
        let cost = self.price_between(&flight.givers, key.depot, flight.bytes, flight.share);
        if let Some(request) = self.requests.get_mut(&key.request) {
            request.lanes[lane].is_used = true;
            request.spent_micro_usd = request.spent_micro_usd.saturating_add(cost);
        }
        self.pushes.start(key, flight);
    }

    /// Returns the microseconds until so much would arrive from one at another; none if nothing may
    /// start there now.
    fn micros(&self, from: DepotId, to: DepotId, share: Bytes) -> Option<u64> {
        let (now, settings) = (self.now, &self.settings);
        let may_start = self.pushes.room(from, to, share, now, settings) == Some(true);
        may_start.then(|| self.micros_between(from, to, share))
    }

    /// Returns the microseconds until so much would arrive from one at another, after what is in
    /// progress.
    pub(crate) fn micros_between(&self, from: DepotId, to: DepotId, share: Bytes) -> u64 {
        let (now, settings) = (self.now, &self.settings);
        let known = self.crossings.rates(from, to, now, settings);
        // A path over which nothing went yet includes both ends' links to the world.
        let ends = || {
            let ends = [from, to].into_iter();
            let ends = ends.filter_map(|end| Some(self.depots.get(&end)?.link.rates.p50));
            ends.min().unwrap_or_default()
        };
        let rate = known.map_or_else(ends, |rates| rates.p50);
        let waits = self.pushes.under_way(from, to);
        let span = rate.time_for(waits + share);
        u64::try_from(span.as_micros()).unwrap_or(u64::MAX)
    }

    fn perches(&self, id: RequestId, request: &Request) -> Vec<Perch> {
        let live = request.replica.live();
        let lanes = request.lanes.iter().enumerate();
        let perches = lanes.filter_map(|(place, lane)| {
            let depot = self.depots.get(&lane.depot)?;
            let is_there = depot.is_up() && lane.asked_at.is_none();
            let is_destination = request.is_destination(place);
            let is_free = request.wishes.budget_micro_usd.is_none() || depot.is_free();
            let chunk = request.spec.chunk_size.min(request.spec.bytes);
            Some(Perch {
                lane: place,
                depot: lane.depot,
                is_destination,
                is_live: live >> place & 1 == 1,
                gives: is_there
                    && (request.wishes.budget_micro_usd.is_none() || depot.gives_free()),
                // A store can't gather.
                is_open: is_destination
                    && is_there
                    && !depot.stores
                    && is_free
                    && depot.is_open(self.now)
                    && self.space_to_deliver(id, request, place) >= chunk,
            })
        });
        perches.collect()
    }

    fn rooms(&self, id: RequestId, request: &Request, perches: &[Perch]) -> Rooms {
        let open = perches.iter().enumerate().filter(|(_, at)| at.is_open);
        let rooms = open.filter_map(|(place, at)| {
            let depot = self.depots.get(&at.depot)?;
            let most = match depot.link.flights > 0 {
                true => self.settings.deliver_flights_fed,
                false => self.settings.deliver_flights_max,
            };
            let under_way = self.pushes.to(at.depot, None).count();
            let under_way = u32::try_from(under_way).unwrap_or(u32::MAX);
            let chunk = request.spec.chunk_size.get().max(1);
            let space = self.space_to_deliver(id, request, at.lane);
            let space = u32::try_from(space.get() / chunk).unwrap_or(u32::MAX);
            Some((place, most.saturating_sub(under_way).min(space.max(1))))
        });
        rooms.filter(|(_, room)| *room > 0).collect()
    }

    /// Returns depots and destinations as one chunk sees them.
    fn spots(
        &self,
        request: &Request,
        id: RequestId,
        perches: &[Perch],
        chunk: ChunkIndex,
    ) -> Vec<Spot> {
        let spot = |at: &Perch| {
            let held = request.replica.fragment_at(at.lane, chunk);
            let is_coming = self.pushes.get(at.depot, id, chunk).is_some()
                || self.transfers.get(at.depot, id, chunk).is_some();
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
}

/// Fragments asked for beyond those a chunk needs.
const RESERVE: usize = 1;

/// Returns whether the chunk may be taken: making it safe comes first, as long as the source is
/// there.
fn is_ripe(request: &Request, chunk: ChunkIndex) -> bool {
    !request.is_moving() || request.replica.lost(chunk) == 0
}

fn share(request: &Request, chunk: ChunkIndex, piece: Piece) -> Bytes {
    let fragment = match piece {
        Piece::Whole => FragmentIndex::WHOLE,
        Piece::Fragment(fragment) => FragmentIndex::new(fragment),
    };
    request.replica.bytes_of(chunk, fragment)
}

/// Returns the command to the hands: a chunk goes on from where it lies whole, or is gathered from
/// fragments.
fn command(key: FlightKey, pieces: &[(DepotId, Piece)]) -> Command {
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
