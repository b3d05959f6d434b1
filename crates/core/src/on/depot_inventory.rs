use alloc::vec::Vec;
use posthaste_types::{ChunkIndex, DepotId, FragmentIndex, RequestId};

use crate::{
    Mind,
    books::Release,
    contract::{Outbox, Reason, RequestState},
};

impl Mind {
    /// Replaces what a depot holds by its report.
    pub(crate) fn on_depot_inventory(
        &mut self,
        depot: DepotId,
        id: RequestId,
        held: &[(ChunkIndex, FragmentIndex)],
        out: &mut Outbox,
    ) {
        if self.is_stage_in(id) {
            return self.found_near(id, depot, held);
        }
        let held = &self.without_renewed(id, depot, held)[..];
        let is_up = self.depots.get(&depot).is_some_and(|depot| depot.is_up());
        let Some(request) = self.requests.get_mut(&id) else {
            return;
        };
        // An answer that is no longer awaited is older than what was stored since.
        let Some(lane) = request
            .lane_of(depot)
            .filter(|&lane| is_up && request.is_kept() && request.lanes[lane].asked_at.is_some())
        else {
            return;
        };
        request.lanes[lane].asked_at = None;
        let since = match request.uncommon.stored_since_asked.is_empty() {
            true => None,
            false => request.uncommon.stored_since_asked.remove(&depot),
        };
        let held = [held, &since.unwrap_or_default()[..]].concat();
        let before = request.replica.stored(lane).0;
        let lost = request.replica.replace(lane, &held);
        let has_all = request.replica.stored(lane).0 >= before;
        if !has_all {
            request.uncommon.has_asked_all = false;
        }
        let open: Vec<ChunkIndex> = request.stripes.keys().copied().collect();
        for chunk in open {
            request.replica.open(chunk);
        }
        self.judge_loss(depot, has_all);
        let lost = match !has_all && self.reopen_delivered(id, lane) {
            true => self.lacks(id),
            false => lost,
        };
        self.refresh_stripes(id);
        self.reset_push(id);
        self.say_lost(id, lost, Reason::Repair { lost: depot }, out);
        self.settle(id, out);
        self.look_now();
    }

    /// Reopens a request of which a destination lost some: it is delivered no more. As long as the
    /// source is there it is sent again, otherwise rebuilt from what others hold. Returns whether
    /// that is so.
    fn reopen_delivered(&mut self, id: RequestId, lane: usize) -> bool {
        let now = self.now;
        let Some(request) = self.requests.get_mut(&id) else {
            return false;
        };
        let was_there = request.state == RequestState::Delivered && request.due.whole_at.is_some();
        // Data past its keeping time is no loss.
        if !was_there || !request.is_destination(lane) || request.keeps(now).is_zero() {
            return false;
        }
        request.state = match request.release {
            Release::Done | Release::Left => RequestState::Released,
            Release::Pending | Release::Commanded | Release::Kept => RequestState::Safe,
        };
        request.due.whole_at = None;
        request.uncommon.last_lost = Some(request.lanes[lane].depot);
        self.begin_delivery(id);
        true
    }

    /// Counts the chunks that are not safe.
    fn lacks(&self, id: RequestId) -> u32 {
        let request = self.requests.get(&id);
        request.map_or(0, |request| {
            request.replica.chunks() - request.replica.safe()
        })
    }
}
