//! Makes lost fragments again from others.

use alloc::{boxed::Box, vec::Vec};
use posthaste_plan::deliver::{self, Deliver};
use posthaste_types::{ChunkIndex, DepotId, FragmentIndex, RequestId};

use crate::{
    apply,
    contract::{Command, Outbox, Reason},
    decide,
    decide::repair::{Bench, FIRST, LOOKS_MAX, OPENED_MAX, RESERVE, Rooms, held, is_mended},
    state::completion::SLICE_PAUSE,
    state::{FlightKey, Forwarded, Push, Request, State},
};

/// Begins the repair of a request whose source is gone, or of chunks that the source can't give
/// any more.
pub(crate) fn begin_mend(state: &mut State, id: RequestId) {
    let lacks = |request: &Request| {
        is_mended(request) && request.mend.is_none() && !request.replica.is_safe()
    };
    if state.requests.get(&id).is_some_and(lacks)
        && let Some(request) = state.requests.get_mut(&id)
    {
        request.mend = Some(Box::new(Push::new(request.replica.chunks(), 0)));
        state.pushes.offer(id);
    }
}

/// Offers a chunk of which something was stored, or failed: it may be rebuilt from there.
pub(crate) fn offer_mend(state: &mut State, id: RequestId, chunk: ChunkIndex) {
    let lacks = |request: &Request| request.replica.lacking(chunk) != 0;
    if state
        .requests
        .get(&id)
        .is_some_and(|of| of.mend.is_some() && lacks(of))
        && let Some(request) = state.requests.get_mut(&id)
        && let Some(mend) = &mut request.mend
    {
        mend.offer(chunk);
        state.pushes.offer(id);
    }
}

/// Starts what can be rebuilt of a request now. Returns whether anything started.
pub(crate) fn mend_for(state: &mut State, id: RequestId, out: &mut Outbox) -> bool {
    let has_work = |request: &Request| {
        is_mended(request) && request.mend.as_deref().is_some_and(Push::has_work)
    };
    let Some(request) = state.requests.get(&id).filter(|of| has_work(of)) else {
        return false;
    };
    let benches = decide::repair::benches(state, request);
    let mut rooms = decide::repair::bench_rooms(state, &benches);
    if rooms.is_empty() {
        return false;
    }
    let Some(mut mend) = state
        .requests
        .get_mut(&id)
        .and_then(|request| request.mend.take())
    else {
        return false;
    };
    let before = out.commands.len();
    mend_over(state, id, &benches, &mut rooms, &mut mend, out);
    if let Some(request) = state.requests.get_mut(&id) {
        request.mend = Some(mend);
    }
    out.commands.len() > before
}

fn mend_over(
    state: &mut State,
    id: RequestId,
    benches: &[Bench],
    rooms: &mut Rooms,
    mend: &mut Push,
    out: &mut Outbox,
) {
    mend.begin(state.now);
    for (rank, chunk) in mend.opened().into_iter().take(OPENED_MAX) {
        if rooms.is_empty() {
            return;
        }
        mend.close(chunk, rank);
        mend_chunk(state, id, benches, chunk, (&mut *mend, &mut *rooms), out);
    }
    for _ in 0..LOOKS_MAX {
        if rooms.is_empty() {
            return;
        }
        let Some(chunk) = mend.next() else {
            return;
        };
        mend_chunk(state, id, benches, chunk, (&mut *mend, &mut *rooms), out);
    }
    if mend.has_todo() {
        state.pushes.offer(id);
        state.pushes.more_at = Some(state.now + SLICE_PAUSE);
    }
}

/// Starts what can start of a chunk, and files it by what it waits for.
fn mend_chunk(
    state: &mut State,
    id: RequestId,
    benches: &[Bench],
    chunk: u32,
    (mend, rooms): (&mut Push, &mut Rooms),
    out: &mut Outbox,
) {
    let index = ChunkIndex::new(chunk);
    loop {
        let Some(request) = state.requests.get(&id) else {
            return;
        };
        if request.is_moving() && !request.replica.is_left(index) {
            return;
        }
        let Some(fragment) = decide::repair::lost_of(state, request, id, benches, index) else {
            return;
        };
        let spots = decide::repair::mend_spots(state, request, id, benches, index, fragment);
        let bytes = request.replica.bytes_of(index, FIRST);
        let micros = |from: usize, to: usize| {
            let (now, settings) = (state.now, &state.settings);
            let (giver, taker) = (benches[from].depot, benches[to].depot);
            let has_room = from != to
                && rooms.contains_key(&to)
                && state.pushes.room(giver, taker, bytes, now, settings) == Some(true);
            has_room.then(|| decide::delivery::micros_between(state, giver, taker, bytes))
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
                    since: state.now,
                };
                let depot = benches[to].depot;
                let key = FlightKey {
                    depot,
                    request: id,
                    chunk: index,
                };
                apply::delivery::begin_flight_between(state, benches[to].lane, key, flight);
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
