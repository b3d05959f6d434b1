use posthaste_types::{ChunkIndex, RequestId, SourceId};

use crate::{
    Mind,
    books::Fetch,
    contract::{ArrivalState, Fault, Outbox, Reason},
};

impl Mind {
    /// Handles a chunk that was asked of a source and did not come.
    pub(crate) fn on_chunk_missed(
        &mut self,
        request: RequestId,
        source: SourceId,
        chunk: ChunkIndex,
        fault: Fault,
        out: &mut Outbox,
    ) {
        if !self.end_fetch(request, Fetch { chunk, source }) {
            return;
        }
        let arrival = self.arrivals.requests.get(&request);
        let is_near = arrival.is_some_and(|arrival| arrival.near_as(source).is_some());
        match fault {
            Fault::SourceChanged
            | Fault::SourcesDiffer
            | Fault::SourceVanished
            | Fault::SourceUnreadable
            | Fault::Corrupt
                if is_near =>
            {
                self.lose_near(request, chunk);
            }
            Fault::SourceVanished | Fault::SourceUnreadable if self.comes_of(request).is_some() => {
                // Depots may give it later, and the path of others to that address is as good as
                // before.
                self.hold_arrival(request, Fault::Unreachable, out);
            }
            Fault::SourceChanged | Fault::SourcesDiffer => {
                let name = self.name_of_source(source);
                let reason = Reason::SourceLost { name, fault };
                self.end_arrival(request, ArrivalState::Failed, reason, out);
            }
            Fault::SourceVanished | Fault::SourceUnreadable => {
                self.drop_source(request, source, chunk, fault, out);
            }
            Fault::NamesMeet => {
                let reason = Reason::GaveUp { fault, attempts: 1 };
                self.end_arrival(request, ArrivalState::Failed, reason, out);
            }
            Fault::Full | Fault::Unwritable => self.hold_arrival(request, fault, out),
            Fault::Unreachable
            | Fault::Unauthenticated
            | Fault::Corrupt
            | Fault::Busy
            | Fault::SourceStalled
            | Fault::Unremovable
            | Fault::SourceBusy
            | Fault::Other => self.on_source_failure(source, fault, out),
        }
    }

    /// Pauses a stage-in whose data the centre could not accept, and fails it after too many times.
    pub(crate) fn hold_arrival(&mut self, id: RequestId, fault: Fault, out: &mut Outbox) {
        let (now, settings) = (self.now, &self.settings);
        let Some(arrival) = self.arrivals.requests.get_mut(&id) else {
            return;
        };
        if arrival.held_until > now {
            return;
        }
        arrival.local_failures += 1;
        let attempts = arrival.local_failures;
        let pause = settings.hold * (1 << (attempts - 1).min(16));
        arrival.held_until = now + pause.min(settings.hold_max);
        // Results have nowhere else to go: a repair there is awaited as long as that helps.
        let may_help = fault.may_pass() || now < arrival.spec.deadline;
        let goes_on = may_help && self.arrivals.outward.contains_key(&id);
        if attempts >= settings.fruitless_max && !goes_on {
            let reason = Reason::GaveUp { fault, attempts };
            self.end_arrival(id, ArrivalState::Failed, reason, out);
        }
    }
}
