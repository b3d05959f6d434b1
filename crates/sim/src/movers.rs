//! Movers that die, hang, wake up late and restart, and the roster that gives them work
//! (`docs/algorithms/movers.md`).

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use posthaste_core::movers::{Heard, LEASE_LASTS, LeaseId, MoverId, Offer, Roster, Ticket};
use posthaste_types::Timestamp;

use crate::random::Dice;

/// Time between two turns of a mover.
const TURN: Duration = Duration::from_millis(500);
/// Longest time for a piece of work.
const WORK_S_MAX: u64 = 20;
/// Longest time a mover hangs.
const HANG_S_MAX: u64 = 60;

/// Result of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Tally {
    /// Pieces of work done by movers.
    pub by_movers: u64,
    /// Pieces of work done by the driver.
    pub by_driver: u64,
    /// Leases that a mover had lost when its work was done.
    pub in_vain: u64,
    /// Answers that were lost in flight.
    pub unheard: u64,
    /// Movers that were gone.
    pub gone: u64,
}

#[derive(Debug)]
struct Mover {
    name: String,
    slots: u32,
    /// Its id in the roster; none while it is dead.
    id: Option<MoverId>,
    turn: u64,
    busy: BTreeMap<LeaseId, (Ticket, Timestamp)>,
    /// End of its hang; until then it neither works nor answers.
    hangs_until: Timestamp,
}

struct World {
    dice: Dice,
    now: Timestamp,
    roster: Roster,
    movers: Vec<Mover>,
    /// Work that is not done yet.
    open: BTreeSet<Ticket>,
    /// Time for which work has waited although a mover had room.
    idle: Duration,
    done: BTreeSet<Ticket>,
    tally: Tally,
}

/// Plays `works` pieces of work with up to six movers under faults that `seed` chooses.
///
/// # Errors
/// A description of the violated invariant.
pub fn play(seed: u64, works: u64) -> Result<Tally, String> {
    let mut dice = Dice::new(seed, "movers");
    let count = dice.between(1, 6);
    let mover = |number| Mover {
        name: format!("mover {number}"),
        slots: 1 + u32::try_from(number).unwrap_or(0) * 3,
        id: None,
        turn: 0,
        busy: BTreeMap::new(),
        hangs_until: Timestamp::from_secs(0),
    };
    let mut world = World {
        movers: (0..count).map(mover).collect(),
        dice,
        now: Timestamp::from_secs(1_000_000),
        roster: Roster::default(),
        open: BTreeSet::new(),
        idle: Duration::ZERO,
        done: BTreeSet::new(),
        tally: Tally::default(),
    };
    let mut offered = 0;
    while offered < works || !world.open.is_empty() {
        for _ in 0..world.dice.between(0, 3).min(works - offered) {
            world.offer(Ticket::new(offered));
            offered += 1;
        }
        world.befall();
        for place in 0..world.movers.len() {
            world.live(place)?;
        }
        world.tally.gone += world.roster.tick(world.now).len() as u64;
        world.take_over()?;
        world.check()?;
        world.now = world.now + TURN;
    }
    Ok(world.tally)
}

impl World {
    fn offer(&mut self, ticket: Ticket) {
        let due_s = self.dice.between(0, 100);
        let offer = Offer {
            ticket,
            due: self.now + Duration::from_secs(due_s),
            group: ticket.get() / 3,
        };
        self.open.insert(ticket);
        if !self.roster.offer(self.now, offer) {
            self.open.remove(&ticket);
            self.done.insert(ticket);
            self.tally.by_driver += 1;
        }
    }

    /// Applies a fault to a mover now and then.
    fn befall(&mut self) {
        if self.dice.between(0, 14) > 0 {
            return;
        }
        let place =
            usize::try_from(self.dice.between(0, self.movers.len() as u64 - 1)).unwrap_or(0);
        let mover = &mut self.movers[place];
        match self.dice.between(0, 6) {
            0 => {
                mover.id = None;
                mover.busy.clear();
            }
            1 => {
                let hangs_s = self.dice.between(1, HANG_S_MAX);
                mover.hangs_until = self.now + Duration::from_secs(hangs_s);
            }
            2 => drop(self.roster.drain(self.now, &mover.name, true)),
            3..=5 => drop(self.roster.drain(self.now, &mover.name, false)),
            _ => {
                if let Some(ticket) = self.open.first().copied() {
                    self.roster.withdraw(ticket);
                    self.open.remove(&ticket);
                    self.done.insert(ticket);
                }
            }
        }
    }

