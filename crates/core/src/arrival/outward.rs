//! Exports: from scratch to an address elsewhere. Once all of it is there its source may be
//! removed.

use posthaste_types::{RequestId, Timestamp};

use crate::{
    Mind,
    books::{Outward, Release},
    contract::{ArrivalState, Command, Fault, Happening, Outbox, Reason},
};

impl Mind {
    /// Makes the stage-in that is submitted next an export. A known stage-in keeps its direction.
    pub(crate) fn on_goes_out(&mut self, id: RequestId, releases: bool) {
        if !self.arrivals.requests.contains_key(&id) {
            let outward = &mut self.arrivals.outward;
            outward.entry(id).or_insert(Outward::new(releases));
        }
    }

    /// Returns when a failed release is tried again.
    pub(crate) fn next_outward_release(&self) -> Option<Timestamp> {
        let outward = self.arrivals.outward.values();
        outward.filter_map(|outward| outward.release_at).min()
    }

    /// Commands the removal of an exported source, if that was asked for and all of it has arrived.
    pub(crate) fn release_outward(&mut self, out: &mut Outbox) {
        let (now, requests) = (self.now, &self.arrivals.requests);
        for (id, outward) in &mut self.arrivals.outward {
            let arrival = requests.get(id);
            let arrival = arrival.filter(|arrival| arrival.state == ArrivalState::Arrived);
            let is_due = outward.releases
                && outward.release == Release::Pending
                && outward.release_at.is_none_or(|at| at <= now);
            if let Some(arrival) = arrival.filter(|_| is_due) {
                (outward.release, outward.release_at) = (Release::Commanded, None);
                let chunks = arrival.chunks();
                out.commands.push(Command::Release {
                    request: *id,
                    reason: Reason::AllHere { chunks },
                });
            }
        }
    }

    /// Records that the source of an export was removed, as commanded.
    pub(crate) fn on_outward_released(&mut self, id: RequestId, out: &mut Outbox) {
        let Some(outward) = self.arrivals.outward.get_mut(&id) else {
            return;
        };
        if outward.release != Release::Commanded {
            return;
        }
        outward.release = Release::Done;
        if let Some(arrival) = self.arrivals.requests.get_mut(&id) {
            arrival.state = ArrivalState::Released;
            let chunks = arrival.chunks();
            let reason = Reason::AllHere { chunks };
            self.tell(out, Some(id), None, Happening::Released, reason);
        }
    }

    /// Records that the source of an export could not be removed.
    pub(crate) fn on_outward_kept(&mut self, id: RequestId, fault: Fault, out: &mut Outbox) {
        let now = self.now;
        let Some(outward) = self.arrivals.outward.get_mut(&id) else {
            return;
        };
        if outward.release != Release::Commanded {
            return;
        }
        outward.failures += 1;
        let reason = Release::failed(fault, outward.failures, now);
        (outward.release, outward.release_at) = Release::after(&reason);
        self.tell_kept(id, fault, reason, out);
    }

    /// Commands a release again after a restart: its outcome is unknown.
    pub(crate) fn release_outward_again(&mut self) {
        for outward in self.arrivals.outward.values_mut() {
            if outward.release == Release::Commanded {
                outward.release = Release::Pending;
            }
        }
    }
}
