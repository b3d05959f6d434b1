//! Keeps data derived from the books up to date: the order of requests, what each waits for, and
//! when time alone changes something.

use alloc::{sync::Arc, vec::Vec};
use posthaste_types::{DepotId, RequestId, Timestamp};

use crate::{
    Mind,
    books::{Entry, Push, Rare, Release, Request, Rest, Turn, Urgency},
    contract::Hindrance,
};

impl Mind {
    /// Updates the index with the requests that were touched.
    pub(crate) fn bring_up_to_date(&mut self) {
        for id in self.requests.take_touched() {
            self.requests.settle(&id, Request::settle);
            let entry = self
                .requests
                .get(&id)
                .map(|request| self.entry_of(id, request))
                .unwrap_or_default();
            for &depot in entry.wants.iter() {
                self.depots.touch(depot);
            }
            let has_ended = self.index.moves(id) && entry.urgency.is_none();
            self.index.set(id, entry);
            // Requests that wait for it at its destination may go on.
            let lead = self.requests.get(&id).and_then(Request::lead_depot);
            if let Some(to) = lead.filter(|_| has_ended) {
                self.pushes.touch(to);
            }
            self.end_space(id);
        }
    }

    fn entry_of(&self, id: RequestId, request: &Request) -> Entry {
        let is_moving = request.is_moving();
        let deadline = request.spec.deadline;
        let is_silent = !request.at_risk && request.safe_at.is_none();
        let last_call = is_silent.then(|| self.last_call(request));
        let call = [(!request.missed).then_some(deadline), last_call];
        let urgency = Urgency {
            is_leftover: request.is_leftover,
            turn: if request.is_leftover {
                request.uncommon.turn
            } else {
                Turn::default()
            },
            deadline: request.aim(),
            request: id,
        };
        let (wants, resumes) = self.wants_now(request);
        let again = request.uncommon.release_at.filter(|at| *at > self.now);
        let resumes = resumes.into_iter().chain(again).min();
        let has_push = request.goes_on().any(Push::has_work);
        let may_deliver = request.is_kept() && !request.is_paused();
        // Requests promised at their destinations in time go there first.
        let goes_on = Urgency {
            is_leftover: request.promised_by().is_none(),
            turn: urgency.turn,
            deadline: request.promised_by().unwrap_or(urgency.deadline),
            request: id,
        };
        let due = &request.due;
        let due_by = request
            .deliver_by()
            .filter(|_| !due.missed && due.whole_at.is_none());
        let delivery_call = due_by.map(|by| match due.at_risk {
            true => by,
            false => (by - self.settings.tick).max(request.submitted),
        });
        let is_away = due.at_risk && due.hindrance == Hindrance::Away && due.finish.is_none();
        let rest = Rest {
            resumes,
            push: has_push.then_some(goes_on),
            nearer: self.nearer(request),
            delivers_by: (may_deliver && request.delivery.is_some()).then(|| {
                let by = request.promised_by();
                (by.is_none(), by.unwrap_or(deadline))
            }),
            held: self.held_free(id, request),
        };
        Entry {
            urgency: is_moving.then_some(urgency),
            call: call
                .into_iter()
                .flatten()
                .filter(|_| is_moving)
                .chain(delivery_call)
                .min(),
            wants,
            is_due: due_by.is_some(),
            is_watched: due_by.is_some() && !is_away,
            uses: if request.is_kept() {
                request.lanes.iter().map(|lane| lane.depot).collect()
            } else {
                Arc::default()
            },
            kept_free: self.kept_free(id, request),
            is_asking: request.is_asking(),
            is_final: request.is_final(),
            is_held: (0..request.lanes.len()).any(|lane| request.replica.stored(lane).0 > 0),
            rest: Rare::from(rest),
        }
    }

    /// Returns the depots the request could feed now, as far as its rate allows, else the time at
    /// which it may.
    fn wants_now(&self, request: &Request) -> (Arc<[DepotId]>, Option<Timestamp>) {
        let wants = self.wants(request);
        if request.uncommon.throttle.is_open(self.now) || wants.is_empty() {
            return (wants, None);
        }
        let opens_at = request
            .uncommon
            .throttle
            .opens_at(self.now, request.spare(&self.settings));
        (Arc::default(), opens_at)
    }

