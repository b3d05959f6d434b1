//! Lets depots take a fragment from another while that one still receives it.

use alloc::{collections::BTreeSet, vec};
use posthaste_plan::push::{self};
use posthaste_types::{ChunkIndex, FragmentIndex, RequestId};

use crate::{
    apply, decide,
    decide::push::follow::is_all_sent,
    decide::push::{Pass, Sight},
    state::{FlightKey, Forwarded, Push, State},
};

/// Fills idle paths with fragments still on their way to their sender, after a pass over what
/// lies at depots. Only looks at flights to depots that could send them on.
pub(crate) fn follow_over(
    state: &mut State,
    id: RequestId,
    sights: &[Sight],
    push: &mut Push,
    pass: &mut Pass,
) {
    // Fragments that were not looked at yet may go over any of the paths.
    if pass.is_cut_short {
        return;
    }
    let mut idle: BTreeSet<(usize, usize)> = pass.ways.keys().copied().collect();
    idle.retain(|&(from, to)| decide::push::follow::is_idle(state, &sights[from], &sights[to]));
    let givers: BTreeSet<usize> = idle.iter().map(|(from, _)| *from).collect();
    let coming = givers.into_iter().flat_map(|from| {
        let sent = state.transfers.to(sights[from].depot, Some(id));
        sent.map(|(key, _)| key.chunk)
    });
    let coming: BTreeSet<ChunkIndex> = coming.collect();
    for chunk in coming {
        while !idle.is_empty() && follow_one(state, id, sights, chunk, &mut idle, push, pass) {}
    }
}

/// Lets one fragment of a chunk go on over an idle path. Returns whether one could.
fn follow_one(
    state: &mut State,
    id: RequestId,
    sights: &[Sight],
    chunk: ChunkIndex,
    idle: &mut BTreeSet<(usize, usize)>,
    push: &mut Push,
    pass: &mut Pass,
) -> bool {
    let request = state.requests.get(&id);
    let Some(request) = request.filter(|request| is_all_sent(request, chunk)) else {
        return false;
    };
    let stands = decide::push::follow::stands_with_arrivals(state, request, id, sights, chunk);
    let Some(way) = push::follow(&stands, |from, to| idle.contains(&(from, to))) else {
        return false;
    };
    let bytes = request.replica.bytes_of(chunk, decide::push::FIRST);
    let (from, to) = (&sights[way.from], &sights[way.to]);
    let key = FlightKey {
        depot: to.depot,
        request: id,
        chunk,
    };
    let flight = Forwarded {
        givers: vec![from.depot],
        fragment: FragmentIndex::new(way.fragment),
        bytes,
        share: bytes,
        is_blamed: false,
        is_piece: false,
        is_following: true,
        is_mend: false,
        since: state.now,
    };
    apply::delivery::begin_flight_between(state, to.lane, key, flight.clone());
    push.flying += 1;
    pass.started.push((to.lane, from.depot, key, flight));
    // No second one of the chunk should go there.
    apply::stripes::refresh_stripe(state, id, chunk);
    idle.remove(&(way.from, way.to));
    // The space may have been for one alone.
    idle.retain(|&(from, to)| {
        to != way.to || decide::push::room(state, &sights[from], &sights[to], bytes).is_some()
    });
    true
}
