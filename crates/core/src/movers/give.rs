//! Share of the waiting work that a mover is given.

use alloc::vec::Vec;
use core::time::Duration;
use posthaste_types::Timestamp;

use crate::{
    movers::Roster,
    movers::words::{LeaseId, MoverId, Ticket},
};

/// Time for which the room that a mover reported is counted on.
const SPEAKS: Duration = Duration::from_secs(4);

/// Most pieces of work in one turn: a mover with room for more asks again at once.
const GIVEN_MAX: usize = 16;

impl Roster {
    /// Gives a mover its share of what waits.
    pub(super) fn give(&mut self, now: Timestamp, id: MoverId) -> Vec<(LeaseId, Ticket)> {
        let mut given = Vec::new();
        let mut most = self.share(now, id);
        while most > 0
            && let Some((_, first)) = self.waiting.first().copied()
        {
            let group = self.works[&first].offer.group;
            let alike = self
                .groups
                .range((group, Ticket::new(0))..=(group, Ticket::new(u64::MAX)));
            // Work that shares a read stays together, as far as the mover has room.
            let room = (self.movers[&id].free as usize).min(GIVEN_MAX) - given.len();
            let alike: Vec<Ticket> = alike.map(|(_, ticket)| *ticket).take(room).collect();
            most = most.saturating_sub(alike.len().max(1));
            for ticket in alike {
                let lease = LeaseId::new(self.number());
                let Some(work) = self.works.get_mut(&ticket) else {
                    continue;
                };
                work.lease = Some(lease);
                let offer = work.offer;
                self.unwait(offer);
                self.leases.insert(lease, (id, ticket));
                given.push((lease, ticket));
            }
        }
        if let Some(mover) = self.movers.get_mut(&id) {
            mover.leases.extend(given.iter().map(|(lease, _)| *lease));
            mover.free -= u32::try_from(given.len()).unwrap_or(mover.free);
        }
        given
    }

    /// Returns movers that should ask now, since work waits for which they have room. Those that
    /// have the least come first, and no more than there is to give.
    #[must_use]
    pub fn wanted(&self, now: Timestamp) -> Vec<MoverId> {
        if self.waiting.is_empty() {
            return Vec::new();
        }
        let able = self.movers.iter().filter(|(_, mover)| {
            let has_room = mover.free > 0 && now.since(mover.heard) < SPEAKS;
            has_room && mover.may_take(now)
        });
        let mut able: Vec<(usize, MoverId)> =
            able.map(|(id, mover)| (mover.leases.len(), *id)).collect();
        able.sort_unstable();
        able.truncate(self.waiting.len());
        able.into_iter().map(|(_, id)| id).collect()
    }

    /// Returns how much of the waiting work a mover takes: enough for all with room to come to an
    /// equal number. So one that asks first leaves work to the others. It is at least what they
    /// could not take.
    fn share(&self, now: Timestamp, id: MoverId) -> usize {
        let Some(mover) = self.movers.get(&id) else {
            return 0;
        };
        let others = self.movers.iter().filter(|(other, mover)| {
            let has_room = mover.free > 0 && now.since(mover.heard) < SPEAKS;
            **other != id && has_room && mover.may_take(now)
        });
        let (mut movers, mut under_way, mut free) = (1, mover.leases.len(), 0);
        for (_, other) in others {
            movers += 1;
            under_way += other.leases.len();
            free += other.free as usize;
        }
        let even = (self.waiting.len() + under_way).div_ceil(movers);
        let even = even.saturating_sub(mover.leases.len());
        let spilt = self.waiting.len().saturating_sub(free);
        even.max(spilt).min(mover.free as usize).min(GIVEN_MAX)
    }
}
