use alloc::{
    boxed::Box,
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    vec::Vec,
};
use core::ops::Bound;
use posthaste_types::{Bytes, DepotId, RequestId, Timestamp, record};

use crate::state::{Blank, Rare, Request, Turn};

record! {
    /// Order of requests: those that can be on time before those that can't, the earliest deadline
    /// first (`docs/algorithms/greedy-planner.md`). Those that can't follow their turns
    /// (`docs/algorithms/fair-shares.md`).
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
    pub(crate) struct Urgency {
        pub(crate) is_leftover: bool,
        /// Turn; equal for all that can be on time.
        pub(crate) turn: Turn,
        pub(crate) deadline: Timestamp,
        pub(crate) request: RequestId,
    }
}

impl Urgency {
    /// Returns the urgency of a request that is not registered yet.
    pub(crate) fn of_newcomer(id: RequestId, request: &Request) -> Self {
        Self {
            is_leftover: false,
            turn: Turn::default(),
            deadline: request.aim(),
            request: id,
        }
    }
}

record! {
    /// Index entry of a request.
    #[derive(Debug, Clone, PartialEq, Eq, Default)]
    pub(crate) struct Entry {
        /// Urgency, while it moves.
        pub(crate) urgency: Option<Urgency>,
        /// Time at which its deadline next needs a report.
        pub(crate) call: Option<Timestamp>,
        /// Depots to which it could send something now, if they have room.
        pub(crate) wants: Arc<[DepotId]>,
        /// True if it is wanted there by a moment, and is neither there yet nor late.
        pub(crate) is_due: bool,
        /// True if the report about that changes with time.
        pub(crate) is_watched: bool,
        /// Depots it may use, as long as what they hold of it matters.
        pub(crate) uses: Arc<[DepotId]>,
        /// Space kept for it.
        pub(crate) kept_free: Arc<[(DepotId, Bytes)]>,
        /// True while a depot is being asked what it holds of it.
        pub(crate) is_asking: bool,
        /// True once nothing about it can change any more.
        pub(crate) is_final: bool,
        /// True if depots hold something of it.
        pub(crate) is_held: bool,
        pub(crate) rest: Rare<Rest>,
    }
}

impl Entry {
    /// Shares lists of depots with another request: most consecutive ones have equal lists.
    fn share(&mut self, other: &Self) {
        share(&mut self.wants, &other.wants);
        share(&mut self.uses, &other.uses);
        share(&mut self.kept_free, &other.kept_free);
    }
}

record! {
    /// Index data that few waiting requests have.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub(crate) struct Rest {
        /// Time at which its rate lets it send on, or its release is tried again, if it waits for
        /// that.
        pub(crate) resumes: Option<Timestamp>,
        /// Urgency for fragments that go on between depots, while there is something to review.
        pub(crate) push: Option<Urgency>,
        /// Depots nearer the destination to which fragments may go on.
        pub(crate) nearer: Vec<DepotId>,
        /// Order at destinations while they lack something: those promised by a moment, the
        /// earliest first, then the others by their deadlines.
        pub(crate) delivers_by: Option<(bool, Timestamp)>,
        /// Space held at destinations for data that is safe and goes there.
        pub(crate) held: Vec<(DepotId, Bytes)>,
    }
}

impl Blank for Rest {
    const BLANK: &'static Self = &Self {
        resumes: None,
        push: None,
        nearer: Vec::new(),
        delivers_by: None,
        held: Vec::new(),
    };
}

