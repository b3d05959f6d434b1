//! Sends fragments on between depots.

pub(crate) mod failures;
pub(crate) mod follow;
pub(crate) mod offers;

use alloc::{collections::BTreeSet, vec};
use posthaste_plan::push::{self, Push as Next};
use posthaste_types::{ChunkIndex, FragmentIndex, RequestId};

use crate::{
    apply,
    contract::{Fault, Happening, Outbox, Reason},
    decide,
    decide::push::{
        FIRST, LOOKS_MAX, MISSES_MAX, PIECE_STALLS, Pass, Sight, is_full, is_ripe, why_all_pushed,
    },
    state::completion::SLICE_PAUSE,
    state::{FlightKey, Forwarded, Push, State},
};

/// Sends fragments on, the most urgent request first.
///
/// Only requests with new offers are looked at, and those that wait for a depot about which
/// something changed.
pub(crate) fn push_on(state: &mut State, out: &mut Outbox) {
    state.pushes.more_at = None;
    let offered = state.pushes.take_offered();
    // Requests with a deliver-by get room before others.
    let (first, then) = match state.index.due().is_empty() {
        true => (offered, BTreeSet::new()),
        false => (BTreeSet::new(), offered),
    };
    push_offered(state, first, out);
    push_touched(state, out);
    push_offered(state, then, out);
}

fn push_offered(state: &mut State, offered: BTreeSet<RequestId>, out: &mut Outbox) {
    for id in offered {
        apply::repair::mend_for(state, id, out);
        push_for(state, id, out);
        apply::delivery::deliver_for(state, id, out);
        apply::delivery::follow::deliver_following(state, id, out);
    }
}

fn push_touched(state: &mut State, out: &mut Outbox) {
    if !state.pushes.has_touched() {
        return;
    }
    apply::reindex::bring_up_to_date(state);
    for to in state.pushes.take_touched() {
        let (mut after, mut misses) = (None, 0);
        while misses < MISSES_MAX
            && let Some(urgency) = state.index.next_push(to, after)
        {
            after = Some(urgency);
            let has_moved = apply::repair::mend_for(state, urgency.request, out);
            let has_moved = push_for(state, urgency.request, out) || has_moved;
            let has_moved = apply::delivery::deliver_for(state, urgency.request, out) || has_moved;
            let has_moved = apply::delivery::follow::deliver_following(state, urgency.request, out)
                || has_moved;
            misses = if has_moved { 0 } else { misses + 1 };
        }
    }
    apply::reindex::bring_up_to_date(state);
}

/// Tries everything once a tick: pairs at rest, depots that were fed.
pub(crate) fn review_pushes(state: &mut State, out: &mut Outbox) {
    let settings = &state.settings;
    let (stalled_since, failed_since) = (
        state.now - settings.push_wait,
        state.now - settings.hold_max,
    );
    // A coding depot must receive the chunk before it sends anything on.
    let pieces_since = state.now - settings.stall * PIECE_STALLS;
    for (id, from, to) in state.pushes.stalled(stalled_since, pieces_since) {
        apply::push::failures::back_off(state, from, to);
        let fault = Fault::Unreachable;
        apply::push::failures::abandon_pushes(state, id, to, &Reason::DepotLost { fault }, out);
    }
    state.pushes.forget_failures(failed_since);
    for to in state.index.push_targets() {
        state.pushes.touch(to);
    }
}

/// Starts what can start for a request. Returns whether anything did.
fn push_for(state: &mut State, id: RequestId, out: &mut Outbox) -> bool {
    let Some(request) = state.requests.get(&id).filter(|request| request.is_kept()) else {
        return false;
    };
    if request.push.is_none() || request.is_paused() {
        return false;
    }
    let sights = decide::push::sights(state, request);
    let Some(mut push) = state
        .requests
        .get_mut(&id)
        .and_then(|request| request.push.take())
    else {
        return false;
    };
    let mut pass = pass_over(state, id, &sights, &mut push);
    apply::push::follow::follow_over(state, id, &sights, &mut push, &mut pass);
    if pass.is_cut_short {
        state.pushes.offer(id);
        state.pushes.more_at = Some(state.now + SLICE_PAUSE);
    }
    let has_started = !pass.started.is_empty();
    let mut said = push.said;
    for (lane, from, key, flight) in pass.started {
        let reason = match flight.is_following {
            true => Reason::GoesOnAsItComes,
            false => decide::push::why_pushed(state, &sights, from, key.depot),
        };
        if said >> lane & 1 == 0 {
            said |= 1 << lane;
            let to = Some(key.depot);
            apply::tell::tell(state, out, Some(id), to, Happening::Pushing, reason.clone());
        }
        out.commands
            .push(decide::push::follow::command(from, key, &flight, reason));
    }
    push.said = said;
    push.is_said_done &= !has_started;
    let is_safe = state
        .requests
        .get(&id)
        .is_some_and(|request| request.replica.is_safe());
    if is_safe && push.is_done() && push.said != 0 && !push.is_said_done {
        push.is_said_done = true;
        let reason = why_all_pushed(&sights);
        apply::tell::tell(state, out, Some(id), None, Happening::Pushed, reason);
    }
    if let Some(request) = state.requests.get_mut(&id) {
        request.push = Some(push);
    }
    has_started
}

fn pass_over(state: &mut State, id: RequestId, sights: &[Sight], push: &mut Push) -> Pass {
    let mut pass = Pass {
        ways: decide::push::ways(state, id, sights),
        ..Pass::default()
    };
    push.begin(state.now);
    for (nearer, chunk) in push.opened() {
        if is_full(&pass.ways) {
            return pass;
        }
        if decide::push::could_go(state, id, sights, &pass.ways, chunk) {
            push.close(chunk, nearer);
            look_at_chunk(state, id, sights, chunk, push, &mut pass);
        }
    }
    for _ in 0..LOOKS_MAX {
        if is_full(&pass.ways) {
            return pass;
        }
        let Some(chunk) = push.next() else {
            return pass;
        };
        look_at_chunk(state, id, sights, chunk, push, &mut pass);
    }
    pass.is_cut_short = push.has_todo();
    pass
}

/// Starts what can start of a chunk, and files it by what it waits for.
fn look_at_chunk(
    state: &mut State,
    id: RequestId,
    sights: &[Sight],
    chunk: u32,
    push: &mut Push,
    pass: &mut Pass,
) {
    let index = ChunkIndex::new(chunk);
    loop {
        let Some(request) = state.requests.get(&id).filter(|of| is_ripe(of, index)) else {
            return;
        };
        let stands = decide::push::stands(state, request, id, sights, index);
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
                    since: state.now,
                };
                apply::delivery::begin_flight_between(state, to.lane, key, flight.clone());
                push.flying += 1;
                pass.started.push((to.lane, from.depot, key, flight));
                match decide::push::room(state, from, to, bytes) {
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
