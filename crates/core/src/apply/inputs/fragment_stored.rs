use posthaste_types::{ChunkIndex, DepotId, FragmentIndex, RequestId};

use crate::{
    apply,
    contract::Outbox,
    state::{FlightKey, State, Stored},
};

/// Handles a fragment that a depot stored, its digest checked.
pub(crate) fn on_fragment_stored(
    state: &mut State,
    id: RequestId,
    depot: DepotId,
    chunk: ChunkIndex,
    fragment: FragmentIndex,
    out: &mut Outbox,
) {
    let key = FlightKey {
        depot,
        request: id,
        chunk,
    };
    let pushed = apply::flights::land_push(state, key, fragment);
    let flight = apply::flights::land(state, key, fragment);
    let now = state.now;
    let Some(request) = state.requests.get_mut(&id) else {
        return;
    };
    let Some(at) = state.depots.get_mut(&depot) else {
        return;
    };
    let lane = request.lane_of(depot).filter(|&lane| {
        // A depot that is down, or was and is being asked what it holds, reports the rest
        // itself.
        let is_asked = request.lanes[lane].asked_at.is_some();
        at.is_up() && (!is_asked || request.replica.is_live(lane))
    });
    let Some(lane) = lane.filter(|&lane| request.replica.accepts(lane, chunk, fragment)) else {
        return;
    };
    request.note_stored(lane, chunk, fragment);
    if let Some(pushed) = pushed {
        // This shows nothing about the path from the centre.
        at.free -= pushed.bytes;
        if pushed.is_piece {
            state
                .shares
                .charge(request.wishes.claim(), pushed.bytes, now, &state.settings);
        }
        // With several senders, each was reported before.
        if let [from] = pushed.givers[..] {
            let span = now.since(pushed.since);
            // The duration of a coded piece was reported before. A followed fragment was no
            // faster than its leader.
            if !span.is_zero() && !pushed.is_piece && !pushed.is_following {
                let beside = state.pushes.flights(from, depot) + 1;
                let taken = (pushed.share, span, beside);
                state
                    .crossings
                    .observe(from, depot, taken, now, &state.settings);
            }
            state.pushes.succeed(from, depot, now);
        }
    } else {
        (at.failures, at.fruitless) = (0, 0);
        at.link.progress_at = now;
    }
    if flight.is_some_and(|flight| flight.is_scattered) {
        state.pushes.has_coded(depot);
    }
    if let Some(flight) = flight {
        let bytes = request.replica.bytes_of(chunk, fragment);
        state
            .shares
            .charge(request.wishes.claim(), bytes, now, &state.settings);
        at.free -= bytes;
        let lane = &mut request.lanes[lane];
        if let Some(tuning) = &mut lane.tuning {
            tuning.on_stored(now, flight.since, lane.in_flight + 1, flight.bytes);
        }
    }
    match request.replica.store(lane, chunk, fragment) {
        Stored::Known | Stored::More => apply::stripes::refresh_stripe(state, id, chunk),
        Stored::Complete { repaired } => {
            request.uncommon.repaired += u32::from(repaired);
            request.stripes.remove(&chunk);
            apply::settle::settle(state, id, out);
        }
    }
    apply::push::offers::offer_push(state, id, chunk);
    if fragment == FragmentIndex::WHOLE {
        apply::settle::deliver_if_there(state, id, out);
    }
}
