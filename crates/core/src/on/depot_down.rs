use alloc::vec::Vec;
use core::time::Duration;
use posthaste_types::{ChunkIndex, DepotId, RequestId};

use crate::{
    Mind,
    contract::{Cause, Command, DepotState, Fault, Happening, Outbox, Reason, RequestState},
    dispatch::is_lasting,
};

/// Tolerance for a depot to go before its hours end, and to come after they begin.
const EARLY: Duration = Duration::from_secs(60);
const LATE: Duration = Duration::from_secs(60);

/// Time after its rest after which a depot counts as good as new.
const STEADY: Duration = Duration::from_secs(60);

impl Mind {
    /// Handles a depot that did not answer. One that keeps doing so rests longer and longer.
    pub(crate) fn on_depot_down(&mut self, id: DepotId, fault: Fault, out: &mut Outbox) {
        let Some(depot) = self.depots.get(&id) else {
            return;
        };
        // A depot whose hours never open does not come back by them.
        let has_hours = depot.terms.windows.next_change(self.now).is_some();
        let is_within = |at| depot.is_within_hours(at) || !has_hours;
        let is_outside = !is_within(self.now + EARLY) || !is_within(self.now);
        if depot.is_down() {
            let is_overdue = depot.is_away && !is_outside && is_within(self.now - LATE);
            if let Some(depot) = self.depots.get_mut(&id) {
                depot.answered = None;
            }
            if is_overdue {
                self.lose(id, Reason::DepotLost { fault }, 0, out);
            }
            return;
        }
        if is_outside {
            self.let_go(id, out);
            return;
        }
        // The first loss costs nothing: a relay may restart.
        let is_first = depot.losses == 0 || depot.hold_until + STEADY <= self.now;
        let hold = if is_first && !is_lasting(fault) { 0 } else { 1 };
        self.lose(id, Reason::DepotLost { fault }, hold, out);
    }

    /// Lets a depot go as its hours say: nothing is lost with it.
    fn let_go(&mut self, id: DepotId, out: &mut Outbox) {
        let Some(depot) = self.depots.get_mut(&id) else {
            return;
        };
        (depot.state, depot.is_away) = (DepotState::Down, true);
        (depot.answered, depot.failures) = (None, 0);
        self.tell(
            out,
            None,
            Some(id),
            Happening::DepotDown,
            Reason::OutsideHours,
        );
        self.unplan();
        self.bring_up_to_date();
        for request in self.index.users(id) {
            self.blame_for(request, Cause::Hours, Some(id));
            if self.end_flights(id, Some(request)) > 0 {
                let reason = Reason::OutsideHours;
                out.commands.push(Command::Abandon {
                    request,
                    depot: id,
                    reason,
                });
            }
            self.fill_fan_out(request, out);
        }
        self.abandon_pushes_from(id, &Reason::OutsideHours, out);
        self.look_now();
    }

    /// Declares a depot lost to which sends keep failing though it answers.
    pub(crate) fn lose_to_failures(
        &mut self,
        id: DepotId,
        reason: Reason,
        fault: Fault,
        out: &mut Outbox,
    ) {
        let Some(depot) = self.depots.get_mut(&id) else {
            return;
        };
        depot.fruitless += 1;
        let hold = if is_lasting(fault) { 4 } else { 1 };
        self.lose(id, reason, hold, out);
    }

    /// Declares the depot lost: flights to it are sent elsewhere, and what it holds no longer
    /// counts.
    fn lose(&mut self, id: DepotId, reason: Reason, hold_factor: u32, out: &mut Outbox) {
        let now = self.now;
        let Some(depot) = self.depots.get_mut(&id) else {
            return;
        };
        let is_steady = depot.hold_until + STEADY <= now;
        depot.losses = if is_steady { 1 } else { depot.losses + 1 };
        let hold = self.settings.hold * hold_factor * (1 << depot.losses.saturating_sub(1).min(8));
        depot.hold_until = now + hold.min(self.settings.hold_max);
        if !depot.is_down() {
            depot.down_since = now;
        }
        (depot.state, depot.is_away) = (DepotState::Down, false);
        depot.history.on_lost(now);
        depot.answered = None;
        depot.failures = 0;
        self.judge_rest();
        self.tell(out, None, Some(id), Happening::DepotDown, reason.clone());
        self.drop_depot(id, &reason, out);
    }

    /// Forgets flights to the depot and stops counting what it holds.
    pub(crate) fn drop_depot(&mut self, id: DepotId, reason: &Reason, out: &mut Outbox) {
        self.unplan();
        self.bring_up_to_date();
        for request in self.index.users(id) {
            let ended = self.end_flights(id, Some(request));
            if ended > 0 {
                let reason = reason.clone();
                out.commands.push(Command::Abandon {
                    request,
                    depot: id,
                    reason,
                });
            }
            let (down, ended) = (
                Happening::DepotDown,
                u32::try_from(ended).unwrap_or(u32::MAX),
            );
            self.remember_depot(request, id, down, reason.clone(), ended);
            self.blame_for(request, Cause::Loss, Some(id));
            self.lose_for(request, id, out);
        }
        self.abandon_pushes_from(id, reason, out);
        self.look_now();
    }

