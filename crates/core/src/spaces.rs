//! Space that depots keep for a request (`docs/algorithms/placement.md`). It is what the last look
//! counted on storing there, so that no other user of the depot takes it meanwhile. Until it is
//! granted, and if it is refused, data goes as far as there is room.

use alloc::{string::String, sync::Arc, vec::Vec};
use core::time::Duration;
use posthaste_plan::reserve::AHEAD_MAX;
use posthaste_types::{Bytes, DepotId, RequestId, Timestamp};

use crate::{
    Mind,
    books::{Depot, Request},
    contract::{Command, Outbox, Reason, SpaceNews, SpaceReason},
};

/// Time after which an unanswered request counts as lost.
const ANSWER_WAIT: Duration = Duration::from_secs(120);
/// Time before refused space is asked for again: others may have left by then. A depot that did not
/// comply rests for twice as long, and twice that each time,
const ASK_AGAIN: Duration = Duration::from_secs(10);
/// up to 85 minutes.
const DOUBLINGS_MAX: u32 = 9;
/// Time before granted space is given back: forecasts swing.
const KEEP: Duration = Duration::from_secs(30);
/// Share of what is needed by which kept space may differ: a quarter.
const DIFFERS_FROM: u64 = 4;
/// Time for which it is kept beyond the forecast end: the service may be gone for good.
const BEYOND: Duration = Duration::from_secs(3600);
/// Span for which it is asked at once, well within what relays promise, as their clocks differ;
/// then it is prolonged.
const AHEAD: Duration = Duration::from_secs(AHEAD_MAX.as_secs() / 4 * 3);
/// Time left at which it is prolonged.
const PROLONG_AT: Duration = Duration::from_secs(1800);
/// Time before space is given back to a depot that is away.
const AWAY: Duration = Duration::from_secs(60);
/// Most requests for which a depot is asked to keep space at once, half of what a relay keeps:
/// others use it too. The rest go without until some of those are done.
const KEPT_AT_ONCE: usize = 512;
/// Times that space is given back without an answer: then its own end must suffice, which comes
/// before that.
const RETURNS_MAX: u32 = 9;

impl Mind {
    /// Records whether a depot can keep space for datasets.
    pub(crate) fn on_depot_reserves(&mut self, depot: DepotId, reserves: bool) {
        if self.depots.contains_key(&depot) && self.spaces.is_able(depot) != reserves {
            self.spaces.set_able(depot, reserves);
        }
    }

    /// Asks depots to keep what the last look counted on storing there, if that is new or has
    /// changed much.
    pub(crate) fn review_space(&mut self, id: RequestId, out: &mut Outbox) {
        if self.spaces.is_idle() {
            return;
        }
        let Some(request) = self
            .requests
            .get(&id)
            .filter(|request| request.is_under_way())
        else {
            return;
        };
        let finish = request.finish.map_or(self.now, |finish| finish.p90);
        let until = finish.max(request.spec.deadline).max(self.now);
        let until = until.min(self.now + AHEAD) + BEYOND;
        let wishes: Vec<(DepotId, Bytes)> = (0..request.lanes.len())
            .map(|place| (request.lanes[place].depot, space_wish(request, place)))
            .filter(|(depot, _)| self.spaces.is_able(*depot))
            .collect();
        for (depot, wish) in wishes {
            self.ask_for_space(depot, id, wish, until, out);
        }
    }

    fn ask_for_space(
        &mut self,
        at: DepotId,
        id: RequestId,
        wish: Bytes,
        until: Timestamp,
        out: &mut Outbox,
    ) {
        let now = self.now;
        let known = self.spaces.get(at, id).copied();
        let is_new = known.is_none();
        let is_one_too_many = is_new && self.spaces.count_at(at) >= KEPT_AT_ONCE;
        if (is_new && wish == Bytes::ZERO)
            || is_one_too_many
            || !self.depots.get(&at).is_some_and(Depot::is_up)
        {
            return;
        }
        let space = known.unwrap_or_default();
        let wish = space.most.map_or(wish, |most| wish.min(most));
        let (more, less) = (wish - space.held, space.held - wish);
        let differs = more.max(less).times(DIFFERS_FROM) >= space.held.max(Bytes::new(1));
        let lapses = wish > Bytes::ZERO && space.until < now + PROLONG_AT;
        let is_early = less > Bytes::ZERO && now < space.shrinks_at;
        if space.due > now || !(lapses || (differs && !is_early)) {
            return;
        }
        self.spaces.change(at, id, |space| {
            (space.asked, space.due, space.is_ending) = (Some(wish), now + ANSWER_WAIT, false);
        });
        out.commands.push(if wish == Bytes::ZERO {
            give_back(id, at)
        } else {
            let why = SpaceReason::Needed { bytes: wish };
            Command::ReserveSpace {
                request: id,
                depot: at,
                bytes: wish,
                until,
                reason: Reason::Space { why },
            }
        });
    }

