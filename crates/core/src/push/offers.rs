//! Offers of fragments that may go on between depots, after something about them changed.

use alloc::{boxed::Box, collections::BTreeSet};
use posthaste_types::{ChunkIndex, DepotId, RequestId};

use super::is_ripe;
use crate::{
    Mind,
    books::{Push, Request},
};

impl Mind {
    /// Re-evaluates whether some depots lie nearer than others, as depots changed, or joined a
    /// request.
    pub(crate) fn sort_by_level(&mut self, id: RequestId) {
        let Some(request) = self.requests.get(&id) else {
            return;
        };
        let levels: BTreeSet<u8> = self.sights(request).iter().map(|at| at.level).collect();
        let can_push = levels.len() > 1 && request.is_kept() && request.replica.chunks() > 0;
        if can_push == request.push.is_some() {
            return self.reset_push(id);
        }
        // Levels may have been equal for a while, with something still in progress.
        let lanes = request.depot_lanes().map(|lane| request.lanes[lane].depot);
        let flying = lanes.map(|depot| {
            let all = self.pushes.to(depot, Some(id));
            all.filter(|(_, flight)| !flight.is_piece).count()
        });
        let flying = u32::try_from(flying.sum::<usize>()).unwrap_or(u32::MAX);
        if let Some(request) = self.requests.get_mut(&id) {
            request.push = can_push.then(|| Box::new(Push::new(request.replica.chunks(), flying)));
            self.pushes.offer(id);
        }
    }

    /// Offers a chunk of which a fragment was stored: it may go on.
    pub(crate) fn offer_push(&mut self, id: RequestId, chunk: ChunkIndex) {
        let has_push = |request: &Request| request.push.is_some() && is_ripe(request, chunk);
        if self.requests.get(&id).is_some_and(has_push)
            && let Some(request) = self.requests.get_mut(&id)
            && let Some(push) = &mut request.push
        {
            push.offer(chunk);
            self.pushes.offer(id);
        }
        self.offer_delivery(id, chunk);
        self.offer_mend(id, chunk);
    }

    /// Resets the push of a request whose holdings changed at many places.
    pub(crate) fn reset_push(&mut self, id: RequestId) {
        self.begin_mend(id);
        let goes_on = |request: &Request| request.goes_on().next().is_some();
        if self.requests.get(&id).is_some_and(goes_on)
            && let Some(request) = self.requests.get_mut(&id)
        {
            let chunks = request.replica.chunks();
            request.goes_on_mut().for_each(|push| push.reset(chunks));
            self.pushes.offer(id);
        }
    }

    /// Gives chunks that waited for a depot another chance, as it is up again or has space.
    pub(crate) fn revive_pushes(&mut self, depot: DepotId) {
        for id in self.index.users(depot) {
            let waits = |request: &Request| request.goes_on().any(Push::is_waiting);
            if self.requests.get(&id).is_some_and(waits)
                && let Some(request) = self.requests.get_mut(&id)
            {
                request.goes_on_mut().for_each(Push::revive);
                self.pushes.offer(id);
            }
        }
    }
}