    /// Plays one turn of a mover.
    fn live(&mut self, place: usize) -> Result<(), String> {
        let now = self.now;
        let mover = &mut self.movers[place];
        if mover.hangs_until > now {
            return Ok(());
        }
        let Some(id) = mover.id else {
            if self.dice.between(0, 3) == 0 {
                mover.id = self.roster.join(now, &mover.name, mover.slots);
            }
            return Ok(());
        };
        let over = mover.busy.iter().filter(|(_, (_, end))| *end <= now);
        let over: Vec<LeaseId> = over.map(|(lease, _)| *lease).collect();
        for lease in over {
            mover.busy.remove(&lease);
            let is_done = self.dice.between(0, 19) > 0;
            let Some(ticket) = self.roster.ended(now, id, lease, is_done) else {
                self.tally.in_vain += 1;
                continue;
            };
            if !self.open.remove(&ticket) || !self.done.insert(ticket) {
                return Err(format!("{ticket:?} was done twice"));
            }
            // The driver does the work the mover can't do.
            self.tally.by_movers += u64::from(is_done);
            self.tally.by_driver += u64::from(!is_done);
            if !is_done {
                self.roster.was_its_fault(now, id);
            }
        }
        let mover = &mut self.movers[place];
        mover.turn += 1;
        let number = mover.turn;
        if self.roster.hear(now, id, number) != Heard::New {
            mover.busy.clear();
            mover.id = None;
            return Ok(());
        }
        self.roster.holds(id, &mover.busy.keys().copied().collect());
        let has = u32::try_from(mover.busy.len()).unwrap_or(u32::MAX);
        let free = mover.slots.saturating_sub(has);
        let turn = self.roster.ask(now, id, number, free, false);
        let turn = turn.ok_or("a newest turn was not heard")?;
        if self.dice.between(0, 19) == 0 {
            // The answer is lost in flight.
            self.tally.unheard += 1;
            return Ok(());
        }
        for lease in turn.stop {
            mover.busy.remove(&lease);
        }
        for (lease, ticket) in turn.given {
            let takes_s = self.dice.between(0, WORK_S_MAX);
            mover
                .busy
                .insert(lease, (ticket, now + Duration::from_secs(takes_s)));
        }
        if mover.busy.len() > mover.slots as usize {
            return Err(format!("{} was given more than it may take", mover.name));
        }
        Ok(())
    }

    /// Lets the driver do the work that no mover is to do.
    fn take_over(&mut self) -> Result<(), String> {
        for ticket in self.roster.take_left() {
            if !self.open.remove(&ticket) || !self.done.insert(ticket) {
                return Err(format!("{ticket:?} was left and done before"));
            }
            self.tally.by_driver += 1;
        }
        Ok(())
    }

    /// Returns whether work waits although an eligible mover has room.
    fn is_idle(&self) -> bool {
        let able =
            self.roster.views().into_iter().filter(|view| {
                !view.drains && view.rests_until.is_none_or(|until| until <= self.now)
            });
        let able: BTreeSet<MoverId> = able.map(|view| view.id).collect();
        let has_room = |mover: &Mover| {
            let may_take = mover.id.is_some_and(|id| able.contains(&id));
            may_take && mover.hangs_until <= self.now && mover.busy.len() < mover.slots as usize
        };
        self.roster.has_waiting() && self.movers.iter().any(has_room)
    }

    fn check(&mut self) -> Result<(), String> {
        self.idle = if self.is_idle() {
            self.idle + TURN
        } else {
            Duration::ZERO
        };
        let mut held = BTreeSet::new();
        let leases = self.movers.iter().flat_map(|mover| mover.busy.iter());
        for (lease, (ticket, _)) in leases {
            if self.roster.holder(*lease).is_some() && !held.insert(*ticket) {
                return Err(format!("two may do {ticket:?}"));
            }
        }
        // Work may wait for a hanging mover with room while its lease lasts.
        if self.idle > LEASE_LASTS + TURN * 4 {
            return Err(format!(
                "work waits although a mover has room: {:#?}",
                self.roster.views()
            ));
        }
        Ok(())
    }
}
