//! Review of a request's reservations at every tick: less if less suffices, longer if it would end
//! too early, none if none is needed. Each change needs enough consecutive looks that agree, and is
//! rare.

use core::time::Duration;
use posthaste_plan::{Load, lease};
use posthaste_types::{ByteRate, RequestId, ReservationId, Timestamp};

use super::{OVER_WAIT, bid::end};
use crate::{
    Mind,
    books::{Change, Reservation, share},
    contract::{CircuitReason, Command, Outbox, Reason, Reserve, Step},
    outlook::{Raise, Sweep},
};

/// Consecutive looks that must agree before anything is given back.
const SPARE_LOOKS: u32 = 10;
/// Consecutive looks that must agree before more time is asked for: a late request has none to
/// lose.
const SHORT_LOOKS: u32 = 3;
/// Most changes of one reservation, and the time between two: so long after the first, twice after
/// the second.
const CHANGES_MAX: u32 = 8;
const CHANGE_EVERY: Duration = Duration::from_secs(30);
/// Most quarters that may suffice for less to be asked for.
const WORTH_QUARTERS: u64 = 3;
/// Time to go below which less is not worth asking for.
const NEARLY_OVER: Duration = Duration::from_secs(60);
/// Longest extension of a reservation: another look will show more.
const LONGER_MAX: Duration = Duration::from_secs(86_400);

impl Mind {
    /// Reviews what a request has reserved. Returns whether something was done about it.
    pub(super) fn review_held(&mut self, id: RequestId, sweep: &Sweep, out: &mut Outbox) -> bool {
        let mine = self.circuits.of(id).filter(|(_, held)| held.is_counted());
        let Some((held, until)) = mine
            .map(|(held, reservation)| (held, reservation.until))
            .min_by_key(|(_, until)| *until)
        else {
            return false;
        };
        let Some(request) = self.requests.get(&id) else {
            return false;
        };
        let is_auto = request.wishes.reserve == Reserve::Auto;
        if request.finish.is_none_or(|finish| finish.p90 > until) {
            return self.review_short(id, held, sweep, out);
        }
        is_auto && self.review_spare(id, held, sweep, out)
    }

    /// Asks for more time if it has been too short for a while.
    fn review_short(
        &mut self,
        id: RequestId,
        reservation: ReservationId,
        sweep: &Sweep,
        out: &mut Outbox,
    ) -> bool {
        let now = self.now;
        let Some(held) = self.circuits.reservations.get_mut(&reservation) else {
            return false;
        };
        (held.spare_looks, held.short_looks) = (0, held.short_looks.saturating_add(1));
        let (rate, may) = (held.rate, held.may_change(now));
        if !may || held.short_looks < SHORT_LOOKS {
            return false;
        }
        let Some(until) = self.longer(id, reservation, sweep) else {
            return false;
        };
        let why = CircuitReason::TooShort { until };
        self.rearrange(reservation, Change { rate, until }, why, out);
        true
    }

    /// Returns until when a reservation would have to last for its request to be done; none if that
    /// gains nothing or is not paid.
    fn longer(
        &self,
        id: RequestId,
        reservation: ReservationId,
        sweep: &Sweep,
    ) -> Option<Timestamp> {
        let held = self.circuits.reservations.get(&reservation)?;
        let request = self.requests.get(&id)?;
        let load = self.load_now(request, sweep.places());
        let raise = Raise {
            depots: &held.depots,
            from: held.until,
            until: held.until + LONGER_MAX,
            before: ByteRate::ZERO,
            after: held.share(),
        };
        let finish = self.finish_raised(sweep, &load, &raise)?;
        let before = request.finish.map(|finish| finish.p90);
        let is_better = before.is_none_or(|before| finish < before);
        let until = end(held.from, finish, Duration::ZERO);
        let more = self.cost_until(held, until)?.saturating_sub(held.cost);
        let is_paid = more == 0 || more <= self.money_to_spare(request);
        (is_better && is_paid && until > held.until).then_some(until)
    }

    /// Returns the cost of a reservation with another end; none if its circuit is no longer
    /// offered.
    fn cost_until(&self, held: &Reservation, until: Timestamp) -> Option<u64> {
        let circuit = self.circuits.offered.get(&held.circuit)?;
        Some(circuit.terms.cost(until.since(held.from)))
    }

