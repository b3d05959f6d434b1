//! Sends whole chunks on to other destinations while they still arrive from the centre, if nothing
//! else goes that way.

use alloc::{collections::BTreeSet, vec};
use posthaste_plan::deliver;
use posthaste_types::{ChunkIndex, FragmentIndex, RequestId};

use super::Perch;
use crate::{
    Mind,
    books::{FlightKey, Forwarded},
    contract::{Happening, Outbox, Reason},
    push::follow,
};

impl Mind {
    /// Lets destinations that the centre does not feed take what it sends to others, as it arrives.
    /// Returns whether anything began.
    pub(crate) fn deliver_following(&mut self, id: RequestId, out: &mut Outbox) -> bool {
        let Some(request) = self.requests.get(&id).filter(|request| {
            request.is_kept()
                && !request.is_paused()
                && request.delivery.is_some()
                && request.whole_lanes().count_ones() > 1
        }) else {
            return false;
        };
        let follows = |lane: usize| {
            let depot = self.depots.get(&request.lanes[lane].depot);
            depot.is_some_and(|depot| depot.follows && depot.link.flights > 0)
        };
        if !request.destinations().any(follows) {
            return false;
        }
        let perches = self.perches(id, request);
        let rooms = self.rooms(id, request, &perches);
        let mut idle: BTreeSet<(usize, usize)> = BTreeSet::new();
        for &to in rooms.keys() {
            let from = perches.iter().enumerate();
            let from = from.filter(|(_, at)| self.could_follow(at, &perches[to]));
            idle.extend(from.map(|(from, _)| (from, to)));
        }
        let givers: BTreeSet<usize> = idle.iter().map(|(from, _)| *from).collect();
        let coming = givers.into_iter().flat_map(|from| {
            let sent = self.transfers.to(perches[from].depot, Some(id));
            sent.map(|(key, _)| key.chunk)
        });
        let coming: BTreeSet<ChunkIndex> = coming.collect();
        let mut has_begun = false;
        for chunk in coming {
            has_begun |= self.follow_chunk(id, &perches, chunk, &mut idle, out);
        }
        has_begun
    }

    /// Returns whether a destination could get from another what that one still receives.
    fn could_follow(&self, from: &Perch, to: &Perch) -> bool {
        let follows = self
            .depots
            .get(&from.depot)
            .is_some_and(|depot| depot.follows);
        let is_fed = self
            .depots
            .get(&to.depot)
            .is_some_and(|depot| depot.link.flights > 0);
        from.is_destination
            && from.gives
            && follows
            && !is_fed
            && self.pushes.is_idle(from.depot, to.depot)
    }

    fn follow_chunk(
        &mut self,
        id: RequestId,
        perches: &[Perch],
        chunk: ChunkIndex,
        idle: &mut BTreeSet<(usize, usize)>,
        out: &mut Outbox,
    ) -> bool {
        let Some(request) = self.requests.get(&id) else {
            return false;
        };
        if !follow::is_all_sent(request, chunk) {
            return false;
        }
        let mut spots = self.spots(request, id, perches, chunk);
        for (spot, at) in spots.iter_mut().zip(perches) {
            let sent = self.transfers.get(at.depot, id, chunk);
            spot.arrives = sent.is_some_and(|flight| flight.fragment == FragmentIndex::WHOLE);
        }
        let Some((from, to)) = deliver::follow(&spots, |from, to| idle.contains(&(from, to)))
        else {
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
            since: self.now,
        };
        let key = FlightKey {
            depot: to.depot,
            request: id,
            chunk,
        };
        let lane = to.lane;
        self.begin_flight_between(lane, key, flight.clone());
        // No second one of the chunk should go there.
        self.refresh_stripe(id, chunk);
        let mut is_said = true;
        if let Some(request) = self.requests.get_mut(&id)
            && let Some(delivery) = &mut request.delivery
        {
            delivery.flying += 1;
            is_said = delivery.said >> lane & 1 == 1;
            delivery.said |= 1 << lane;
        }
        let reason = Reason::GoesOnAsItComes;
        if !is_said {
            let to = Some(key.depot);
            self.tell(out, Some(id), to, Happening::Delivering, reason.clone());
        }
        out.commands
            .push(follow::command(from, key, &flight, reason));
        true
    }
}
