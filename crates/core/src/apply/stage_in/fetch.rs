//! Asks sources for chunks.

use posthaste_types::{RequestId, SourceId};

use crate::{
    apply,
    contract::{ArrivalState, Command, Happening, Outbox, Reason},
    decide,
    decide::stage_in::fetch::Pick,
    state::{Arrival, Fetch, Flight, State},
};

/// Asks for chunks as long as a source has room and a stage-in wants something of it.
pub(crate) fn fetch(state: &mut State, out: &mut Outbox) {
    let moves = |arrival: &Arrival| arrival.may_read() || arrival.is_whole();
    let order = state.arrivals.in_turn_of(moves);
    for &id in &order {
        apply::stage_in::ending::land_if_whole(state, id, out);
    }
    for (source, order) in decide::stage_in::fetch::wanting(state, &order) {
        while let Some(pick) = decide::stage_in::fetch::pick(state, source, &order) {
            start_fetch(state, source, &pick, out);
        }
        apply::stage_in::near::prestage(state, source, &order, out);
    }
}

fn start_fetch(state: &mut State, source: SourceId, pick: &Pick, out: &mut Outbox) {
    let now = state.now;
    let begun = begin_arrival(state, pick.request, out);
    let key = Fetch {
        chunk: pick.chunk,
        source,
    };
    apply::stage_in::budget::pay_for(state, pick.request, key, None, pick.is_duplicate);
    let arrivals = &mut state.arrivals;
    let (Some(arrival), Some(from)) = (
        arrivals.requests.get_mut(&pick.request),
        arrivals.sources.get_mut(&source),
    ) else {
        return;
    };
    let bytes = arrival.chunk_bytes(pick.chunk.get());
    let flight = Flight::of_chunk(bytes, now);
    from.link.begin_flight(now, &flight);
    if !pick.is_duplicate {
        arrival.take_open(pick.chunk);
    }
    let before = arrival.fetches.insert(key, flight);
    debug_assert!(before.is_none(), "a source is asked for a chunk once");
    if let Some(lane) = arrival.lane_mut(source) {
        lane.in_flight += 1;
    }
    arrival.pace(now, bytes);
    let reason = match (pick.is_duplicate, begun) {
        (true, _) => Reason::Endgame,
        (false, Some(reason)) => reason,
        (false, None) => Reason::ArrivesFirst,
    };
    arrival.duplicates += u32::from(pick.is_duplicate);
    out.commands.push(Command::Fetch {
        request: pick.request,
        source,
        chunk: pick.chunk,
        reason,
    });
}

/// Reports that a stage-in begins and why now, when it does.
fn begin_arrival(state: &mut State, id: RequestId, out: &mut Outbox) -> Option<Reason> {
    let now = state.now;
    let arrival = state.arrivals.requests.get_mut(&id)?;
    if arrival.state != ArrivalState::Waiting {
        return None;
    }
    arrival.state = ArrivalState::Moving;
    arrival.begun_at = Some(now);
    let deadline = arrival.spec.deadline;
    let reason = match arrival.spec.not_before {
        Some(at) if at > now => Reason::MustBegin { deadline },
        Some(not_before) => Reason::MayArrive { not_before },
        None => Reason::NothingMoreUrgent,
    };
    apply::tell::tell(
        state,
        out,
        Some(id),
        None,
        Happening::Fetching,
        reason.clone(),
    );
    Some(reason)
}