    /// Gives back rate that has not been needed for a while.
    fn review_spare(
        &mut self,
        id: RequestId,
        reservation: ReservationId,
        sweep: &Sweep,
        out: &mut Outbox,
    ) -> bool {
        let now = self.now;
        let needed = self.needed(id, reservation, sweep);
        let Some((needed, held)) = needed.zip(self.circuits.reservations.get_mut(&reservation))
        else {
            return false;
        };
        held.short_looks = 0;
        let (from, until) = (held.rate, held.until);
        let is_none = needed == ByteRate::ZERO;
        let is_less = needed <= from.scaled(WORTH_QUARTERS, 4);
        let may = held.may_change(now) && until.since(now) > NEARLY_OVER;
        held.spare_looks = match is_none || (is_less && may) {
            true => held.spare_looks.saturating_add(1),
            false => 0,
        };
        if held.spare_looks < SPARE_LOOKS {
            return false;
        }
        if is_none {
            self.give_back_reservation(reservation, CircuitReason::Spare, out);
        } else {
            let (why, rate) = (CircuitReason::TooLarge { from, to: needed }, needed);
            self.rearrange(reservation, Change { rate, until }, why, out);
        }
        true
    }

    /// Returns the least rate that keeps the deadline well, zero if none is needed. The margin is
    /// twice that for asking, so that the two don't undo each other.
    fn needed(&self, id: RequestId, reservation: ReservationId, sweep: &Sweep) -> Option<ByteRate> {
        let held = self.circuits.reservations.get(&reservation)?;
        let request = self.requests.get(&id)?;
        let load = self.load_now(request, sweep.places());
        let aim = request.aim() - self.margin(request.aim()) * 2;
        let is_kept = |rate: ByteRate, by: Timestamp| {
            let finish = self.finish_with(sweep, &load, held, rate);
            finish.is_some_and(|finish| finish <= by)
        };
        if is_kept(ByteRate::ZERO, aim) {
            return Some(ByteRate::ZERO);
        }
        let by = aim.min(held.until);
        if !is_kept(held.rate.scaled(WORTH_QUARTERS, 4), by) {
            return Some(held.rate);
        }
        lease::least(held.rate, |rate| is_kept(rate, by))
    }

    /// Returns when a load would be done with a reservation of that rate from now on.
    fn finish_with(
        &self,
        sweep: &Sweep,
        load: &Load,
        held: &Reservation,
        rate: ByteRate,
    ) -> Option<Timestamp> {
        let raise = Raise {
            depots: &held.depots,
            from: held.from.max(self.now),
            until: held.until,
            before: held.share(),
            after: share(rate, held.depots.len()),
        };
        self.finish_raised(sweep, load, &raise)
    }

    fn rearrange(
        &mut self,
        reservation: ReservationId,
        change: Change,
        why: CircuitReason,
        out: &mut Outbox,
    ) {
        let now = self.now;
        let Some(held) = self.circuits.reservations.get_mut(&reservation) else {
            return;
        };
        held.change = Some(change);
        (held.spare_looks, held.short_looks) = (0, 0);
        held.changes += 1;
        held.change_at = now + CHANGE_EVERY * held.changes;
        let (request, name) = (held.request, held.name.clone());
        let reason = Reason::Circuit { name, why };
        self.say_step(request, Step::Changing, reason.clone(), out);
        out.commands.push(Command::Rearrange {
            reservation,
            rate: change.rate,
            until: change.until,
            reason,
        });
    }

    /// Handles the end of a change: the reservation was changed as asked, or stays as it is.
    pub(crate) fn end_change(&mut self, id: ReservationId, is_changed: bool, out: &mut Outbox) {
        let Some(held) = self.circuits.reservations.get_mut(&id) else {
            return;
        };
        let Some(change) = held.change.take() else {
            return;
        };
        let step = match is_changed {
            true => Step::Changed,
            false => Step::Unchanged,
        };
        if is_changed {
            (held.rate, held.until) = (change.rate, change.until);
            held.due = held.due.max(change.until + OVER_WAIT);
        }
        let (request, name, before) = (held.request, held.name.clone(), held.cost);
        let (rate, from, until) = (held.rate, held.from, held.until);
        let held = self.circuits.reservations.get(&id);
        let cost = held.and_then(|held| self.cost_until(held, until));
        if let Some(cost) = cost.filter(|_| is_changed) {
            if let Some(held) = self.circuits.reservations.get_mut(&id) {
                held.cost = cost;
            }
            self.charge_reservation(request, before, cost);
        }
        let why = match is_changed {
            true => CircuitReason::Granted { rate, from, until },
            false => CircuitReason::Kept { rate, until },
        };
        self.say_step(request, step, Reason::Circuit { name, why }, out);
        self.refresh_reserved(id);
        self.look_now();
    }
}

impl Reservation {
    /// Returns whether another change may be asked for.
    fn may_change(&self, now: Timestamp) -> bool {
        self.changes < CHANGES_MAX && self.change_at <= now
    }
}