    /// Handles the answer about space that was asked for or given back.
    pub(crate) fn on_space_told(&mut self, id: RequestId, at: DepotId, news: SpaceNews) {
        let now = self.now;
        let known = self.spaces.get(at, id).copied();
        let is_moving = self.requests.get(&id).is_some_and(Request::is_under_way);
        if !self.depots.contains_key(&at) {
            return;
        }
        match news {
            SpaceNews::Released => self.spaces.remove(at, id),
            SpaceNews::Granted { bytes, until } => {
                self.spaces.change(at, id, |space| {
                    (space.held, space.until, space.asked) = (bytes, until, None);
                    (space.most, space.is_refused, space.failures) = (None, false, 0);
                    (space.due, space.shrinks_at) = (now, now + KEEP);
                    space.is_ending = !is_moving;
                });
                if known.is_none_or(|known| known.held == Bytes::ZERO) && is_moving {
                    let what = String::from("space is reserved");
                    self.remember_space(id, at, what, SpaceReason::Needed { bytes });
                }
            }
            SpaceNews::Refused { most } => self.on_space_refused(id, at, most),
            SpaceNews::Failed if known.is_some() => self.spaces.change(at, id, |space| {
                space.failures += u32::from(!space.is_ending);
                let pause = ASK_AGAIN * (1 << space.failures.min(DOUBLINGS_MAX));
                (space.asked, space.due) = (None, now + pause);
            }),
            SpaceNews::Failed => {}
        }
        self.requests.touch(id);
    }

    /// Handles a refusal, as others have the missing space: plans count on no more from now on.
    fn on_space_refused(&mut self, id: RequestId, at: DepotId, most: Bytes) {
        let now = self.now;
        let Some(known) = self.spaces.get(at, id).copied() else {
            return;
        };
        let spare = self.spare_at(at) - self.spare_of(id, at);
        let stored = self.stored_at(id, at);
        if let Some(depot) = self.depots.get_mut(&at) {
            depot.free = depot.free.min(spare + (most - stored));
        }
        self.spaces.change(at, id, |space| {
            (space.asked, space.most) = (None, Some(most));
            (space.due, space.is_refused) = (now + ASK_AGAIN, true);
        });
        if let Some(wanted) = known.asked.filter(|_| !known.is_refused) {
            let what = String::from("space is refused");
            self.remember_space(id, at, what, SpaceReason::Refused { wanted, most });
        }
        self.look_now();
    }

    fn remember_space(&mut self, id: RequestId, at: DepotId, what: String, why: SpaceReason) {
        let name = self.name_of(at);
        self.remember_of(id, name, 1, what, Reason::Space { why });
    }

    /// Returns space kept at a depot for requests that is not filled yet. It is free for us,
    /// whatever the depot says, and so will be space being given back.
    pub(crate) fn spare_at(&self, at: DepotId) -> Bytes {
        let all = self.spaces.at(at);
        all.map(|(request, _)| self.spare_of(request, at)).sum()
    }

    /// Returns such space of one request.
    fn spare_of(&self, id: RequestId, at: DepotId) -> Bytes {
        let space = self.spaces.get(at, id);
        let space = space.filter(|space| space.until > self.now);
        space.map_or(Bytes::ZERO, |space| space.held - self.stored_at(id, at))
    }

    fn stored_at(&self, id: RequestId, at: DepotId) -> Bytes {
        let request = self.requests.get(&id);
        let lane = request.and_then(|request| Some((request, request.lane_of(at)?)));
        lane.map_or(Bytes::ZERO, |(request, lane)| {
            request.replica.stored(lane).1
        })
    }

    /// Returns the space of a depot that no other request may use. It is what the last look counted
    /// on, or what the depot keeps if that is more.
    pub(crate) fn kept_at(&self, id: RequestId, request: &Request, place: usize) -> Bytes {
        let lane = &request.lanes[place];
        let piece = request.piece(place);
        let planned = piece.times(lane.kept.into());
        let Some(space) = self.spaces.get(lane.depot, id) else {
            return planned;
        };
        let coming = piece.times((lane.in_flight + lane.awaited).into());
        planned.max(space.held - request.replica.stored(place).1 - coming)
    }