record! {
    /// Requests by what is asked of all of them, so that a step visits those concerned and not each
    /// of a hundred thousand.
    #[derive(Debug, Clone, PartialEq, Eq, Default)]
    pub(crate) struct Index {
        /// Boxed: nodes of the map have room for eleven entries, and many places are empty.
        entries: BTreeMap<RequestId, Box<Entry>>,
        order: BTreeSet<Urgency>,
        calls: BTreeSet<(Timestamp, RequestId)>,
        resumes: BTreeSet<(Timestamp, RequestId)>,
        wants: BTreeMap<DepotId, BTreeSet<Urgency>>,
        pushes: BTreeMap<DepotId, BTreeSet<Urgency>>,
        users: BTreeMap<DepotId, BTreeSet<RequestId>>,
        kept: BTreeMap<DepotId, Bytes>,
        held: BTreeMap<DepotId, Bytes>,
        timers: BTreeSet<(Timestamp, DepotId)>,
        timer_of: BTreeMap<DepotId, Timestamp>,
        asking: BTreeSet<RequestId>,
        delivering: BTreeSet<((bool, Timestamp), RequestId)>,
        due: BTreeSet<RequestId>,
        watched: BTreeSet<RequestId>,
        finals: BTreeSet<RequestId>,
        held_of: BTreeSet<RequestId>,
    }
}

impl Index {
    /// Shares equal lists among decoded entries.
    pub(crate) fn share(&mut self) {
        let mut entries = self.entries.values_mut();
        let mut last = entries.next();
        for entry in entries {
            last.into_iter().for_each(|last| entry.share(last));
            last = Some(entry);
        }
    }

    /// Records the present state of a request.
    pub(crate) fn set(&mut self, id: RequestId, mut new: Entry) {
        if let Some((_, before)) = self.entries.range(..id).next_back() {
            new.share(before);
        }
        self.replace(id, new);
    }

    fn replace(&mut self, id: RequestId, new: Entry) {
        let old = self.entries.get_mut(&id);
        let old = old
            .map(|old| core::mem::take(&mut **old))
            .unwrap_or_default();
        if old.urgency != new.urgency {
            old.urgency.map(|urgency| self.order.remove(&urgency));
            self.order.extend(new.urgency);
        }
        if old.call != new.call {
            old.call.map(|call| self.calls.remove(&(call, id)));
            self.calls.extend(new.call.map(|call| (call, id)));
        }
        if old.rest.resumes != new.rest.resumes {
            old.rest.resumes.map(|at| self.resumes.remove(&(at, id)));
            self.resumes.extend(new.rest.resumes.map(|at| (at, id)));
        }
        if (old.urgency, &old.wants) != (new.urgency, &new.wants) {
            if let Some(urgency) = old.urgency {
                for depot in old.wants.iter() {
                    self.wants
                        .get_mut(depot)
                        .map(|wants| wants.remove(&urgency));
                }
            }
            if let Some(urgency) = new.urgency {
                for &depot in new.wants.iter() {
                    self.wants.entry(depot).or_default().insert(urgency);
                }
            }
        }
        if (old.rest.push, &old.rest.nearer) != (new.rest.push, &new.rest.nearer) {
            if let Some(urgency) = old.rest.push {
                for depot in &old.rest.nearer {
                    let pushes = self.pushes.get_mut(depot);
                    pushes.map(|pushes| pushes.remove(&urgency));
                }
                self.pushes.retain(|_, pushes| !pushes.is_empty());
            }
            if let Some(urgency) = new.rest.push {
                for &depot in &new.rest.nearer {
                    self.pushes.entry(depot).or_default().insert(urgency);
                }
            }
        }
        if old.rest.delivers_by != new.rest.delivers_by {
            old.rest
                .delivers_by
                .map(|by| self.delivering.remove(&(by, id)));
            self.delivering
                .extend(new.rest.delivers_by.map(|by| (by, id)));
        }
        if old.uses != new.uses {
            for depot in old.uses.iter() {
                self.users.get_mut(depot).map(|users| users.remove(&id));
            }
            for &depot in new.uses.iter() {
                self.users.entry(depot).or_default().insert(id);
            }
        }
        change_sums(&mut self.kept, &old.kept_free, &new.kept_free);
        change_sums(&mut self.held, &old.rest.held, &new.rest.held);
        self.set_members(id, &new);
        if new == Entry::default() {
            self.entries.remove(&id);
        } else {
            **self.entries.entry(id).or_default() = new;
        }
    }