    fn lose_for(&mut self, id: RequestId, depot: DepotId, out: &mut Outbox) {
        let Some(request) = self.requests.get_mut(&id) else {
            return;
        };
        let Some(lane) = request.lane_of(depot) else {
            return;
        };
        request.lanes[lane].asked_at = None;
        let lost = request.replica.set_live(lane, false);
        if request.lanes[lane].is_used {
            request.uncommon.last_lost = Some(depot);
        }
        self.refresh_stripes(id);
        self.reset_push(id);
        self.say_lost(id, lost, Reason::Repair { lost: depot }, out);
        self.say_thin(id, depot, out);
        self.fill_fan_out(id, out);
        self.settle(id, out);
    }

    /// Reports that data lost with a depot is not rebuilt yet.
    fn say_thin(&mut self, id: RequestId, depot: DepotId, out: &mut Outbox) {
        let request = self.requests.get(&id);
        let Some(request) = request.filter(|request| request.replica.is_thinned()) else {
            return;
        };
        let had_some = request
            .lane_of(depot)
            .is_some_and(|lane| request.replica.stored(lane).0 > 0);
        let chunks = request.replica.thin();
        if had_some && chunks > 0 {
            let losses = request.replica.survives().unwrap_or(0);
            let reason = Reason::RepairWaits {
                lost: depot,
                losses,
            };
            self.tell(out, Some(id), None, Happening::Thinned { chunks }, reason);
        }
    }

    /// Reports chunks that are no longer safe, and starts again if that can still help.
    pub(crate) fn say_lost(&mut self, id: RequestId, lost: u32, reason: Reason, out: &mut Outbox) {
        let Some(request) = self.requests.get_mut(&id).filter(|_| lost > 0) else {
            return;
        };
        match request.state {
            RequestState::Moving => {
                self.tell(
                    out,
                    Some(id),
                    None,
                    Happening::Repairing { chunks: lost },
                    reason,
                );
            }
            RequestState::Safe => {
                request.state = RequestState::Moving;
                request.uncommon.duplicates = 0;
                self.tell(
                    out,
                    Some(id),
                    None,
                    Happening::Unsafe { chunks: lost },
                    reason.clone(),
                );
                self.tell(
                    out,
                    Some(id),
                    None,
                    Happening::Repairing { chunks: lost },
                    reason,
                );
            }
            RequestState::Released => {
                request.is_thin = true;
                // What nobody has any more can't be made again.
                let mended = lost.saturating_sub(request.chunks_out_of_reach());
                let unsafe_again = Happening::Unsafe { chunks: lost };
                self.tell(out, Some(id), None, unsafe_again, reason.clone());
                if mended > 0 {
                    let repairing = Happening::Repairing { chunks: mended };
                    self.tell(out, Some(id), None, repairing, reason);
                }
            }
            RequestState::Refused
            | RequestState::Delivered
            | RequestState::Cancelled
            | RequestState::Failed => {}
        }
    }

    /// Ends the flights of a request to a depot and puts their fragments back. Returns their
    /// number.
    pub(crate) fn end_flights(&mut self, depot: DepotId, id: Option<RequestId>) -> usize {
        let ended = self.transfers.end_all(depot, id);
        for (key, flight) in &ended {
            if let Some(depot) = self.depots.get_mut(&depot) {
                depot.link.end_flight(flight);
            }
            if let Some(request) = self.requests.get_mut(&key.request)
                && let Some(lane) = request.lane_of(depot)
            {
                request.end_flight(lane, key.chunk);
                if let Some(tuning) = &mut request.lanes[lane].tuning {
                    tuning.interrupt();
                }
            }
        }
        let chunks: Vec<(RequestId, ChunkIndex)> = ended
            .iter()
            .map(|(key, _)| (key.request, key.chunk))
            .collect();
        let pushed: Vec<_> = self.pushes.to(depot, id).collect();
        for (key, flight) in &pushed {
            self.land_push(*key, flight.fragment);
        }
        let pushed = pushed.iter().map(|(key, _)| (key.request, key.chunk));
        let mut chunks: Vec<(RequestId, ChunkIndex)> = chunks.into_iter().chain(pushed).collect();
        chunks.extend(self.end_pieces_from(depot, id));
        for &(request, chunk) in &chunks {
            self.refresh_stripe(request, chunk);
        }
        chunks.len()
    }
}
