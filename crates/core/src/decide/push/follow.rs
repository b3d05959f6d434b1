//! Sends fragments on while they still arrive from the centre, if nothing else goes that way.

use alloc::vec::Vec;
use posthaste_plan::push::Stand;
use posthaste_types::{ChunkIndex, DepotId, FragmentIndex, RequestId};

use crate::{
    contract::{Command, Reason},
    decide,
    decide::push::Sight,
    state::{FlightKey, Forwarded, Request, State},
};

/// Returns whether one depot can send on what it still receives, and nothing goes to the other
/// from there.
pub(crate) fn is_idle(state: &State, from: &Sight, to: &Sight) -> bool {
    let follows = |depot: DepotId| state.depots.get(&depot).is_some_and(|depot| depot.follows);
    follows(from.depot) && state.pushes.is_idle(from.depot, to.depot)
}

pub(crate) fn stands_with_arrivals(
    state: &State,
    request: &Request,
    id: RequestId,
    sights: &[Sight],
    chunk: ChunkIndex,
) -> Vec<Stand> {
    let mut stands = decide::push::stands(state, request, id, sights, chunk);
    for (stand, at) in stands.iter_mut().zip(sights) {
        let sent = state.transfers.get(at.depot, id, chunk);
        let sent =
            sent.filter(|flight| !flight.is_scattered && flight.fragment != FragmentIndex::WHOLE);
        stand.arrives = sent.map(|flight| flight.fragment.get());
    }
    stands
}

/// Returns whether nothing of the chunk is left to be sent from the centre. Making it safe comes
/// first, and a copy of a flight takes no place that a fragment could need.
pub(crate) fn is_all_sent(request: &Request, chunk: ChunkIndex) -> bool {
    let mut whole = request.destinations();
    let is_there = whole.any(|lane| request.replica.counts(lane, chunk));
    let is_sent = request
        .stripes
        .get(&chunk)
        .is_some_and(|stripe| stripe.wanted == 0);
    !is_there && is_sent
}

/// Returns the command to the hands for a fragment that goes from one depot to another.
pub(crate) fn command(
    from: DepotId,
    key: FlightKey,
    flight: &Forwarded,
    reason: Reason,
) -> Command {
    let (request, to, chunk) = (key.request, key.depot, key.chunk);
    let fragment = flight.fragment;
    match flight.is_following {
        true => Command::Follow {
            request,
            from,
            to,
            chunk,
            fragment,
            reason,
        },
        false => Command::Forward {
            request,
            from,
            to,
            chunk,
            fragment,
            reason,
        },
    }
}
