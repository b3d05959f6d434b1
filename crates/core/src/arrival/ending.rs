//! Ends of a stage-in: its files get their names, or what was written of them is removed.

use posthaste_types::{RequestId, SourceId};

use crate::{
    Mind,
    contract::{ArrivalState, Command, Happening, Outbox, Reason},
};

impl Mind {
    /// Names the files once every chunk is here. An empty stage-in is complete as soon as it may
    /// be.
    pub(crate) fn land_if_whole(&mut self, id: RequestId, out: &mut Outbox) {
        let now = self.now;
        if self.waits_for_depots(id) {
            return;
        }
        let Some(arrival) = self.arrivals.requests.get_mut(&id) else {
            return;
        };
        let is_landing = arrival.state == ArrivalState::Landing || !arrival.state.is_live();
        let may = arrival.chunks() > 0 || arrival.is_due;
        let may = may && !arrival.is_paused();
        if is_landing || !may || arrival.asked_at.is_some() || !arrival.is_whole() {
            return;
        }
        if arrival.held_until > now {
            return;
        }
        arrival.state = ArrivalState::Landing;
        let chunks = arrival.chunks();
        let reason = Reason::AllHere { chunks };
        self.quit_all(id, &reason, out);
        out.commands.push(Command::Settle {
            request: id,
            keep: true,
            reason,
        });
    }

    /// Stops all fetches of a stage-in.
    pub(crate) fn quit_all(&mut self, id: RequestId, reason: &Reason, out: &mut Outbox) {
        let Some(arrival) = self.arrivals.requests.get(&id) else {
            return;
        };
        let sources: alloc::vec::Vec<SourceId> =
            arrival.lanes.iter().map(|lane| lane.source).collect();
        for source in sources {
            if !self.end_fetches(source, Some(id)).is_empty() {
                out.commands.push(Command::Quit {
                    request: id,
                    source,
                    reason: reason.clone(),
                });
            }
        }
    }

    /// Ends a stage-in that can't go on or is no longer wanted, and removes what was written of it.
    pub(crate) fn end_arrival(
        &mut self,
        id: RequestId,
        state: ArrivalState,
        reason: Reason,
        out: &mut Outbox,
    ) {
        self.quit_all(id, &reason, out);
        self.empty_near(id);
        let Some(arrival) = self.arrivals.requests.get_mut(&id) else {
            return;
        };
        arrival.state = state;
        arrival.close_books();
        out.commands.push(Command::Settle {
            request: id,
            keep: false,
            reason: reason.clone(),
        });
        let happening = if state == ArrivalState::Cancelled {
            Happening::Cancelled
        } else {
            Happening::Failed
        };
        self.tell(out, Some(id), None, happening, reason);
        self.onward_ended(id);
        self.look_at_arrivals_now();
    }

    /// Cancels a stage-in for its user, unless its files are already getting their names.
    pub(crate) fn cancel_arrival(&mut self, id: RequestId, out: &mut Outbox) {
        let arrival = self.arrivals.requests.get(&id);
        let can_end = arrival.is_some_and(|arrival| {
            arrival.state.is_live() && arrival.state != ArrivalState::Landing
        });
        if can_end {
            self.end_arrival(id, ArrivalState::Cancelled, Reason::Asked, out);
        }
    }
}
