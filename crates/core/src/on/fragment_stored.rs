use alloc::vec::Vec;
use posthaste_types::{ChunkIndex, DepotId, FragmentIndex, RequestId};

use crate::{
    Mind,
    books::{FlightKey, Release, Stored},
    contract::{Command, Happening, Outbox, ReleasePolicy, RequestState},
};

impl Mind {
    /// Handles a fragment that a depot stored, its digest checked.
    pub(crate) fn on_fragment_stored(
        &mut self,
        id: RequestId,
        depot: DepotId,
        chunk: ChunkIndex,
        fragment: FragmentIndex,
        out: &mut Outbox,
    ) {
        let key = FlightKey {
            depot,
            request: id,
            chunk,
        };
        let pushed = self.land_push(key, fragment);
        let flight = self.land(key, fragment);
        let now = self.now;
        let Some(request) = self.requests.get_mut(&id) else {
            return;
        };
        let Some(at) = self.depots.get_mut(&depot) else {
            return;
        };
        let lane = request.lane_of(depot).filter(|&lane| {
            // A depot that is down, or was and is being asked what it holds, reports the rest
            // itself.
            let is_asked = request.lanes[lane].asked_at.is_some();
            at.is_up() && (!is_asked || request.replica.is_live(lane))
        });
        let Some(lane) = lane.filter(|&lane| request.replica.accepts(lane, chunk, fragment)) else {
            return;
        };
        request.note_stored(lane, chunk, fragment);
        if let Some(pushed) = pushed {
            // This shows nothing about the path from the centre.
            at.free -= pushed.bytes;
            if pushed.is_piece {
                self.shares
                    .charge(request.wishes.claim(), pushed.bytes, now, &self.settings);
            }
            // With several senders, each was reported before.
            if let [from] = pushed.givers[..] {
                let span = now.since(pushed.since);
                // The duration of a coded piece was reported before. A followed fragment was no
                // faster than its leader.
                if !span.is_zero() && !pushed.is_piece && !pushed.is_following {
                    let beside = self.pushes.flights(from, depot) + 1;
                    let taken = (pushed.share, span, beside);
                    self.crossings
                        .observe(from, depot, taken, now, &self.settings);
                }
                self.pushes.succeed(from, depot, now);
            }
        } else {
            (at.failures, at.fruitless) = (0, 0);
            at.link.progress_at = now;
        }
        if flight.is_some_and(|flight| flight.is_scattered) {
            self.pushes.has_coded(depot);
        }
        if let Some(flight) = flight {
            let bytes = request.replica.bytes_of(chunk, fragment);
            self.shares
                .charge(request.wishes.claim(), bytes, now, &self.settings);
            at.free -= bytes;
            let lane = &mut request.lanes[lane];
            if let Some(tuning) = &mut lane.tuning {
                tuning.on_stored(now, flight.since, lane.in_flight + 1, flight.bytes);
            }
        }
        match request.replica.store(lane, chunk, fragment) {
            Stored::Known | Stored::More => self.refresh_stripe(id, chunk),
            Stored::Complete { repaired } => {
                request.uncommon.repaired += u32::from(repaired);
                request.stripes.remove(&chunk);
                self.settle(id, out);
            }
        }
        self.offer_push(id, chunk);
        if fragment == FragmentIndex::WHOLE {
            self.deliver_if_there(id, out);
        }
    }

