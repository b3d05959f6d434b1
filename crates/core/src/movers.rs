//! Assignment of work to movers (`docs/algorithms/movers.md`): work is leased to movers that ask
//! for it, and given again if its mover is silent. The driver does what no mover may do any more.
//!
//! The driver passes on its news with the time; nothing here is written down. After a restart
//! movers join anew, and the mind repeats commands in progress.

mod give;
mod words;

use alloc::{
    collections::{BTreeMap, BTreeSet},
    string::String,
    vec::Vec,
};
use core::time::Duration;
use posthaste_types::Timestamp;

pub use words::{Heard, LeaseId, MoverId, Offer, Ticket, Turn, View};

/// Silence of a mover after which its work is given to another.
pub const LEASE_LASTS: Duration = Duration::from_secs(10);
/// Consecutive failures, of work that others could do, after which a mover rests…
const FAILURES_MAX: u32 = 3;
/// …for so long: it may see another file system, or lack a profile.
const REST: Duration = Duration::from_secs(60);
/// Movers that may have lost the same work before it is given to no other.
const LOSSES_MAX: u32 = 2;
/// Most movers at once.
pub const MOVERS_MAX: usize = 4096;
/// Most pieces of work that one mover may have at once.
pub const SLOTS_MAX: u32 = 256;

#[derive(Debug)]
struct Mover {
    name: String,
    slots: u32,
    joined: Timestamp,
    heard: Timestamp,
    /// Number of its newest turn.
    turn: u64,
    /// Work that it may take now, by its last turn.
    free: u32,
    leases: BTreeSet<LeaseId>,
    stop: Vec<LeaseId>,
    drains: bool,
    /// True once it reported that it accepts nothing more.
    leaves: bool,
    failures: u32,
    rests_until: Option<Timestamp>,
    done: u64,
    failed: u64,
}

impl Mover {
    fn may_take(&self, now: Timestamp) -> bool {
        !self.drains && !self.leaves && self.rests_until.is_none_or(|until| until <= now)
    }
}

#[derive(Debug)]
struct Work {
    offer: Offer,
    /// Lease of its mover; none while it waits.
    lease: Option<LeaseId>,
    /// Movers that were given it and fell silent.
    losses: u32,
}

/// Movers and their work.
#[derive(Debug, Default)]
pub struct Roster {
    movers: BTreeMap<MoverId, Mover>,
    leases: BTreeMap<LeaseId, (MoverId, Ticket)>,
    works: BTreeMap<Ticket, Work>,
    /// Waiting work, in the order in which it is given.
    waiting: BTreeSet<(Timestamp, Ticket)>,
    /// Waiting work by the read that it shares.
    groups: BTreeSet<(u64, Ticket)>,
    /// Names of movers that get nothing, whenever they join.
    drained: BTreeSet<String>,
    /// Work that no mover should do, for the driver.
    left: Vec<Ticket>,
    next: u64,
}

impl Roster {
    /// Builds a roster whose numbers begin after those of earlier ones: `first` grows from start to
    /// start.
    #[must_use]
    pub fn starting_at(first: u64) -> Self {
        Self {
            next: first,
            ..Self::default()
        }
    }

    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// Registers a mover, which replaces an earlier one of the same name. None if there are too
    /// many.
    pub fn join(&mut self, now: Timestamp, name: &str, slots: u32) -> Option<MoverId> {
        let before = self.movers.iter().find(|(_, mover)| mover.name == name);
        if let Some(id) = before.map(|(id, _)| *id) {
            self.remove(id, now);
        }
        if self.movers.len() >= MOVERS_MAX {
            return None;
        }
        let id = MoverId::new(self.number());
        let mover = Mover {
            name: name.into(),
            slots: slots.clamp(1, SLOTS_MAX),
            joined: now,
            heard: now,
            turn: 0,
            free: 0,
            leases: BTreeSet::new(),
            stop: Vec::new(),
            drains: self.drained.contains(name),
            leaves: false,
            failures: 0,
            rests_until: None,
            done: 0,
            failed: 0,
        };
        self.movers.insert(id, mover);
        Some(id)
    }

