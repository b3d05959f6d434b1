use alloc::string::String;
use posthaste_types::RequestId;

use crate::{
    Mind,
    contract::{ArrivalState, Happening, Outbox, Pause, Reason},
};

impl Mind {
    /// Pauses a running request at a user's request. Sends of the centre end now; fetches and
    /// pushes between depots end by themselves, a few chunks each. Stored data stays, and so does
    /// the deadline. Repair goes on if its source is gone: that can't wait.
    pub(crate) fn on_paused(&mut self, id: RequestId, by: String, out: &mut Outbox) {
        let since = self.now;
        let pause = Pause { by, since };
        let reason = Reason::Paused {
            by: pause.by.clone(),
            since,
        };
        if let Some(arrival) = self.arrivals.requests.get_mut(&id) {
            let may = arrival.state.is_live() && arrival.state != ArrivalState::Landing;
            if !may || arrival.is_paused() {
                return;
            }
            arrival.paused = Some(pause);
            self.tell(out, Some(id), None, Happening::Paused, reason);
            self.look_at_arrivals_now();
            return;
        }
        if let Some(held) = self.held_mut(id) {
            if held.uncommon.paused.is_none() {
                held.uncommon.paused = Some(pause);
                self.tell(out, Some(id), None, Happening::Paused, reason);
            }
            return;
        }
        let request = self.requests.get_mut(&id);
        let Some(request) = request.filter(|request| !request.is_final() && !request.is_paused())
        else {
            return;
        };
        request.uncommon.paused = Some(pause);
        for lane in &mut request.lanes {
            lane.kept = 0;
        }
        self.abandon_sends(id, &reason, out);
        self.tell(out, Some(id), None, Happening::Paused, reason);
        self.unplan();
        self.look_now();
    }

    /// Resumes a request at a user's request: everything about it is judged anew.
    pub(crate) fn on_resumed(&mut self, id: RequestId, by: String, out: &mut Outbox) {
        if let Some(arrival) = self.arrivals.requests.get_mut(&id) {
            if let Some(pause) = arrival.paused.take().filter(|_| arrival.state.is_live()) {
                self.say_resumed(id, by, &pause, out);
                self.look_at_arrivals_now();
            }
            return;
        }
        let held = self.held_mut(id);
        if let Some(pause) = held.and_then(|held| held.uncommon.paused.take()) {
            self.say_resumed(id, by, &pause, out);
            return;
        }
        let request = self.requests.get_mut(&id);
        let Some(request) = request.filter(|request| request.is_paused()) else {
            return;
        };
        let Some(pause) = request.uncommon.paused.take() else {
            return;
        };
        request.replica.unpark();
        self.say_resumed(id, by, &pause, out);
        self.refresh_stripes(id);
        self.pushes.offer(id);
        self.settle(id, out);
        self.unplan();
        self.look_now();
    }

    fn say_resumed(&mut self, id: RequestId, by: String, pause: &Pause, out: &mut Outbox) {
        let since = pause.since;
        let reason = Reason::Resumed { by, since };
        self.tell(out, Some(id), None, Happening::Resumed, reason);
    }
}