    /// Reports what became true of the whole dataset.
    pub(crate) fn settle(&mut self, id: RequestId, out: &mut Outbox) {
        let now = self.now;
        let Some(request) = self.requests.get_mut(&id) else {
            return;
        };
        // A depot that is being asked what it holds may hold less than is believed.
        let is_asking = request.is_asking();
        if is_asking || !request.replica.is_safe() {
            return;
        }
        if self.follow_up(id, out) {
            return;
        }
        let Some(request) = self.requests.get_mut(&id) else {
            return;
        };
        if request.is_lazy() {
            request.replica.be_lazy();
        }
        let reason = request.reason_safe();
        if request.state == RequestState::Moving {
            request.state = if request.release.is_over() {
                RequestState::Released
            } else {
                RequestState::Safe
            };
            if request.safe_at.is_none() {
                request.account.close(now);
            }
            request.safe_at.get_or_insert(now);
            request.at_risk = false;
            request.finish = None;
            let bytes = request.spec.bytes;
            self.tell(out, Some(id), None, Happening::Safe { bytes }, reason);
        } else if core::mem::take(&mut request.is_thin) {
            let bytes = request.spec.bytes;
            self.tell(out, Some(id), None, Happening::Safe { bytes }, reason);
        }
        self.release_if_safe(id, out);
        self.deliver_if_there(id, out);
    }

    /// Commands the release of the source once: when it was asked for, and exactly while it is
    /// safe.
    pub(crate) fn release_if_safe(&mut self, id: RequestId, out: &mut Outbox) {
        let now = self.now;
        let Some(request) = self.requests.get_mut(&id) else {
            return;
        };
        let is_certain = match request.state {
            RequestState::Delivered => true,
            RequestState::Safe => request.replica.is_safe() && !request.is_asking(),
            RequestState::Refused
            | RequestState::Moving
            | RequestState::Released
            | RequestState::Cancelled
            | RequestState::Failed => false,
        };
        let is_wanted =
            request.spec.release == ReleasePolicy::WhenSafe && request.release == Release::Pending;
        let is_wanted = is_wanted && !request.is_paused();
        let is_wanted = is_wanted && request.uncommon.release_at.is_none_or(|at| at <= now);
        if is_certain && is_wanted {
            if self.asks_before_release(id, out) {
                return;
            }
            let Some(request) = self.requests.get_mut(&id) else {
                return;
            };
            (request.release, request.uncommon.release_at) = (Release::Commanded, None);
            let reason = request.reason_safe();
            self.remember(
                id,
                alloc::string::String::from("scratch is to be released"),
                reason.clone(),
            );
            out.commands.push(Command::Release {
                request: id,
                reason,
            });
        }
    }

    /// Asks each depot that counts what it holds, once before a source is removed for good:
    /// fragments there may be lost since. Returns whether an answer is out.
    fn asks_before_release(&mut self, id: RequestId, out: &mut Outbox) -> bool {
        let Some(request) = self.requests.get_mut(&id) else {
            return false;
        };
        let is_delivered = request.state == RequestState::Delivered;
        if is_delivered || core::mem::replace(&mut request.uncommon.has_asked_all, true) {
            return false;
        }
        let reason = request.reason_safe();
        let used = request.lanes.iter().filter(|lane| lane.is_used);
        let used: Vec<DepotId> = used.map(|lane| lane.depot).collect();
        let is_up = |depot: &DepotId| self.depots.get(depot).is_some_and(|depot| depot.is_up());
        let depots: Vec<DepotId> = used.into_iter().filter(is_up).collect();
        for depot in &depots {
            self.ask_if_used(id, *depot, reason.clone(), out);
        }
        !depots.is_empty()
    }

    /// Marks it as delivered once the last chunk is stored at the last destination.
    pub(crate) fn deliver_if_there(&mut self, id: RequestId, out: &mut Outbox) {
        let now = self.now;
        let Some(request) = self.requests.get_mut(&id) else {
            return;
        };
        let is_whole = request.lead().is_some() && request.is_whole();
        request.due.whole_at = is_whole.then(|| request.due.whole_at.unwrap_or(now));
        let waits = request.spec.release == ReleasePolicy::WhenSafe
            && matches!(request.release, Release::Pending | Release::Commanded);
        let is_due = matches!(request.state, RequestState::Safe | RequestState::Released);
        if is_due && !waits && request.replica.is_delivered() {
            let reason = request.reason_whole(now);
            self.end_delivered(id, reason, out);
        }
    }
}