    /// Removes a mover that has ended by itself.
    pub fn leave(&mut self, now: Timestamp, id: MoverId) {
        self.remove(id, now);
    }

    /// Returns whether some mover may be given work.
    #[must_use]
    pub fn is_manned(&self, now: Timestamp) -> bool {
        self.movers.values().any(|mover| mover.may_take(now))
    }

    /// Offers work to movers. Returns whether it was accepted, which needs a mover that may be
    /// given work.
    pub fn offer(&mut self, now: Timestamp, offer: Offer) -> bool {
        if !self.is_manned(now) {
            return false;
        }
        let work = Work {
            offer,
            lease: None,
            losses: 0,
        };
        self.works.insert(offer.ticket, work);
        self.wait(offer);
        true
    }

    /// Withdraws work that is no longer needed.
    pub fn withdraw(&mut self, ticket: Ticket) {
        let Some(work) = self.works.remove(&ticket) else {
            return;
        };
        self.unwait(work.offer);
        let Some(lease) = work.lease else {
            return;
        };
        if let Some((id, _)) = self.leases.remove(&lease)
            && let Some(mover) = self.movers.get_mut(&id)
        {
            mover.leases.remove(&lease);
            mover.stop.push(lease);
        }
    }

    /// Records that a mover lives, in its turn of this number: each is higher than those before.
    pub fn hear(&mut self, now: Timestamp, id: MoverId, number: u64) -> Heard {
        match self.movers.get_mut(&id) {
            None => Heard::Unknown,
            Some(mover) if number <= mover.turn => Heard::Old,
            Some(mover) => {
                mover.heard = mover.heard.max(now);
                mover.turn = number;
                Heard::New
            }
        }
    }

    /// Records the leases that a mover holds, after its report of ended work. A lease it was given
    /// and does not hold did not reach it: that work waits again.
    pub fn holds(&mut self, id: MoverId, held: &BTreeSet<LeaseId>) {
        let Some(mover) = self.movers.get_mut(&id) else {
            return;
        };
        let lost: Vec<LeaseId> = mover.leases.difference(held).copied().collect();
        mover.leases.retain(|lease| held.contains(lease));
        // Withdrawn work is stopped until the mover reports on it.
        mover.stop = held.difference(&mover.leases).copied().collect();
        for lease in lost {
            self.free_again(lease);
        }
    }

    /// Gives a mover as much as it may take, in the turn of this number. None if that is no longer
    /// its newest, or the mover is unknown: it then joins anew, and its work so far does not count.
    pub fn ask(
        &mut self,
        now: Timestamp,
        id: MoverId,
        number: u64,
        free: u32,
        leaves: bool,
    ) -> Option<Turn> {
        let mover = self.movers.get_mut(&id)?;
        if mover.turn != number {
            return None;
        }
        mover.heard = mover.heard.max(now);
        mover.leaves |= leaves;
        let has = u32::try_from(mover.leases.len()).unwrap_or(u32::MAX);
        mover.free = free.min(mover.slots.saturating_sub(has));
        let mut turn = Turn {
            given: Vec::new(),
            stop: mover.stop.clone(),
        };
        if mover.may_take(now) {
            turn.given = self.give(now, id);
        }
        self.leave_what_nobody_takes(now);
        Some(turn)
    }

    /// Records that a mover has done its work, or could not. Returns its work if the mover had the
    /// right to it; other reports do not count. Work that it could not do is left to the caller.
    pub fn ended(
        &mut self,
        now: Timestamp,
        id: MoverId,
        lease: LeaseId,
        is_done: bool,
    ) -> Option<Ticket> {
        let (holder, ticket) = *self.leases.get(&lease)?;
        if holder != id {
            return None;
        }
        self.leases.remove(&lease);
        self.works.remove(&ticket);
        let mover = self.movers.get_mut(&id)?;
        mover.leases.remove(&lease);
        mover.heard = mover.heard.max(now);
        if is_done {
            mover.done += 1;
            mover.failures = 0;
        } else {
            mover.failed += 1;
        }
        Some(ticket)
    }

