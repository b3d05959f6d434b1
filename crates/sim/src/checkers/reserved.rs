//! Checks that nothing stays reserved in vain, and that no reservation is exceeded.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use posthaste_types::{ReservationId, Timestamp};

use super::{Found, ensure};

pub(super) const NAME: &str = "reserved only while needed";

/// Longest time that an unneeded reservation may last. An answer may be in flight, or another
/// request may need it.
const IDLE_MAX: Duration = Duration::from_secs(60);

/// Longest time between two samples of a path. After a longer one the reserved rate in between is
/// unknown.
const LOOK: Duration = Duration::from_secs(1);

/// Reservations, with the time since which each has been unneeded.
#[derive(Debug, Default)]
pub(crate) struct Reserved {
    idle_since: BTreeMap<ReservationId, Timestamp>,
    /// Time of the last sample of each path.
    looks: BTreeMap<usize, Timestamp>,
}

impl Reserved {
    pub(crate) fn on_made(&mut self, id: ReservationId, now: Timestamp) {
        self.idle_since.insert(id, now);
    }

    pub(crate) fn on_over(&mut self, id: ReservationId) {
        self.idle_since.remove(&id);
    }

    /// Restarts all idle times, because no driver is running.
    pub(crate) fn on_blind(&mut self, now: Timestamp) {
        self.idle_since.values_mut().for_each(|since| *since = now);
    }

    /// Checks all reservations against those needed now.
    pub(crate) fn on_look(
        &mut self,
        now: Timestamp,
        needed: &BTreeSet<ReservationId>,
    ) -> Result<(), Found> {
        for (id, since) in &mut self.idle_since {
            if needed.contains(id) {
                *since = now;
            }
        }
        let idle = self.idle_since.iter();
        let idle = idle.map(|(id, since)| (*id, now.since(*since)));
        let longest = idle.max_by_key(|(_, span)| *span);
        let longest = longest.unwrap_or_default();
        ensure(NAME, longest.1 <= IDLE_MAX, || {
            let (id, span) = longest;
            format!("{id} is reserved and not needed for {} s", span.as_secs())
        })
    }

    /// Checks the bytes that a path from the centre carried since its last sample, against the
    /// highest reserved and shared rates in that time.
    pub(crate) fn on_carried(
        &mut self,
        now: Timestamp,
        place: usize,
        bytes: u64,
        (reserved, shared): (u64, u64),
    ) -> Result<(), Found> {
        let before = self.looks.insert(place, now);
        let Some(at) = before.filter(|at| now.since(*at) <= LOOK) else {
            return Ok(());
        };
        // Reservations that ended and rates that changed within that time allow a little more.
        let most = (reserved + shared).saturating_mul(21) / 20 + 1;
        ensure(NAME, bytes <= most, || {
            let span = now.since(at).as_secs();
            format!("{bytes} bytes in {span} s where {reserved} were reserved and {shared} shared")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nobody_needs_is_seen_after_a_while() {
        let (mut reserved, id) = (Reserved::default(), ReservationId::new(1));
        let at = Timestamp::from_secs;
        reserved.on_made(id, at(100));
        assert!(reserved.on_look(at(150), &BTreeSet::from([id])).is_ok());
        assert!(reserved.on_look(at(210), &BTreeSet::new()).is_ok());
        assert!(reserved.on_look(at(211), &BTreeSet::new()).is_err());
        reserved.on_over(id);
        assert!(reserved.on_look(at(300), &BTreeSet::new()).is_ok());
    }

    #[test]
    fn more_than_was_reserved_and_shared_is_seen() {
        let (mut reserved, at) = (Reserved::default(), Timestamp::from_secs);
        let mut look = |at_s, bytes, now| reserved.on_carried(at(at_s), 0, bytes, now);
        assert!(look(1, 9000, (80, 30)).is_ok(), "nobody knows of before");
        assert!(look(2, 110, (80, 30)).is_ok());
        assert!(look(4, 999, (80, 30)).is_ok(), "nobody looked in between");
        assert!(look(5, 117, (80, 30)).is_err());
    }
}