    /// Returns depots to which the request could send something now, if they had room.
    fn wants(&self, request: &Request) -> Arc<[DepotId]> {
        // A source that is being removed can't be counted on.
        let has_source = request.release != Release::Commanded && !request.awaits_inventories();
        if !request.is_under_way() || !has_source {
            return Arc::default();
        }
        let lanes = request.wanted_lanes(&self.settings);
        let lanes = request.lanes.iter().enumerate().filter(|&(place, lane)| {
            let has_turn = lane
                .tuning
                .as_ref()
                .is_none_or(|tuning| lane.in_flight < u32::from(tuning.at_once()));
            lanes >> place & 1 == 1
                && lane.is_active
                && request.quota_left(place) != Some(0)
                && lane.asked_at.is_none()
                && has_turn
                && request.is_on_route(place)
        });
        lanes.map(|(_, lane)| lane.depot).collect()
    }

    /// Returns depots to which something of the request may go on: those beyond the first level it
    /// uses, and destinations. If something is rebuilt, returns all of them.
    fn nearer(&self, request: &Request) -> Vec<DepotId> {
        if request.mend.as_deref().is_some_and(Push::has_work) {
            return request.lanes.iter().map(|lane| lane.depot).collect();
        }
        if request.is_paused() {
            return Vec::new();
        }
        let delivers = request.delivery.as_deref().is_some_and(Push::has_work);
        let whole = request.destinations().filter(|_| delivers);
        let whole = whole.map(|lane| request.lanes[lane].depot);
        if request.push.is_none() {
            return whole.collect();
        }
        let to = request.lead_depot();
        let level = |id: DepotId| Some(self.crossings.level(id, self.depots.get(&id)?, to));
        let all = request.depot_lanes().map(|lane| request.lanes[lane].depot);
        let all: Vec<DepotId> = all.collect();
        let least = all.iter().copied().filter_map(level).min();
        let nearer = all.into_iter().filter(|&depot| level(depot) > least);
        nearer.chain(whole).collect()
    }

    /// Returns the last moment at which danger can be reported well before the deadline.
    pub(crate) fn last_call(&self, request: &Request) -> Timestamp {
        (request.spec.deadline - self.settings.tick).max(request.submitted)
    }

    /// Schedules a look at everything every tick while anything is in progress.
    pub(crate) fn set_tick(&mut self) {
        let is_busy =
            !self.index.is_idle() || !self.transfers.is_empty() || !self.index.asking().is_empty();
        let is_busy = is_busy || !self.pushes.is_quiet() || self.index.is_watching();
        self.tick_at = if is_busy {
            self.tick_at.or(Some(self.now + self.settings.tick))
        } else {
            None
        };
    }

    /// Records when time alone next changes something about the touched depots.
    pub(crate) fn wind_timers(&mut self) {
        for &id in self.depots.touched() {
            let timer = self.depots.get(&id).and_then(|depot| {
                let back = depot.answered.as_ref().map(|_| depot.hold_until);
                let resume = (depot.resume_at > self.now).then_some(depot.resume_at);
                let times = [back, resume, depot.turns_at, depot.counts_at];
                times.into_iter().flatten().min()
            });
            self.index.set_timer(id, timer);
        }
    }

    /// Returns when time alone next changes something.
    pub(crate) fn find_alarm(&mut self) -> Option<Timestamp> {
        self.wind_timers();
        let sweep = self.sweep.as_ref().map(|sweep| sweep.goes_on);
        let others = [
            self.index.next_timer(),
            self.index.next_call(),
            self.index.next_resume(),
            self.tick_at,
        ];
        let more = [
            self.pushes.more_at,
            self.planning.alarm(&self.settings),
            self.next_arrival_alarm(),
            self.circuits.next_due(),
            self.spaces.next_ending().map(|(due, _)| due),
            self.forgets.next_due().map(|(due, _)| due),
        ];
        others
            .into_iter()
            .chain([sweep])
            .chain(more)
            .flatten()
            .min()
    }

    /// Forgets the oldest finished requests beyond the number kept.
    pub(crate) fn forget_oldest(&mut self) {
        self.bring_up_to_date();
        for id in self.index.forgettable(self.settings.finished_max) {
            self.requests.remove(&id);
        }
        self.bring_up_to_date();
    }
}
