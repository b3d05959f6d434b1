//! Depots that fail together: how many fragments of a chunk they may hold among them.
//!
//! As many as the parity covers, so that the loss of a whole group loses nothing; fewer wherever other
//! depots have room (`docs/algorithms/placement.md`).

use alloc::vec::Vec;
use posthaste_types::RequestId;

use crate::{
    Mind,
    books::Request,
    contract::{Happening, Outbox, Reason},
};

/// Which lanes of a request fail together, and how many fragments of a chunk each group may get.
#[derive(Debug)]
pub(crate) struct Kin {
    /// For each lane a mask of those that fail together with it, itself among them.
    pub(crate) masks: Vec<u64>,
    pub(crate) most: u32,
}

impl Mind {
    /// Says that fragments lie closer together than the parity covers, once for each fragment more.
    pub(crate) fn say_crowded(&mut self, id: RequestId, out: &mut Outbox) {
        let request = self.requests.get(&id);
        let Some(request) = request.filter(|request| request.uncommon.is_crowd_unsaid) else {
            return;
        };
        let (most, code) = (request.crowd_max(), request.code_now());
        if let Some(request) = self.requests.get_mut(&id) {
            request.uncommon.is_crowd_unsaid = false;
        }
        let reason = Reason::OnlyKinHaveRoom { most, code };
        self.tell(out, Some(id), None, Happening::Crowded, reason);
    }

    /// Terms changed: finds out anew which depots of a request fail together.
    pub(crate) fn sort_by_domain(&mut self, id: RequestId) {
        let kin = self.requests.get(&id).map(|request| self.kin(request));
        if let Some((request, kin)) = self.requests.get_mut(&id).zip(kin) {
            request.set_kin(kin);
        }
    }

    /// Which depots of the request fail together.
    pub(crate) fn kin(&self, request: &Request) -> Kin {
        let domain = |lane: usize| {
            let depot = self.depots.get(&request.lanes[lane].depot);
            depot.map_or("", |depot| depot.terms.domain.as_str())
        };
        let lanes = request.lanes.len();
        let masks: Vec<u64> = (0..lanes)
            .map(|lane| {
                let is_kin = |other: &usize| {
                    *other == lane || (!domain(lane).is_empty() && domain(*other) == domain(lane))
                };
                (0..lanes)
                    .filter(is_kin)
                    .fold(0, |mask, other| mask | 1 << other)
            })
            .collect();
        let least = self.least_crowding(request, &masks);
        let covered = u32::from(request.code_now().parity());
        let pinned = request.pinned_lanes();
        let together = masks.iter().map(|mask| (mask & pinned).count_ones()).max();
        let most = least.max(covered).max(together.unwrap_or(0));
        Kin { masks, most }
    }

    /// The least number of fragments of a chunk a group must take for all to find a place.
    fn least_crowding(&self, request: &Request, masks: &[u64]) -> u32 {
        let usable = (0..request.lanes.len())
            .filter(|&lane| !request.is_destination(lane) && self.may_use(request, lane))
            .fold(0u64, |mask, lane| mask | 1 << lane);
        let mut groups: Vec<u64> = masks.iter().map(|mask| mask & usable).collect();
        groups.sort_unstable();
        groups.dedup();
        let needed = u32::from(request.code_now().total());
        let places = |most: u32| -> u32 {
            let taken = groups.iter().map(|group| group.count_ones().min(most));
            taken.sum()
        };
        (1..=needed)
            .find(|&most| places(most) >= needed)
            .unwrap_or(1)
    }
}