    /// Returns the space kept for a request on each of its depots.
    pub(crate) fn kept_free(&self, id: RequestId, request: &Request) -> Arc<[(DepotId, Bytes)]> {
        if !request.is_under_way() || request.is_leftover {
            return Arc::default();
        }
        let all = (0..request.lanes.len()).map(|place| {
            let kept = self.kept_at(id, request, place);
            (request.lanes[place].depot, kept)
        });
        all.filter(|(_, kept)| *kept > Bytes::ZERO).collect()
    }

    /// Returns the space held for a delivery in progress at each of its destinations.
    pub(crate) fn held_free(&self, id: RequestId, request: &Request) -> Vec<(DepotId, Bytes)> {
        let all = request.destinations().map(|lane| {
            let held = self.held_for_delivery(id, request, lane);
            (request.lanes[lane].depot, held)
        });
        all.filter(|(_, held)| *held > Bytes::ZERO).collect()
    }

    /// Ends the space of a request that does not move, or waits, beyond what is stored.
    pub(crate) fn end_space(&mut self, id: RequestId) {
        if self.spaces.is_idle() {
            return;
        }
        let Some(request) = self
            .requests
            .get(&id)
            .filter(|request| !request.is_under_way())
        else {
            return;
        };
        let now = self.now;
        for lane in &request.lanes {
            let space = self.spaces.get(lane.depot, id);
            if let Some(space) = space.filter(|space| !space.is_ending) {
                let due = if space.asked.is_some() {
                    space.due
                } else {
                    now
                };
                self.spaces.change(lane.depot, id, |space| {
                    (space.is_ending, space.due, space.failures) = (true, due, 0);
                });
            }
        }
    }

    /// Gives back space no longer needed.
    pub(crate) fn give_back_space(&mut self, out: &mut Outbox) {
        let now = self.now;
        let next = |mind: &Self| mind.spaces.next_ending().filter(|(due, _)| *due <= now);
        while let Some((_, (id, at))) = next(self) {
            let Some(space) = self.spaces.get(at, id).copied() else {
                return;
            };
            let is_up = self.depots.get(&at).is_some_and(Depot::is_up);
            if space.until <= now || space.failures >= RETURNS_MAX {
                self.spaces.remove(at, id);
            } else if is_up {
                self.spaces.change(at, id, |space| {
                    (space.asked, space.due) = (Some(Bytes::ZERO), now + ANSWER_WAIT);
                    space.failures += 1;
                });
                out.commands.push(give_back(id, at));
            } else {
                self.spaces.change(at, id, |space| space.due = now + AWAY);
            }
        }
    }

    /// Asks depots again about space, as the outcome of earlier requests is unknown.
    pub(crate) fn ask_for_space_again(&mut self) {
        let now = self.now;
        for (depot, request) in self.spaces.all() {
            self.spaces.change(depot, request, |space| {
                (space.asked, space.due, space.failures) = (None, now, 0);
            });
        }
    }

    /// Marks the space kept by a depot that was gone as unknown.
    pub(crate) fn doubt_space(&mut self, at: DepotId) {
        let now = self.now;
        let all: Vec<RequestId> = self.spaces.at(at).map(|(request, _)| request).collect();
        for request in all {
            self.spaces.change(at, request, |space| {
                (space.held, space.asked) = (Bytes::ZERO, None);
                (space.due, space.failures) = (now, 0);
            });
            self.requests.touch(request);
        }
    }

    /// Lets requests ask again after a depot reports its free space: what it refused may fit now.
    pub(crate) fn reconsider_space(&mut self, at: DepotId) {
        let refused = self.spaces.at(at).filter(|(_, space)| space.most.is_some());
        let refused: Vec<RequestId> = refused.map(|(request, _)| request).collect();
        for request in refused {
            self.spaces.change(at, request, |space| space.most = None);
        }
    }
}

/// Returns the space for data stored of a request in a lane, and to come. A request that can't be
/// on time excludes no others.
fn space_wish(request: &Request, place: usize) -> Bytes {
    if request.is_leftover {
        return Bytes::ZERO;
    }
    let lane = &request.lanes[place];
    // Fragments from coding depots are part of the kept space.
    let coming = lane.kept.max(lane.awaited).saturating_add(lane.in_flight);
    if coming == 0 {
        return Bytes::ZERO;
    }
    let (piece, stored) = (request.piece(place), request.replica.stored(place).1);
    // Fragments on their way may be there already.
    let most = piece.times(request.replica.chunks().into());
    (stored + piece.times(coming.into())).min(most)
}

fn give_back(request: RequestId, depot: DepotId) -> Command {
    let why = SpaceReason::Spare;
    Command::ReleaseSpace {
        request,
        depot,
        reason: Reason::Space { why },
    }
}
