//! Sends fragments on while they still arrive from the centre, if nothing else goes that way.

use alloc::{collections::BTreeSet, vec, vec::Vec};
use posthaste_plan::push::{self, Stand};
use posthaste_types::{ChunkIndex, DepotId, FragmentIndex, RequestId};

use super::{Pass, Sight};
use crate::{
    Mind,
    books::{FlightKey, Forwarded, Push, Request},
    contract::{Command, Reason},
};

impl Mind {
    /// Fills idle paths with fragments still on their way to their sender, after a pass over what
    /// lies at depots. Only looks at flights to depots that could send them on.
    pub(super) fn follow_over(
        &mut self,
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
        idle.retain(|&(from, to)| self.is_idle(&sights[from], &sights[to]));
        let givers: BTreeSet<usize> = idle.iter().map(|(from, _)| *from).collect();
        let coming = givers.into_iter().flat_map(|from| {
            let sent = self.transfers.to(sights[from].depot, Some(id));
            sent.map(|(key, _)| key.chunk)
        });
        let coming: BTreeSet<ChunkIndex> = coming.collect();
        for chunk in coming {
            while !idle.is_empty() && self.follow_one(id, sights, chunk, &mut idle, push, pass) {}
        }
    }

    /// Lets one fragment of a chunk go on over an idle path. Returns whether one could.
    fn follow_one(
        &mut self,
        id: RequestId,
        sights: &[Sight],
        chunk: ChunkIndex,
        idle: &mut BTreeSet<(usize, usize)>,
        push: &mut Push,
        pass: &mut Pass,
    ) -> bool {
        let request = self.requests.get(&id);
        let Some(request) = request.filter(|request| is_all_sent(request, chunk)) else {
            return false;
        };
        let stands = self.stands_with_arrivals(request, id, sights, chunk);
        let Some(way) = push::follow(&stands, |from, to| idle.contains(&(from, to))) else {
            return false;
        };
        let bytes = request.replica.bytes_of(chunk, super::FIRST);
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
            since: self.now,
        };
        self.begin_flight_between(to.lane, key, flight.clone());
        push.flying += 1;
        pass.started.push((to.lane, from.depot, key, flight));
        // No second one of the chunk should go there.
        self.refresh_stripe(id, chunk);
        idle.remove(&(way.from, way.to));
        // The space may have been for one alone.
        idle.retain(|&(from, to)| {
            to != way.to || self.room(&sights[from], &sights[to], bytes).is_some()
        });
        true
    }

    /// Returns whether one depot can send on what it still receives, and nothing goes to the other
    /// from there.
    fn is_idle(&self, from: &Sight, to: &Sight) -> bool {
        let follows = |depot: DepotId| self.depots.get(&depot).is_some_and(|depot| depot.follows);
        follows(from.depot) && self.pushes.is_idle(from.depot, to.depot)
    }

    fn stands_with_arrivals(
        &self,
        request: &Request,
        id: RequestId,
        sights: &[Sight],
        chunk: ChunkIndex,
    ) -> Vec<Stand> {
        let mut stands = self.stands(request, id, sights, chunk);
        for (stand, at) in stands.iter_mut().zip(sights) {
            let sent = self.transfers.get(at.depot, id, chunk);
            let sent = sent
                .filter(|flight| !flight.is_scattered && flight.fragment != FragmentIndex::WHOLE);
            stand.arrives = sent.map(|flight| flight.fragment.get());
        }
        stands
    }
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
