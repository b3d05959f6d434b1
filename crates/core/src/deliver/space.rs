//! Space of destinations for data that is safe already. Depots keep it until all of it is there. So
//! a delivery begins if it fits as a whole, and has that space until it ends.

use core::time::Duration;
use posthaste_types::{Bytes, RequestId};

use crate::{
    Mind,
    books::{Depot, Request},
};

/// Multiple of others' data bound for a destination and not safe yet that stays free there.
/// Requests that come meanwhile have a deadline, and safe data has none.
const ROOM_TIMES: u64 = 8;
/// Time after it is safe for which it leaves them that room: if some always come, it would wait for
/// ever.
const ROOM_LASTS: Duration = Duration::from_secs(3600);
/// Most requests that are looked at for that, the most urgent first.
const MOVING_MAX: usize = 64;
/// Chunks by which a delivery may fall short before it loses its space: promises are counted in
/// whole chunks.
const SHORT_MAX: u64 = 4;

impl Mind {
    /// Returns the space of a destination for data that is safe already. Promises to data that is
    /// not safe come first, then deliveries that began. If no moment was promised for the delivery,
    /// requests that may come meanwhile also come first, for a while.
    pub(super) fn space_to_deliver(&self, id: RequestId, request: &Request, lane: usize) -> Bytes {
        let at = request.lanes[lane].depot;
        let space = self.depots.get(&at).map_or(Bytes::ZERO, Depot::space);
        let left = space - self.index.kept(at);
        if request.promised_by().is_some() {
            return left;
        }
        let held = self.held_for_delivery(id, request, lane);
        let left = left - (self.index.held(at) - held);
        let has_waited = request
            .safe_at
            .is_some_and(|at| at + ROOM_LASTS <= self.now);
        if has_waited || held > Bytes::ZERO {
            return left;
        }
        // A delivery that does not fit as a whole frees no depot, and is in the way of others.
        let lacks = self.lacks_there(id, request, lane);
        if left < lacks {
            return Bytes::ZERO;
        }
        if !request.is_moving() && self.frees_much(request, lacks) {
            return left;
        }
        let moving = self.index.after(None).take(MOVING_MAX);
        let moving = moving.filter_map(|urgency| self.requests.get(&urgency.request));
        let is_other = |other: &&Request| !core::ptr::eq(*other, request);
        let here = moving.filter(is_other);
        let here = here.filter(|other| other.lead_depot() == Some(at));
        let rest: Bytes = here.map(|other| other.replica.unsafe_bytes()).sum();
        left.min(space - rest.times(ROOM_TIMES))
    }

    /// Returns what a destination still has to get from others: the centre sends the rest, or it is
    /// on its way.
    fn lacks_there(&self, id: RequestId, request: &Request, lane: usize) -> Bytes {
        let fed = &request.lanes[lane];
        let arriving = self.pushes.to(fed.depot, Some(id));
        let arriving: Bytes = arriving.map(|(_, flight)| flight.bytes).sum();
        let piece = request.piece(lane);
        let sent = piece.times(u64::from(fed.kept) + u64::from(fed.in_flight));
        request.spec.bytes - request.replica.stored(lane).1 - arriving - sent
    }

    /// Returns the space that a delivery in progress has at a destination until all of it is there.
    pub(crate) fn held_for_delivery(&self, id: RequestId, request: &Request, lane: usize) -> Bytes {
        let delivery = request
            .delivery
            .as_ref()
            .filter(|_| request.is_kept() && !request.is_paused());
        let is_held = delivery.is_some_and(|delivery| delivery.holds >> lane & 1 == 1);
        if is_held {
            self.lacks_there(id, request, lane)
        } else {
            Bytes::ZERO
        }
    }

    /// Returns whether all of a delivery has its space at a destination, beside promises and other
    /// deliveries that began. A delivery that has its space keeps it though some chunks less fit.
    fn fits_there(&self, id: RequestId, request: &Request, lane: usize) -> bool {
        let at = request.lanes[lane].depot;
        let space = self.depots.get(&at).map_or(Bytes::ZERO, Depot::space);
        let held = self.held_for_delivery(id, request, lane);
        let others = self.index.held(at) - held;
        let spare = match held {
            Bytes::ZERO => Bytes::ZERO,
            _ => request.spec.chunk_size.times(SHORT_MAX),
        };
        let lacks = self.lacks_there(id, request, lane) - spare;
        space >= self.index.kept(at) + others + lacks
    }

    /// Holds space for a delivery in progress at each destination where all of it fits, and gives
    /// up space that others took.
    pub(super) fn hold_for_delivery(&mut self, id: RequestId) {
        let Some(request) = self.requests.get(&id) else {
            return;
        };
        let Some(delivery) = &request.delivery else {
            return;
        };
        let begun = request
            .destinations()
            .filter(|lane| delivery.said >> lane & 1 == 1);
        let begun = begun.filter(|_| request.promised_by().is_none());
        let holds = begun
            .filter(|&lane| self.fits_there(id, request, lane))
            .fold(0, |mask, lane| mask | 1 << lane);
        if holds != delivery.holds
            && let Some(request) = self.requests.get_mut(&id)
            && let Some(delivery) = &mut request.delivery
        {
            delivery.holds = holds;
        }
    }

    /// Returns whether depots free much more space than the destination takes: twice as much, and
    /// enough to have half as much again as now.
    fn frees_much(&self, request: &Request, lacks: Bytes) -> bool {
        if request.wishes.keep_until.is_some() {
            return false;
        }
        let depots = request.depot_lanes();
        let (frees, has) = depots.fold((Bytes::ZERO, Bytes::ZERO), |(frees, has), lane| {
            let depot = self.depots.get(&request.lanes[lane].depot);
            let space = depot.map_or(Bytes::ZERO, Depot::space);
            (frees + request.replica.stored(lane).1, has + space)
        });
        lacks.times(2) <= frees && has <= frees.times(2)
    }
}
