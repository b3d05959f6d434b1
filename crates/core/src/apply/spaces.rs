//! Asks depots to keep space for requests, and gives it back.

use alloc::{string::String, vec::Vec};
use posthaste_types::{Bytes, DepotId, RequestId, Timestamp};

use crate::{
    contract::{Command, Outbox, Reason, SpaceNews, SpaceReason},
    state,
    state::space_left::{
        AHEAD, ANSWER_WAIT, ASK_AGAIN, AWAY, BEYOND, DIFFERS_FROM, DOUBLINGS_MAX, KEEP,
        KEPT_AT_ONCE, PROLONG_AT, RETURNS_MAX, give_back, space_wish,
    },
    state::{Depot, Request, State},
};

/// Records whether a depot can keep space for datasets.
pub(crate) fn on_depot_reserves(state: &mut State, depot: DepotId, reserves: bool) {
    if state.depots.contains_key(&depot) && state.spaces.is_able(depot) != reserves {
        state.spaces.set_able(depot, reserves);
    }
}

/// Asks depots to keep what the last look counted on storing there, if that is new or has
/// changed much.
pub(crate) fn review_space(state: &mut State, id: RequestId, out: &mut Outbox) {
    if state.spaces.is_idle() {
        return;
    }
    let Some(request) = state
        .requests
        .get(&id)
        .filter(|request| request.is_under_way())
    else {
        return;
    };
    let finish = request.finish.map_or(state.now, |finish| finish.p90);
    let until = finish.max(request.spec.deadline).max(state.now);
    let until = until.min(state.now + AHEAD) + BEYOND;
    let wishes: Vec<(DepotId, Bytes)> = (0..request.lanes.len())
        .map(|place| (request.lanes[place].depot, space_wish(request, place)))
        .filter(|(depot, _)| state.spaces.is_able(*depot))
        .collect();
    for (depot, wish) in wishes {
        ask_for_space(state, depot, id, wish, until, out);
    }
}

fn ask_for_space(
    state: &mut State,
    at: DepotId,
    id: RequestId,
    wish: Bytes,
    until: Timestamp,
    out: &mut Outbox,
) {
    let now = state.now;
    let known = state.spaces.get(at, id).copied();
    let is_new = known.is_none();
    let is_one_too_many = is_new && state.spaces.count_at(at) >= KEPT_AT_ONCE;
    if (is_new && wish == Bytes::ZERO)
        || is_one_too_many
        || !state.depots.get(&at).is_some_and(Depot::is_up)
    {
        return;
    }
    let space = known.unwrap_or_default();
    let wish = space.most.map_or(wish, |most| wish.min(most));
    let (more, less) = (wish - space.held, space.held - wish);
    let differs = more.max(less).times(DIFFERS_FROM) >= space.held.max(Bytes::new(1));
    let lapses = wish > Bytes::ZERO && space.until < now + PROLONG_AT;
    let is_early = less > Bytes::ZERO && now < space.shrinks_at;
    if space.due > now || !(lapses || (differs && !is_early)) {
        return;
    }
    state.spaces.change(at, id, |space| {
        (space.asked, space.due, space.is_ending) = (Some(wish), now + ANSWER_WAIT, false);
    });
    out.commands.push(if wish == Bytes::ZERO {
        give_back(id, at)
    } else {
        let why = SpaceReason::Needed { bytes: wish };
        Command::ReserveSpace {
            request: id,
            depot: at,
            bytes: wish,
            until,
            reason: Reason::Space { why },
        }
    });
}

/// Handles the answer about space that was asked for or given back.
pub(crate) fn on_space_told(state: &mut State, id: RequestId, at: DepotId, news: SpaceNews) {
    let now = state.now;
    let known = state.spaces.get(at, id).copied();
    let is_moving = state.requests.get(&id).is_some_and(Request::is_under_way);
    if !state.depots.contains_key(&at) {
        return;
    }
    match news {
        SpaceNews::Released => state.spaces.remove(at, id),
        SpaceNews::Granted { bytes, until } => {
            state.spaces.change(at, id, |space| {
                (space.held, space.until, space.asked) = (bytes, until, None);
                (space.most, space.is_refused, space.failures) = (None, false, 0);
                (space.due, space.shrinks_at) = (now, now + KEEP);
                space.is_ending = !is_moving;
            });
            if known.is_none_or(|known| known.held == Bytes::ZERO) && is_moving {
                let what = String::from("space is reserved");
                remember_space(state, id, at, what, SpaceReason::Needed { bytes });
            }
        }
        SpaceNews::Refused { most } => on_space_refused(state, id, at, most),
        SpaceNews::Failed if known.is_some() => state.spaces.change(at, id, |space| {
            space.failures += u32::from(!space.is_ending);
            let pause = ASK_AGAIN * (1 << space.failures.min(DOUBLINGS_MAX));
            (space.asked, space.due) = (None, now + pause);
        }),
        SpaceNews::Failed => {}
    }
    state.requests.touch(id);
}

