//! Depots that must hold their share of every chunk: obstacles for a newcomer, and later for a
//! running request (`docs/algorithms/wishes.md`).

use alloc::vec::Vec;
use posthaste_types::{DepotId, RequestId};

use super::Way;
use crate::{
    Mind,
    books::Request,
    contract::{Happening, Outbox, PinReason, Reason},
};

impl Mind {
    /// Returns what excludes a newcomer from its pinned depots, whatever the rates.
    pub(super) fn find_flaw_of_pins(&self, request: &Request) -> Option<PinReason> {
        let forbidden = &request.wishes.forbidden;
        let mut pinned = request.uncommon.pinned.iter();
        if let Some(&depot) = pinned.find(|depot| forbidden.contains(depot)) {
            let name = self.name_of(depot);
            return Some(PinReason::Forbidden { name });
        }
        let destinations = &request.spec.destinations;
        let mut pinned = request.uncommon.pinned.iter();
        if let Some(&depot) = pinned.find(|depot| destinations.contains(depot)) {
            let name = self.name_of(depot);
            return Some(PinReason::IsDestination { name });
        }
        let (code, lanes) = (request.spec.code, request.pinned_lanes());
        if lanes.count_ones() > u32::from(code.total()) {
            let pinned = lanes.count_ones();
            return Some(PinReason::TooMany { pinned, code });
        }
        let lanes: Vec<usize> = pinned_of(request).collect();
        let lost = lanes.iter().find(|&&lane| !self.may_use(request, lane));
        if let Some(&lane) = lost {
            return self.find_pin_trouble(None, request, lane);
        }
        lanes.iter().find_map(|&lane| {
            let depots = request.together(lane, request.pinned_lanes());
            let is_covered = depots <= 1.max(u32::from(code.parity()));
            (!is_covered).then(|| PinReason::Together {
                name: self.name_of(request.lanes[lane].depot),
                depots,
                code,
            })
        })
    }

    /// Returns what excludes a newcomer from its pinned depots at present.
    pub(crate) fn find_pin_in_way(&self, request: &Request) -> Option<PinReason> {
        let mut lanes = pinned_of(request);
        let flaw = self.find_flaw_of_pins(request);
        flaw.or_else(|| lanes.find_map(|lane| self.find_pin_trouble(None, request, lane)))
    }

    /// Returns a pinned depot without room for its share in the space that others leave.
    pub(super) fn find_full_pin(&self, request: &Request, way: &Way) -> Option<PinReason> {
        let lanes = way.lanes.iter().enumerate();
        let mut pinned = lanes.filter(|(_, lane)| request.is_pinned(**lane));
        pinned.find_map(|(place, &lane)| {
            let free = way.scene.supplies.depots.get(place)?.space;
            let needed = way.proposal.column();
            let name = self.name_of(request.lanes[lane].depot);
            (free < needed).then_some(PinReason::Full { name, needed, free })
        })
    }

    /// Returns why the depot of a pinned lane can't accept now what it lacks.
    fn find_pin_trouble(
        &self,
        id: Option<RequestId>,
        request: &Request,
        lane: usize,
    ) -> Option<PinReason> {
        let at = request.lanes[lane].depot;
        let name = self.name_of(at);
        let Some(depot) = self.depots.get(&at) else {
            return Some(PinReason::Down { name });
        };
        if request.uncommon.drained >> lane & 1 == 1 {
            return Some(PinReason::Drained { name });
        }
        if depot.is_loaded(request.lent(lane)) {
            return Some(PinReason::Loaded { name });
        }
        if !depot.is_open_to(request, lane, self.now) {
            return Some(PinReason::Closed { name });
        }
        if depot.is_down() {
            return Some(PinReason::Down { name });
        }
        let lacks = request.replica.room_count(lane);
        let lacks = lacks.saturating_sub(request.lanes[lane].in_flight);
        if lacks == 0 {
            return None;
        }
        if request.is_unwanted(lane) {
            return Some(PinReason::Dear { name });
        }
        let piece = request.piece(lane);
        let free = match id {
            Some(id) => self.index.space_for(id, at, depot.space()),
            None => depot.space() - self.index.kept(at),
        };
        (free < piece).then(|| PinReason::Full {
            name,
            needed: piece.times(u64::from(lacks)),
            free,
        })
    }

    /// Re-evaluates why pinned depots can't accept what they lack, and records a new reason.
    pub(crate) fn review_pins(&mut self, id: RequestId) {
        let Some(request) = self.requests.get(&id) else {
            return;
        };
        if request.uncommon.pinned.is_empty() || !request.is_moving() {
            return;
        }
        let lacks = |lane: &usize| request.replica.room_count(*lane) > 0;
        let trouble = pinned_of(request)
            .filter(lacks)
            .find_map(|lane| self.find_pin_trouble(Some(id), request, lane));
        let is_new = match (&trouble, &request.uncommon.pin_trouble) {
            (Some(now), Some(before)) => {
                core::mem::discriminant(now) != core::mem::discriminant(before)
            }
            (now, before) => now.is_some() != before.is_some(),
        };
        let said = trouble.clone().filter(|_| is_new);
        if let Some(request) = self.requests.get_mut(&id) {
            request.uncommon.pin_trouble = trouble;
        }
        if let Some(why) = said {
            self.remember(
                id,
                "waits for a pinned depot".into(),
                Reason::Pinned { why },
            );
        }
    }

    /// Removes pins to a depot that is gone for good, and reports that.
    pub(crate) fn unpin(&mut self, depot: DepotId, out: &mut Outbox) {
        let name = self.name_of(depot);
        for id in self.index.users(depot) {
            let request = self.requests.get_mut(&id);
            if !request.is_some_and(|request| request.is_kept() && request.unpin(depot)) {
                continue;
            }
            self.sort_by_domain(id);
            self.refresh_stripes(id);
            let why = PinReason::Removed { name: name.clone() };
            let reason = Reason::Pinned { why };
            self.tell(out, Some(id), Some(depot), Happening::Unpinned, reason);
            self.fill_fan_out(id, out);
            self.settle(id, out);
        }
    }

    /// Feeds every pinned depot of a request that moves, whatever else is fed.
    pub(crate) fn feed_pinned(&mut self, id: RequestId) {
        let Some(request) = self.requests.get(&id).filter(|request| request.is_moving()) else {
            return;
        };
        let lanes: Vec<usize> = pinned_of(request)
            .filter(|&lane| request.uncommon.drained >> lane & 1 == 0)
            .collect();
        if let Some(request) = self.requests.get_mut(&id) {
            for lane in lanes {
                if !core::mem::replace(&mut request.lanes[lane].is_active, true) {
                    request.replica.unpark();
                }
            }
        }
    }
}

/// Returns the lanes of pinned depots.
fn pinned_of(request: &Request) -> impl Iterator<Item = usize> + use<> {
    let mask = request.pinned_lanes();
    (0..request.lanes.len()).filter(move |lane| mask >> lane & 1 == 1)
}