    fn set_members(&mut self, id: RequestId, new: &Entry) {
        set_member(&mut self.due, id, new.is_due);
        set_member(&mut self.watched, id, new.is_watched);
        set_member(&mut self.asking, id, new.is_asking);
        set_member(&mut self.finals, id, new.is_final);
        set_member(&mut self.held_of, id, new.is_held);
    }

    /// Returns whether this request moves.
    pub(crate) fn moves(&self, id: RequestId) -> bool {
        let entry = self.entries.get(&id);
        entry.is_some_and(|entry| entry.urgency.is_some())
    }

    /// Returns the urgency of a request that moves.
    pub(crate) fn urgency(&self, id: RequestId) -> Option<Urgency> {
        self.entries.get(&id)?.urgency
    }

    /// Returns whether no request moves.
    pub(crate) fn is_idle(&self) -> bool {
        self.order.is_empty()
    }

    /// Counts the requests that move.
    pub(crate) fn moving(&self) -> usize {
        self.order.len()
    }

    /// Returns requests that move, the most urgent first, after one of them.
    pub(crate) fn after(&self, urgency: Option<Urgency>) -> impl Iterator<Item = Urgency> + '_ {
        let from = urgency.map_or(Bound::Unbounded, Bound::Excluded);
        self.order.range((from, Bound::Unbounded)).copied()
    }

    /// Returns the most urgent request that could send something to the depot, after one of them.
    pub(crate) fn next_for(&self, depot: DepotId, after: Option<Urgency>) -> Option<Urgency> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let wants = self.wants.get(&depot)?;
        wants.range((from, Bound::Unbounded)).next().copied()
    }

    /// Returns the most urgent request of which something may go on to the depot, after one of
    /// them.
    pub(crate) fn next_push(&self, depot: DepotId, after: Option<Urgency>) -> Option<Urgency> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let pushes = self.pushes.get(&depot)?;
        pushes.range((from, Bound::Unbounded)).next().copied()
    }

    /// Returns depots to which something may go on.
    pub(crate) fn push_targets(&self) -> Vec<DepotId> {
        self.pushes.keys().copied().collect()
    }

    /// Returns requests that may use the depot, as long as what it holds of them matters.
    pub(crate) fn users(&self, depot: DepotId) -> Vec<RequestId> {
        let users = self.users.get(&depot);
        users.into_iter().flatten().copied().collect()
    }

    /// Returns requests of which depots hold something, the newest first: those before one, or all.
    pub(crate) fn held_before(&self, before: Option<RequestId>) -> impl Iterator<Item = RequestId> {
        let end = before.map_or(Bound::Unbounded, Bound::Excluded);
        self.held_of.range((Bound::Unbounded, end)).rev().copied()
    }

    /// Returns the space kept on the depot for all requests together.
    pub(crate) fn kept(&self, depot: DepotId) -> Bytes {
        self.kept.get(&depot).copied().unwrap_or_default()
    }

    /// Returns the space held at the destination for all deliveries that began.
    pub(crate) fn held(&self, depot: DepotId) -> Bytes {
        self.held.get(&depot).copied().unwrap_or_default()
    }

    /// Returns the space kept for one request on each of its depots.
    pub(crate) fn kept_for(&self, id: RequestId) -> &[(DepotId, Bytes)] {
        self.entries.get(&id).map_or(&[], |entry| &entry.kept_free)
    }

    /// Returns what is left of `space` on the depot after the space kept there for other requests.
    /// Space held by deliveries is missing too, beyond what is kept for this request.
    pub(crate) fn space_for(&self, id: RequestId, depot: DepotId, space: Bytes) -> Bytes {
        let (kept, held) = (self.kept(depot), self.held(depot));
        if kept + held == Bytes::ZERO {
            return space;
        }
        let mine = self.kept_for(id).iter().find(|(on, _)| *on == depot);
        let mine = mine.map_or(Bytes::ZERO, |(_, bytes)| *bytes);
        let left = space - (kept - mine);
        left.min(mine.max(left - held))
    }

    /// Returns whether that is at least so much: cheap if space is ample.
    pub(crate) fn has_space_for(
        &self,
        id: RequestId,
        depot: DepotId,
        space: Bytes,
        bytes: Bytes,
    ) -> bool {
        space >= self.kept(depot) + self.held(depot) + bytes
            || self.space_for(id, depot, space) >= bytes
    }

    /// Sets when time alone next changes something about a depot.
    pub(crate) fn set_timer(&mut self, depot: DepotId, at: Option<Timestamp>) {
        let old = match at {
            Some(at) => self.timer_of.insert(depot, at),
            None => self.timer_of.remove(&depot),
        };
        if old != at {
            old.map(|old| self.timers.remove(&(old, depot)));
            self.timers.extend(at.map(|at| (at, depot)));
        }
    }

    /// Returns when time alone next changes something about any depot.
    pub(crate) fn next_timer(&self) -> Option<Timestamp> {
        self.timers.first().map(|(at, _)| *at)
    }

    /// Returns depots about which time has changed something.
    pub(crate) fn timed(&self, now: Timestamp) -> Vec<DepotId> {
        let due = self.timers.iter().take_while(|(at, _)| *at <= now);
        due.map(|(_, id)| *id).collect()
    }

    /// Returns when a deadline next needs a report.
    pub(crate) fn next_call(&self) -> Option<Timestamp> {
        self.calls.first().map(|(at, _)| *at)
    }

    /// Returns requests whose deadline needs a report now.
    pub(crate) fn called(&self, now: Timestamp) -> Vec<RequestId> {
        let due = self.calls.iter().take_while(|(at, _)| *at <= now);
        due.map(|(_, id)| *id).collect()
    }

    /// Returns when the rate of any request next lets it send on.
    pub(crate) fn next_resume(&self) -> Option<Timestamp> {
        self.resumes.first().map(|(at, _)| *at)
    }

    /// Returns requests whose rate lets them send on now.
    pub(crate) fn resumed(&self, now: Timestamp) -> Vec<RequestId> {
        let due = self.resumes.iter().take_while(|(at, _)| *at <= now);
        due.map(|(_, id)| *id).collect()
    }

    /// Returns requests of which destinations lack something, the most urgent first.
    pub(crate) fn delivering(&self) -> impl Iterator<Item = RequestId> + '_ {
        self.delivering.iter().map(|(_, id)| *id)
    }

    /// Counts those requests.
    pub(crate) fn deliveries(&self) -> usize {
        self.delivering.len()
    }

    /// Returns requests that are wanted at their destinations by a moment, and are neither there
    /// yet nor late.
    pub(crate) fn due(&self) -> &BTreeSet<RequestId> {
        &self.due
    }

    /// Returns whether time alone changes the report about any of those.
    pub(crate) fn is_watching(&self) -> bool {
        !self.watched.is_empty()
    }

    /// Returns requests of which a depot is being asked what it holds.
    pub(crate) fn asking(&self) -> &BTreeSet<RequestId> {
        &self.asking
    }

    /// Returns the oldest requests that are over, beyond the `most` that are kept.
    pub(crate) fn forgettable(&self, most: u32) -> Vec<RequestId> {
        let beyond = self.finals.len().saturating_sub(most as usize);
        self.finals.iter().take(beyond).copied().collect()
    }
}

fn share<T: PartialEq>(mine: &mut Arc<[T]>, other: &Arc<[T]>) {
    if mine == other {
        *mine = Arc::clone(other);
    }
}

/// Updates sums with one request's contribution.
fn change_sums(
    sums: &mut BTreeMap<DepotId, Bytes>,
    old: &[(DepotId, Bytes)],
    new: &[(DepotId, Bytes)],
) {
    if old == new {
        return;
    }
    for &(depot, bytes) in new {
        *sums.entry(depot).or_default() += bytes;
    }
    for (depot, bytes) in old {
        if let Some(sum) = sums.get_mut(depot) {
            *sum -= *bytes;
        }
    }
}

fn set_member(set: &mut BTreeSet<RequestId>, id: RequestId, is_member: bool) {
    if is_member {
        set.insert(id);
    } else {
        set.remove(&id);
    }
}
