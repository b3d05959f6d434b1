use alloc::string::String;
use posthaste_types::{Bytes, ChunkIndex, DepotId, FragmentIndex, RequestId, Timestamp};

use crate::{
    Mind,
    books::{Flight, FlightKey, Release},
    contract::{Fault, Outbox, Reason},
    dispatch::{backoff, is_lasting},
};

impl Mind {
    /// Handles a send that ended without the fragment being stored.
    pub(crate) fn on_fragment_failed(
        &mut self,
        id: RequestId,
        depot: DepotId,
        chunk: ChunkIndex,
        fragment: FragmentIndex,
        fault: Fault,
        out: &mut Outbox,
    ) {
        let key = FlightKey {
            depot,
            request: id,
            chunk,
        };
        if let Some(pushed) = self.land_push(key, fragment) {
            self.on_push_failed(key, pushed, fault, out);
            return;
        }
        let Some(flight) = self.land(key, fragment) else {
            return;
        };
        if fault.is_of_source() {
            self.on_source_fault(id, fault, None, out);
            self.refresh_stripe(id, chunk);
            self.offer_mend(id, chunk);
            return;
        }
        if let Some(request) = self.requests.get_mut(&id) {
            // It may have been sent, but it is not kept.
            let spent = &mut request.spent_micro_usd;
            *spent = spent.saturating_sub(flight.keep_micro_usd);
        }
        if let Some(request) = self.requests.get_mut(&id)
            && let Some(stripe) = request.stripes.get_mut(&chunk)
        {
            stripe.failures += 1;
            stripe.last_fault = Some(fault);
        }
        self.refresh_stripe(id, chunk);
        self.offer_mend(id, chunk);
        self.blame(id, depot, flight.since, fault, out);
    }

    /// Removes a flight from the books.
    pub(crate) fn land(&mut self, key: FlightKey, fragment: FragmentIndex) -> Option<Flight> {
        let flight = self.transfers.end(key, fragment)?;
        if let Some(depot) = self.depots.get_mut(&key.depot) {
            depot.link.end_flight(&flight);
        }
        if let Some(request) = self.requests.get_mut(&key.request)
            && let Some(lane) = request.lane_of(key.depot)
        {
            request.end_flight(lane, key.chunk);
        }
        Some(flight)
    }

    /// Lets the depot rest, or declares it lost when it keeps failing. `since` is when the failed
    /// operation began.
    pub(crate) fn blame(
        &mut self,
        id: RequestId,
        at: DepotId,
        since: Timestamp,
        fault: Fault,
        out: &mut Outbox,
    ) {
        let now = self.now;
        let Some(depot) = self.depots.get_mut(&at).filter(|depot| depot.is_up()) else {
            return;
        };
        if fault == Fault::Unreachable && depot.fork.broke_before(since, now) {
            return;
        }
        depot.failures += 1;
        depot.resume_at = now + backoff(&self.settings, depot.failures);
        if fault == Fault::Full {
            depot.free = Bytes::ZERO;
        }
        let most = match fault {
            Fault::Unreachable => self.settings.unreachable_max,
            // The depot itself reports when there is space again.
            Fault::Full => u32::MAX,
            // No depot is to blame, and all are as good as before.
            Fault::SourceStalled => u32::MAX,
            _ if is_lasting(fault) => 1,
            Fault::Unauthenticated
            | Fault::Corrupt
            | Fault::Busy
            | Fault::SourceChanged
            | Fault::SourceVanished
            | Fault::SourceUnreadable
            | Fault::Unremovable
            | Fault::SourceBusy
            | Fault::SourcesDiffer
            | Fault::Unwritable
            | Fault::NamesMeet
            | Fault::Other => self.settings.failures_max,
        };
        let (attempts, name) = (depot.failures, depot.name.clone());
        if attempts >= most {
            self.lose_to_failures(at, Reason::GaveUp { fault, attempts }, fault, out);
        } else {
            let reason = Reason::Retry {
                fault,
                attempt: attempts + 1,
            };
            self.remember_of(id, name, 1, "a send is tried again".into(), reason);
        }
    }

    /// Handles a fault of the source: no depot can help, and the source stays as it is. While
    /// depots have yet to report what they hold, which may be all of it, nothing is sent and
    /// nothing is given up.
    pub(crate) fn on_source_fault(
        &mut self,
        id: RequestId,
        fault: Fault,
        what: Option<String>,
        out: &mut Outbox,
    ) {
        let Some(request) = self.requests.get(&id).filter(|request| !request.is_final()) else {
            return;
        };
        let is_gone = fault == Fault::SourceVanished && request.safe_at.is_some();
        let is_ours = request.spec.release == crate::contract::ReleasePolicy::WhenSafe;
        let is_removed = request.release == Release::Commanded || request.release.is_over();
        if is_gone && is_ours && is_removed {
            // It vanishes because it is removed. What became of that is still to be heard, or was.
        } else if is_gone {
            // Files removed by a release that failed are gone as well.
            self.on_source_purged(id, Reason::Purged, out);
        } else if request.is_asking() {
            if let Some(request) = self.requests.get_mut(&id) {
                request.uncommon.awaits_inventories = true;
            }
        } else if request.safe_at.is_none() || request.is_moving() {
            let named = |what| Reason::SourceFile { fault, what };
            let reason = what.map_or(Reason::Source { fault }, named);
            self.fail(id, reason, out);
        }
    }
}
