//! Sends chunks on to destinations.

pub(crate) mod follow;
pub(crate) mod outlook;
pub(crate) mod promise;
pub(crate) mod space;

use alloc::{boxed::Box, vec::Vec};
use posthaste_plan::deliver::{self, Deliver, Piece};
use posthaste_types::{ChunkIndex, DepotId, FragmentIndex, RequestId};

use crate::{
    apply,
    contract::{Command, Happening, Outbox, Reason},
    decide,
    decide::delivery::{
        LOOKS_MAX, OPENED_MAX, Pass, Perch, RESERVE, Rooms, command, is_ripe, share,
    },
    state::completion::SLICE_PAUSE,
    state::{FlightKey, Forwarded, Push, Request, State},
};

/// Begins the delivery of an accepted request: its destinations share what is sent, and take
/// what lies at depots.
pub(crate) fn begin_delivery(state: &mut State, id: RequestId) {
    let Some(request) = state.requests.get(&id) else {
        return;
    };
    let is_wanted = request.lead().is_some() && request.replica.chunks() > 0;
    if is_wanted && let Some(request) = state.requests.get_mut(&id) {
        request.delivery = Some(Box::new(Push::new(request.replica.chunks(), 0)));
        state.pushes.offer(id);
    } else if let Some(request) = state.requests.get_mut(&id)
        && request.lead().is_some()
    {
        // An empty request has nothing to deliver.
        request.due.whole_at = Some(state.now);
    }
}

/// Re-evaluates that for a running request that has a choice.
pub(crate) fn review_lead(state: &mut State, id: RequestId) {
    let Some(request) = state.requests.get(&id) else {
        return;
    };
    let has_choice = request.whole_lanes().count_ones() > 1;
    let is_planned = request
        .lead()
        .is_some_and(|lead| request.lanes[lead].quota.is_some());
    if !has_choice || is_planned {
        return;
    }
    let best = decide::delivery::best_destination(state, request);
    if best != request.lead()
        && let Some(request) = state.requests.get_mut(&id)
        && let Some(best) = best
    {
        request.set_lead(best);
    }
}

/// Offers a chunk of which something was stored: destinations may take it from there.
pub(crate) fn offer_delivery(state: &mut State, id: RequestId, chunk: ChunkIndex) {
    let goes = |request: &Request| request.delivery.is_some() && is_ripe(request, chunk);
    if state.requests.get(&id).is_some_and(goes)
        && let Some(request) = state.requests.get_mut(&id)
        && let Some(delivery) = &mut request.delivery
    {
        delivery.offer(chunk);
        state.pushes.offer(id);
    }
}

/// Starts what destinations of a request can take from others now. Returns whether anything
/// started.
pub(crate) fn deliver_for(state: &mut State, id: RequestId, out: &mut Outbox) -> bool {
    let Some(request) = state.requests.get(&id).filter(|request| request.is_kept()) else {
        return false;
    };
    if request.is_paused() || !request.delivery.as_deref().is_some_and(Push::has_work) {
        return false;
    }
    let perches = decide::delivery::perches(state, id, request);
    let rooms = decide::delivery::rooms(state, id, request, &perches);
    if rooms.is_empty() {
        return false;
    }
    let Some(mut delivery) = state
        .requests
        .get_mut(&id)
        .and_then(|request| request.delivery.take())
    else {
        return false;
    };
    let commands = deliver_over(state, id, &perches, rooms, &mut delivery);
    let has_started = !commands.is_empty();
    let mut said = delivery.said;
    for (lane, command) in commands {
        if said >> lane & 1 == 0 {
            said |= 1 << lane;
            let to = perches.iter().find(|at| at.lane == lane);
            let to = to.map(|at| at.depot);
            apply::tell::tell(
                state,
                out,
                Some(id),
                to,
                Happening::Delivering,
                Reason::HasIt,
            );
        }
        out.commands.push(command);
    }
    delivery.said = said;
    if let Some(request) = state.requests.get_mut(&id) {
        request.delivery = Some(delivery);
    }
    if has_started {
        apply::delivery::space::hold_for_delivery(state, id);
    }
    has_started
}

fn deliver_over(
    state: &mut State,
    id: RequestId,
    perches: &[Perch],
    rooms: Rooms,
    delivery: &mut Push,
) -> Vec<(usize, Command)> {
    let mut pass = Pass {
        rooms,
        commands: Vec::new(),
    };
    delivery.begin(state.now);
    for (rank, chunk) in delivery.opened().into_iter().take(OPENED_MAX) {
        if pass.rooms.is_empty() {
            return pass.commands;
        }
        delivery.close(chunk, rank);
        deliver_chunk(state, id, perches, chunk, delivery, &mut pass);
    }
    for _ in 0..LOOKS_MAX {
        if pass.rooms.is_empty() {
            return pass.commands;
        }
        let Some(chunk) = delivery.next() else {
            return pass.commands;
        };
        deliver_chunk(state, id, perches, chunk, delivery, &mut pass);
    }
    if delivery.has_todo() {
        state.pushes.offer(id);
        state.pushes.more_at = Some(state.now + SLICE_PAUSE);
    }
    pass.commands
}

/// Starts what can start of a chunk, and files it by what it waits for.
fn deliver_chunk(
    state: &mut State,
    id: RequestId,
    perches: &[Perch],
    chunk: u32,
    delivery: &mut Push,
    pass: &mut Pass,
) {
    let index = ChunkIndex::new(chunk);
    loop {
        let Some(request) = state.requests.get(&id).filter(|of| is_ripe(of, index)) else {
            return;
        };
        let spots = decide::delivery::spots(state, request, id, perches, index);
        let data = request.spec.code.data();
        let micros = |from: usize, to: usize| {
            let has_room = pass.rooms.contains_key(&to);
            let share = share(request, index, spots[from].holds?);
            let (from, to) = (perches[from].depot, perches[to].depot);
            let micros = has_room.then(|| decide::delivery::micros(state, from, to, share));
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
                    since: state.now,
                };
                let at = &perches[to];
                let key = FlightKey {
                    depot: at.depot,
                    request: id,
                    chunk: index,
                };
                begin_flight_between(state, at.lane, key, flight);
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

pub(crate) fn begin_flight_between(
    state: &mut State,
    lane: usize,
    key: FlightKey,
    flight: Forwarded,
) {
    if let Some(depot) = state.depots.get_mut(&key.depot) {
        depot.arriving += flight.bytes;
    }
    let cost =
        decide::budget::price_between(state, &flight.givers, key.depot, flight.bytes, flight.share);
    if let Some(request) = state.requests.get_mut(&key.request) {
        request.lanes[lane].is_used = true;
        request.spent_micro_usd = request.spent_micro_usd.saturating_add(cost);
    }
    state.pushes.start(key, flight);
}