    /// Blames a mover for work that others could do: after some of these in a row it rests.
    pub fn was_its_fault(&mut self, now: Timestamp, id: MoverId) {
        if let Some(mover) = self.movers.get_mut(&id) {
            mover.failures += 1;
            if mover.failures >= FAILURES_MAX {
                mover.failures = 0;
                mover.rests_until = Some(now + REST);
            }
        }
        self.leave_what_nobody_takes(now);
    }

    /// Returns the mover that does a piece of work; none while it waits.
    #[must_use]
    pub fn worker(&self, ticket: Ticket) -> Option<MoverId> {
        let lease = self.works.get(&ticket)?.lease?;
        self.leases.get(&lease).map(|(id, _)| *id)
    }

    /// Returns the name of a mover; none if it has not joined.
    #[must_use]
    pub fn name(&self, id: MoverId) -> Option<&str> {
        self.movers.get(&id).map(|mover| mover.name.as_str())
    }

    /// Returns the mover and the work of a lease.
    #[must_use]
    pub fn holder(&self, lease: LeaseId) -> Option<(MoverId, Ticket)> {
        self.leases.get(&lease).copied()
    }

    /// Sets whether movers of this name get nothing new. Returns whether one has joined.
    pub fn drain(&mut self, now: Timestamp, name: &str, drains: bool) -> bool {
        let mut is_there = false;
        for mover in self.movers.values_mut().filter(|mover| mover.name == name) {
            mover.drains = drains;
            is_there = true;
        }
        if is_there && drains {
            self.drained.insert(name.into());
        } else {
            self.drained.remove(name);
        }
        self.leave_what_nobody_takes(now);
        is_there
    }

    /// Advances time: movers that were silent too long are removed, and their work is given again.
    pub fn tick(&mut self, now: Timestamp) -> Vec<String> {
        let silent = |mover: &Mover| now.since(mover.heard) >= LEASE_LASTS;
        let gone = self.movers.iter().filter(|(_, mover)| silent(mover));
        let gone: Vec<MoverId> = gone.map(|(id, _)| *id).collect();
        let names = gone.into_iter().filter_map(|id| self.remove(id, now));
        let names = names.collect();
        self.leave_what_nobody_takes(now);
        names
    }

    /// Returns when time matters next.
    #[must_use]
    pub fn next_wakeup(&self) -> Option<Timestamp> {
        let heard = self.movers.values().map(|mover| mover.heard);
        heard.min().map(|heard| heard + LEASE_LASTS)
    }

    /// Takes the work that the driver should do itself, since the last time.
    pub fn take_left(&mut self) -> Vec<Ticket> {
        core::mem::take(&mut self.left)
    }

    /// Returns whether any work waits.
    #[must_use]
    pub fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Returns the state of all movers, in the order in which they joined.
    #[must_use]
    pub fn views(&self) -> Vec<View> {
        let view = |(id, mover): (&MoverId, &Mover)| View {
            id: *id,
            name: mover.name.clone(),
            slots: mover.slots,
            leases: mover.leases.len(),
            joined: mover.joined,
            heard: mover.heard,
            done: mover.done,
            failed: mover.failed,
            drains: mover.drains || mover.leaves,
            rests_until: mover.rests_until,
        };
        self.movers.iter().map(view).collect()
    }

    fn wait(&mut self, offer: Offer) {
        self.waiting.insert((offer.due, offer.ticket));
        self.groups.insert((offer.group, offer.ticket));
    }

    fn unwait(&mut self, offer: Offer) {
        self.waiting.remove(&(offer.due, offer.ticket));
        self.groups.remove(&(offer.group, offer.ticket));
    }

    fn remove(&mut self, id: MoverId, now: Timestamp) -> Option<String> {
        let mover = self.movers.remove(&id)?;
        for lease in mover.leases {
            let Some(work) = self.free_again(lease) else {
                continue;
            };
            work.losses += 1;
            if work.losses >= LOSSES_MAX {
                let offer = work.offer;
                self.unwait(offer);
                self.works.remove(&offer.ticket);
                self.left.push(offer.ticket);
            }
        }
        self.leave_what_nobody_takes(now);
        Some(mover.name)
    }

