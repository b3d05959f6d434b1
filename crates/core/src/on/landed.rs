use posthaste_types::RequestId;

use crate::{
    Mind,
    contract::{ArrivalState, Command, Fault, Happening, Outbox, Reason},
};

impl Mind {
    /// Handles a landing: the files of a stage-in have their names.
    pub(crate) fn on_landed(&mut self, id: RequestId, out: &mut Outbox) {
        let now = self.now;
        let arrival = self.arrivals.requests.get(&id);
        let Some(arrival) = arrival.filter(|arrival| arrival.state.is_live()) else {
            return;
        };
        let chunks = arrival.chunks();
        // Chunks still on their way, as after a restart, are no longer wanted.
        self.quit_all(id, &Reason::AllHere { chunks }, out);
        self.empty_near(id);
        let Some(arrival) = self.arrivals.requests.get_mut(&id) else {
            return;
        };
        arrival.state = ArrivalState::Arrived;
        arrival.arrived_at = Some(now);
        let (bytes, deadline) = (arrival.spec.bytes, arrival.spec.deadline);
        let reason = match arrival.spec.not_before {
            Some(not_before) if not_before > now => Reason::CameEarly {
                not_before,
                deadline,
            },
            _ => Reason::AllHere { chunks },
        };
        arrival.bytes_here = bytes;
        arrival.account.close(now);
        arrival.close_books();
        self.tell(out, Some(id), None, Happening::Arrived { bytes }, reason);
        self.onward_arrived(id, out);
        self.look_at_arrivals_now();
    }

    /// Handles files that could not get their names: temporary faults are retried for a while.
    pub(crate) fn on_landing_failed(&mut self, id: RequestId, fault: Fault, out: &mut Outbox) {
        let Some(arrival) = self.arrivals.requests.get_mut(&id) else {
            return;
        };
        if arrival.state != ArrivalState::Landing {
            return;
        }
        arrival.state = ArrivalState::Moving;
        let is_of_depots = self.comes_of(id).is_some() && fault == Fault::SourceUnreadable;
        let fault = if is_of_depots {
            Fault::Unreachable
        } else {
            fault
        };
        let is_away = fault.may_pass() && self.arrivals.outward.contains_key(&id);
        let may_pass = matches!(
            fault,
            Fault::Full | Fault::Unwritable | Fault::Busy | Fault::Corrupt
        );
        if is_away || may_pass {
            self.hold_arrival(id, fault, out);
            if !is_away {
                self.look_what_is_there(id, out);
            }
        } else {
            let reason = Reason::GaveUp { fault, attempts: 1 };
            self.end_arrival(id, ArrivalState::Failed, reason, out);
        }
    }

    /// Checks chunks that may be lost or damaged: those no longer intact are fetched again.
    fn look_what_is_there(&mut self, id: RequestId, out: &mut Outbox) {
        let now = self.now;
        let arrival = self.arrivals.requests.get_mut(&id);
        if let Some(arrival) = arrival.filter(|arrival| arrival.state.is_live()) {
            arrival.asked_at = Some(now);
            let reason = arrival.refusal().unwrap_or(Reason::Restarted);
            out.commands.push(Command::Survey {
                request: id,
                reason,
            });
        }
    }
}