/// Handles a refusal, as others have the missing space: plans count on no more from now on.
fn on_space_refused(state: &mut State, id: RequestId, at: DepotId, most: Bytes) {
    let now = state.now;
    let Some(known) = state.spaces.get(at, id).copied() else {
        return;
    };
    let spare = state::space_left::spare_at(state, at) - state::space_left::spare_of(state, id, at);
    let stored = state::space_left::stored_at(state, id, at);
    if let Some(depot) = state.depots.get_mut(&at) {
        depot.free = depot.free.min(spare + (most - stored));
    }
    state.spaces.change(at, id, |space| {
        (space.asked, space.most) = (None, Some(most));
        (space.due, space.is_refused) = (now + ASK_AGAIN, true);
    });
    if let Some(wanted) = known.asked.filter(|_| !known.is_refused) {
        let what = String::from("space is refused");
        remember_space(state, id, at, what, SpaceReason::Refused { wanted, most });
    }
    state::wake::look_now(state);
}

fn remember_space(state: &mut State, id: RequestId, at: DepotId, what: String, why: SpaceReason) {
    let name = state::names::name_of(state, at);
    state::memory::remember_of(state, id, name, 1, what, Reason::Space { why });
}

/// Ends the space of a request that does not move, or waits, beyond what is stored.
pub(crate) fn end_space(state: &mut State, id: RequestId) {
    if state.spaces.is_idle() {
        return;
    }
    let Some(request) = state
        .requests
        .get(&id)
        .filter(|request| !request.is_under_way())
    else {
        return;
    };
    let now = state.now;
    for lane in &request.lanes {
        let space = state.spaces.get(lane.depot, id);
        if let Some(space) = space.filter(|space| !space.is_ending) {
            let due = if space.asked.is_some() {
                space.due
            } else {
                now
            };
            state.spaces.change(lane.depot, id, |space| {
                (space.is_ending, space.due, space.failures) = (true, due, 0);
            });
        }
    }
}

/// Gives back space no longer needed.
pub(crate) fn give_back_space(state: &mut State, out: &mut Outbox) {
    let now = state.now;
    let next = |mind: &State| mind.spaces.next_ending().filter(|(due, _)| *due <= now);
    while let Some((_, (id, at))) = next(state) {
        let Some(space) = state.spaces.get(at, id).copied() else {
            return;
        };
        let is_up = state.depots.get(&at).is_some_and(Depot::is_up);
        if space.until <= now || space.failures >= RETURNS_MAX {
            state.spaces.remove(at, id);
        } else if is_up {
            state.spaces.change(at, id, |space| {
                (space.asked, space.due) = (Some(Bytes::ZERO), now + ANSWER_WAIT);
                space.failures += 1;
            });
            out.commands.push(give_back(id, at));
        } else {
            state.spaces.change(at, id, |space| space.due = now + AWAY);
        }
    }
}

/// Asks depots again about space, as the outcome of earlier requests is unknown.
pub(crate) fn ask_for_space_again(state: &mut State) {
    let now = state.now;
    for (depot, request) in state.spaces.all() {
        state.spaces.change(depot, request, |space| {
            (space.asked, space.due, space.failures) = (None, now, 0);
        });
    }
}

/// Marks the space kept by a depot that was gone as unknown.
pub(crate) fn doubt_space(state: &mut State, at: DepotId) {
    let now = state.now;
    let all: Vec<RequestId> = state.spaces.at(at).map(|(request, _)| request).collect();
    for request in all {
        state.spaces.change(at, request, |space| {
            (space.held, space.asked) = (Bytes::ZERO, None);
            (space.due, space.failures) = (now, 0);
        });
        state.requests.touch(request);
    }
}

/// Lets requests ask again after a depot reports its free space: what it refused may fit now.
pub(crate) fn reconsider_space(state: &mut State, at: DepotId) {
    let refused = state
        .spaces
        .at(at)
        .filter(|(_, space)| space.most.is_some());
    let refused: Vec<RequestId> = refused.map(|(request, _)| request).collect();
    for request in refused {
        state.spaces.change(at, request, |space| space.most = None);
    }
}