    /// Returns the work of a lease to the waiting.
    fn free_again(&mut self, lease: LeaseId) -> Option<&mut Work> {
        let (_, ticket) = self.leases.remove(&lease)?;
        let offer = self.works.get(&ticket)?.offer;
        self.wait(offer);
        let work = self.works.get_mut(&ticket)?;
        work.lease = None;
        Some(work)
    }

    /// Leaves waiting work to the driver if no mover may be given any.
    fn leave_what_nobody_takes(&mut self, now: Timestamp) {
        if self.waiting.is_empty() || self.is_manned(now) {
            return;
        }
        for (_, ticket) in core::mem::take(&mut self.waiting) {
            self.works.remove(&ticket);
            self.left.push(ticket);
        }
        self.groups.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Timestamp {
        Timestamp::from_secs(1_000 + seconds)
    }

    fn offer(roster: &mut Roster, number: u64, group: u64) -> bool {
        let offer = Offer {
            ticket: Ticket::new(number),
            due: at(100),
            group,
        };
        roster.offer(at(0), offer)
    }

    /// Plays the next turn of a mover that holds all it was given.
    fn turn(roster: &mut Roster, seconds: u64, id: MoverId, free: u32) -> Option<Turn> {
        let number = roster.movers.get(&id).map_or(1, |mover| mover.turn + 1);
        if roster.hear(at(seconds), id, number) != Heard::New {
            return None;
        }
        let mover = &roster.movers[&id];
        let held = mover.leases.iter().chain(&mover.stop).copied().collect();
        roster.holds(id, &held);
        roster.ask(at(seconds), id, number, free, false)
    }

    fn tickets(turn: Option<Turn>) -> Vec<u64> {
        let given = turn.unwrap().given.into_iter();
        given.map(|(_, ticket)| ticket.get()).collect()
    }

    #[test]
    fn nobody_is_given_work_that_no_mover_may_take() {
        let mut roster = Roster::default();
        assert!(!offer(&mut roster, 1, 1));
        let one = roster.join(at(0), "one", 4).unwrap();
        assert!(offer(&mut roster, 1, 1));
        assert!(roster.drain(at(0), "one", true) && !roster.is_manned(at(0)));
        assert_eq!(roster.take_left(), [Ticket::new(1)]);
        assert_eq!(tickets(turn(&mut roster, 1, one, 4)), [0; 0]);
        assert!(roster.views()[0].drains);
        // It still gets nothing when it is started again.
        roster.join(at(2), "one", 4).unwrap();
        assert!(!offer(&mut roster, 2, 2));
        assert!(roster.drain(at(2), "one", false) && offer(&mut roster, 2, 2));
        assert!(!roster.drain(at(2), "other", true));
    }

    #[test]
    fn movers_share_evenly_and_what_is_read_together_stays_together() {
        let mut roster = Roster::default();
        let one = roster.join(at(0), "one", 8).unwrap();
        let other = roster.join(at(0), "other", 8).unwrap();
        for id in [one, other] {
            turn(&mut roster, 0, id, 8);
        }
        assert!(roster.wanted(at(0)).is_empty());
        offer(&mut roster, 0, 0);
        assert_eq!(roster.wanted(at(0)), [one]);
        for number in 1..8 {
            offer(&mut roster, number, number / 3);
        }
        assert_eq!(roster.wanted(at(0)), [one, other]);
        assert_eq!(tickets(turn(&mut roster, 1, one, 8)), [0, 1, 2, 3, 4, 5]);
        assert_eq!(tickets(turn(&mut roster, 1, other, 8)), [6, 7]);
        // Work for which the others have no room goes to any that has.
        for number in 8..20 {
            offer(&mut roster, number, number);
        }
        turn(&mut roster, 1, other, 0);
        assert_eq!(tickets(turn(&mut roster, 1, one, 2)), [8, 9]);
    }

    #[test]
    fn work_of_a_silent_mover_is_given_again_and_counts_once() {
        let mut roster = Roster::default();
        let one = roster.join(at(0), "one", 1).unwrap();
        offer(&mut roster, 1, 1);
        let lost = turn(&mut roster, 0, one, 1).unwrap().given[0];
        let other = roster.join(at(5), "other", 1).unwrap();
        assert_eq!(tickets(turn(&mut roster, 5, other, 1)), [0; 0]);
        assert!(roster.tick(at(9)).is_empty());
        assert_eq!(roster.next_wakeup(), Some(at(10)));
        assert_eq!(roster.tick(at(10)), ["one"]);
        // It wakes up, and its work does not count.
        assert_eq!(turn(&mut roster, 11, one, 1), None);
        assert_eq!(roster.ended(at(11), one, lost.0, true), None);
        let again = turn(&mut roster, 11, other, 1).unwrap().given[0];
        assert_eq!(again.1, Ticket::new(1));
        assert_eq!(roster.ended(at(12), one, again.0, true), None);
        assert_eq!(
            roster.ended(at(12), other, again.0, true),
            Some(Ticket::new(1))
        );
        assert_eq!(roster.ended(at(12), other, again.0, true), None);
    }

    #[test]
    fn what_did_not_reach_a_mover_waits_again_and_old_turns_count_for_nothing() {
        let mut roster = Roster::default();
        let one = roster.join(at(0), "one", 2).unwrap();
        offer(&mut roster, 1, 1);
        assert_eq!(roster.hear(at(1), one, 2), Heard::New);
        let lost = roster.ask(at(1), one, 2, 2, false).unwrap().given[0];
        assert_eq!(roster.hear(at(2), one, 3), Heard::New);
        roster.holds(one, &BTreeSet::new());
        assert_eq!(roster.ask(at(2), one, 2, 2, false), None);
        assert_eq!(roster.hear(at(2), one, 2), Heard::Old);
        let again = roster.ask(at(2), one, 3, 2, false).unwrap().given[0];
        assert!(again.1 == lost.1 && again.0 != lost.0);
        assert_eq!(roster.ended(at(3), one, lost.0, true), None);
        assert_eq!(
            roster.ended(at(3), one, again.0, true),
            Some(Ticket::new(1))
        );
        assert_eq!(roster.hear(at(3), MoverId::new(99), 1), Heard::Unknown);
    }

    #[test]
    fn work_that_two_movers_were_lost_with_is_given_to_no_third() {
        let mut roster = Roster::default();
        let names = ["one", "two", "three"];
        let ids = names.map(|name| roster.join(at(0), name, 1).unwrap());
        offer(&mut roster, 1, 1);
        assert_eq!(tickets(turn(&mut roster, 0, ids[0], 1)), [1]);
        roster.leave(at(1), ids[0]);
        assert_eq!(tickets(turn(&mut roster, 1, ids[1], 1)), [1]);
        roster.leave(at(2), ids[1]);
        assert_eq!(roster.take_left(), [Ticket::new(1)]);
        assert_eq!(tickets(turn(&mut roster, 2, ids[2], 1)), [0; 0]);
    }

    #[test]
    fn what_is_withdrawn_is_stopped_and_a_mover_that_can_do_nothing_rests() {
        let mut roster = Roster::default();
        let one = roster.join(at(0), "one", 9).unwrap();
        for number in 0..4 {
            offer(&mut roster, number, number);
        }
        let given = turn(&mut roster, 0, one, 3).unwrap().given;
        assert_eq!(given.len(), 3);
        roster.withdraw(Ticket::new(3));
        roster.withdraw(given[0].1);
        assert!(!roster.has_waiting());
        assert_eq!(turn(&mut roster, 1, one, 9).unwrap().stop, [given[0].0]);
        assert_eq!(roster.ended(at(1), one, given[0].0, true), None);
        for number in 10..13 {
            offer(&mut roster, number, number);
            let (lease, ticket) = turn(&mut roster, 2, one, 9).unwrap().given[0];
            assert_eq!(roster.ended(at(2), one, lease, false), Some(ticket));
            assert!(roster.is_manned(at(2)));
            roster.was_its_fault(at(2), one);
        }
        assert!(!roster.is_manned(at(3)) && roster.is_manned(at(62)));
        let about = &roster.views()[0];
        assert_eq!((about.done, about.failed, about.leases), (0, 3, 2));
    }
}
