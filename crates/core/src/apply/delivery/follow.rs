//! Lets destinations take what the centre sends to others, as it arrives.

use alloc::{collections::BTreeSet, vec};
use posthaste_plan::deliver;
use posthaste_types::{ChunkIndex, FragmentIndex, RequestId};

use crate::{
    apply,
    contract::{Happening, Outbox, Reason},
    decide,
    decide::delivery::Perch,
    state::{FlightKey, Forwarded, State},
};

/// Lets destinations that the centre does not feed take what it sends to others, as it arrives.
/// Returns whether anything began.
pub(crate) fn deliver_following(state: &mut State, id: RequestId, out: &mut Outbox) -> bool {
    let Some(request) = state.requests.get(&id).filter(|request| {
        request.is_kept()
            && !request.is_paused()
            && request.delivery.is_some()
            && request.whole_lanes().count_ones() > 1
    }) else {
        return false;
    };
    let follows = |lane: usize| {
        let depot = state.depots.get(&request.lanes[lane].depot);
        depot.is_some_and(|depot| depot.follows && depot.link.flights > 0)
    };
    if !request.destinations().any(follows) {
        return false;
    }
    let perches = decide::delivery::perches(state, id, request);
    let rooms = decide::delivery::rooms(state, id, request, &perches);
    let mut idle: BTreeSet<(usize, usize)> = BTreeSet::new();
    for &to in rooms.keys() {
        let from = perches.iter().enumerate();
        let from =
            from.filter(|(_, at)| decide::delivery::follow::could_follow(state, at, &perches[to]));
        idle.extend(from.map(|(from, _)| (from, to)));
    }
    let givers: BTreeSet<usize> = idle.iter().map(|(from, _)| *from).collect();
    let coming = givers.into_iter().flat_map(|from| {
        let sent = state.transfers.to(perches[from].depot, Some(id));
        sent.map(|(key, _)| key.chunk)
    });
    let coming: BTreeSet<ChunkIndex> = coming.collect();
    let mut has_begun = false;
    for chunk in coming {
        has_begun |= follow_chunk(state, id, &perches, chunk, &mut idle, out);
    }
    has_begun
}

fn follow_chunk(
    state: &mut State,
    id: RequestId,
    perches: &[Perch],
    chunk: ChunkIndex,
    idle: &mut BTreeSet<(usize, usize)>,
    out: &mut Outbox,
) -> bool {
    let Some(request) = state.requests.get(&id) else {
        return false;
    };
    if !decide::push::follow::is_all_sent(request, chunk) {
        return false;
    }
    let mut spots = decide::delivery::spots(state, request, id, perches, chunk);
    for (spot, at) in spots.iter_mut().zip(perches) {
        let sent = state.transfers.get(at.depot, id, chunk);
        spot.arrives = sent.is_some_and(|flight| flight.fragment == FragmentIndex::WHOLE);
    }
    let Some((from, to)) = deliver::follow(&spots, |from, to| idle.contains(&(from, to))) else {
        return false;
    };
    // One at a time to each: its outcome is not known.
    idle.retain(|(_, other)| *other != to);
    let (from, to) = (perches[from].depot, &perches[to]);
    let bytes = request.replica.bytes_of(chunk, FragmentIndex::WHOLE);
    let flight = Forwarded {
        givers: vec![from],
        fragment: FragmentIndex::WHOLE,
        bytes,
        share: bytes,
        is_blamed: false,
        is_piece: false,
        is_following: true,
        is_mend: false,
        since: state.now,
    };
    let key = FlightKey {
        depot: to.depot,
        request: id,
        chunk,
    };
    let lane = to.lane;
    apply::delivery::begin_flight_between(state, lane, key, flight.clone());
    // No second one of the chunk should go there.
    apply::stripes::refresh_stripe(state, id, chunk);
    let mut is_said = true;
    if let Some(request) = state.requests.get_mut(&id)
        && let Some(delivery) = &mut request.delivery
    {
        delivery.flying += 1;
        is_said = delivery.said >> lane & 1 == 1;
        delivery.said |= 1 << lane;
    }
    let reason = Reason::GoesOnAsItComes;
    if !is_said {
        let to = Some(key.depot);
        apply::tell::tell(
            state,
            out,
            Some(id),
            to,
            Happening::Delivering,
            reason.clone(),
        );
    }
    out.commands
        .push(decide::push::follow::command(from, key, &flight, reason));
    true
}
