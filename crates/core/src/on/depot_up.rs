use posthaste_types::{ByteRate, Bytes, DepotId, RequestId};

use crate::{
    Mind,
    books::{Answer, Request},
    contract::{Cause, Command, DepotState, Happening, Outbox, Reason},
};

impl Mind {
    /// Handles a depot that answered. One that was lost is asked what it still holds before it is
    /// fed.
    pub(crate) fn on_depot_up(
        &mut self,
        id: DepotId,
        free: Bytes,
        rate_max: Option<ByteRate>,
        out: &mut Outbox,
    ) {
        let now = self.now;
        let Some(depot) = self.depots.get_mut(&id) else {
            return;
        };
        let before = depot.state;
        if before == DepotState::Down {
            if now < depot.hold_until {
                depot.answered = Some(Answer { free, rate_max });
                return;
            }
            self.doubt_space(id);
        }
        // The depot does not report space that it keeps for us as free.
        let free = free + self.spare_at(id);
        let settings = &self.settings;
        let Some(depot) = self.depots.get_mut(&id) else {
            return;
        };
        let had_space = depot.free;
        depot.state = DepotState::Up;
        depot.is_away = false;
        depot.answered = None;
        depot.free = free;
        depot.link.set_advert(now, rate_max, settings);
        if before == DepotState::Up {
            self.reconsider_space(id);
            if free > had_space {
                self.unpark_all(id);
            }
            return;
        }
        if before == DepotState::Down {
            self.tell(out, None, Some(id), Happening::DepotUp, Reason::DepotBack);
        }
        self.bring_up_to_date();
        for request in self.index.users(id) {
            if before == DepotState::Down {
                self.remember_back(request, id);
            }
            self.ask_if_used(request, id, Reason::DepotBack, out);
            self.fill_fan_out(request, out);
        }
        self.ask_near(id, out);
        if !out.commands.iter().any(|command| is_asked(command, id)) {
            // It held nothing to lose.
            self.judge_loss(id, true);
        }
        self.unpark_all(id);
        self.look_now();
    }

    /// Records that a depot used by a moving request is back.
    fn remember_back(&mut self, id: RequestId, depot: DepotId) {
        let is_missed = self.requests.get(&id).is_some_and(|request| {
            let lane = request.lane_of(depot);
            request.is_moving() && lane.is_some_and(|lane| request.lanes[lane].is_used)
        });
        if is_missed {
            self.remember_depot(id, depot, Happening::DepotUp, Reason::DepotBack, 0);
            self.blame_for(id, Cause::Loss, Some(depot));
        }
    }

    /// Asks what the depot holds of the request, if anything was ever sent there.
    pub(crate) fn ask_if_used(
        &mut self,
        id: RequestId,
        depot: DepotId,
        reason: Reason,
        out: &mut Outbox,
    ) {
        let now = self.now;
        let Some(request) = self.requests.get_mut(&id) else {
            return;
        };
        let Some(lane) = request.lane_of(depot) else {
            return;
        };
        if request.lanes[lane].is_used {
            request.lanes[lane].asked_at = Some(now);
            if !request.uncommon.stored_since_asked.is_empty() {
                request.uncommon.stored_since_asked.remove(&depot);
            }
            out.commands.push(Command::Inventory {
                request: id,
                depot,
                reason,
            });
        } else {
            request.replica.set_live(lane, true);
            self.reset_push(id);
        }
    }

    /// Gives chunks that waited for this depot another chance.
    pub(crate) fn unpark_all(&mut self, depot: DepotId) {
        self.bring_up_to_date();
        self.revive_pushes(depot);
        for id in self.index.users(depot) {
            let has_parked =
                |request: &Request| request.is_moving() && request.replica.has_parked();
            if self.requests.get(&id).is_some_and(has_parked)
                && let Some(request) = self.requests.get_mut(&id)
            {
                request.replica.unpark();
            }
        }
    }

    /// Accepts a depot again that answered while at rest, once that time is over.
    pub(crate) fn take_back_depot(&mut self, id: DepotId, out: &mut Outbox) {
        let depot = self.depots.get(&id);
        let is_due = depot.filter(|depot| depot.hold_until <= self.now);
        if let Some(answer) = is_due.and_then(|depot| depot.answered.clone()) {
            self.on_depot_up(id, answer.free, answer.rate_max, out);
        }
    }
}

fn is_asked(command: &Command, of: DepotId) -> bool {
    matches!(command, Command::Inventory { depot, .. } if *depot == of)
}
