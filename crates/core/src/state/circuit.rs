use alloc::{collections::BTreeMap, string::String, vec::Vec};
use core::time::Duration;
use posthaste_plan::Curve;
use posthaste_types::{ByteRate, CircuitId, DepotId, RequestId, ReservationId, Timestamp, record};

use crate::contract::{CircuitTerms, ReservationState};

record! {
    /// Circuit that is offered.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub(crate) struct Circuit {
        pub(crate) terms: CircuitTerms,
        /// Consecutive refusals and failures.
        pub(crate) refusals: u32,
        /// Time before which it is not asked.
        pub(crate) not_before: Timestamp,
        /// Rate that it said would fit when it refused more, until it is asked again.
        pub(crate) fits: Option<ByteRate>,
    }
}

record! {
    /// Number of times a request asked for rate, and when it may again.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
    pub(crate) struct Asks {
        pub(crate) count: u32,
        pub(crate) not_before: Timestamp,
    }
}

impl Asks {
    /// State before the first.
    pub(crate) const NONE: Self = Self {
        count: 0,
        not_before: Timestamp::from_micros(0),
    };
}

record! {
    /// Other rate and end asked for a reservation.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub(crate) struct Change {
        pub(crate) rate: ByteRate,
        pub(crate) until: Timestamp,
    }
}

record! {
    /// Rate that is reserved or asked for.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub(crate) struct Reservation {
        pub(crate) circuit: CircuitId,
        pub(crate) name: String,
        /// Depots that share it evenly.
        pub(crate) depots: Vec<DepotId>,
        /// Request that needs it.
        pub(crate) request: RequestId,
        pub(crate) rate: ByteRate,
        pub(crate) from: Timestamp,
        pub(crate) until: Timestamp,
        pub(crate) state: ReservationState,
        /// Change asked for and not answered yet.
        pub(crate) change: Option<Change>,
        /// Changes asked for so far, and the earliest time of the next.
        pub(crate) changes: u32,
        pub(crate) change_at: Timestamp,
        /// Consecutive looks at which less would have sufficed, and at which it would have ended
        /// too early.
        pub(crate) spare_looks: u32,
        pub(crate) short_looks: u32,
        /// Time of the next action if no answer comes.
        pub(crate) due: Timestamp,
        /// Times it was returned without an answer.
        pub(crate) returns: u32,
        /// Cost of its whole time, in millionths of a dollar.
        pub(crate) cost: u64,
    }
}

impl Reservation {
    /// Returns each depot's share of it.
    pub(crate) fn share(&self) -> ByteRate {
        share(self.rate, self.depots.len())
    }

    /// Returns whether plans count on it.
    pub(crate) fn is_counted(&self) -> bool {
        match self.state {
            ReservationState::Granted | ReservationState::Up => true,
            ReservationState::Asked | ReservationState::Down | ReservationState::Returning => false,
        }
    }

    /// Returns whether it is, or may become, useful.
    pub(crate) fn is_live(&self) -> bool {
        self.state != ReservationState::Returning
    }
}

/// Returns each depot's share of a rate.
pub(crate) fn share(rate: ByteRate, depots: usize) -> ByteRate {
    ByteRate::new(rate.get() / (depots as u64).max(1))
}

record! {
    /// Circuits on offer, and reservations.
    #[derive(Debug, Clone, PartialEq, Eq, Default)]
    pub(crate) struct Circuits {
        pub(crate) offered: BTreeMap<CircuitId, Circuit>,
        pub(crate) reservations: BTreeMap<ReservationId, Reservation>,
        /// Reservations asked for so far, which is the number of the last one.
        pub(crate) asked: u64,
    }
}

impl Circuits {
    /// Most circuits on offer: each late request looks at all that lead to its depots.
    pub(crate) const OFFERED_MAX: usize = 64;
    /// Most reservations at a time, of all requests together.
    pub(crate) const RESERVATIONS_MAX: usize = 256;

    /// Returns whether there is nothing to decide.
    pub(crate) fn is_idle(&self) -> bool {
        self.offered.is_empty() && self.reservations.is_empty()
    }

    /// Returns those that may be useful to a request.
    pub(crate) fn of(
        &self,
        request: RequestId,
    ) -> impl Iterator<Item = (ReservationId, &Reservation)> {
        let all = self.reservations.iter();
        let mine = all.filter(move |(_, held)| held.request == request && held.is_live());
        mine.map(|(id, held)| (*id, held))
    }

    /// Returns whether a request waits for the answer about one.
    pub(crate) fn is_awaited(&self, request: RequestId) -> bool {
        self.of(request)
            .any(|(_, held)| held.state == ReservationState::Asked || held.change.is_some())
    }

    /// Returns the rate reserved for data to a depot now.
    pub(crate) fn carried(&self, depot: DepotId) -> ByteRate {
        let all = self.reservations.values();
        let up = all.filter(|held| held.state == ReservationState::Up);
        let up = up.filter(|held| held.depots.contains(&depot));
        sum(up.map(Reservation::share))
    }

    /// Returns whether data to a depot may have reserved rate that is not reported yet.
    pub(crate) fn may_carry(&self, depot: DepotId, now: Timestamp) -> bool {
        let mut all = self.reservations.values();
        all.any(|held| {
            let may_rise = match held.state {
                ReservationState::Granted | ReservationState::Down => true,
                ReservationState::Asked | ReservationState::Up | ReservationState::Returning => {
                    false
                }
            };
            may_rise && held.from <= now && held.depots.contains(&depot)
        })
    }

    /// Returns the reserved rate on which data to a depot can count, over time; none if nothing is
    /// reserved.
    pub(crate) fn counted(&self, depot: DepotId) -> Option<Curve> {
        let all = self.reservations.values();
        let mine = all.filter(|held| held.is_counted() && held.depots.contains(&depot));
        let mut curve = None;
        for held in mine {
            let curve = curve.get_or_insert_with(|| Curve::constant(ByteRate::ZERO));
            curve.give_back(held.from, held.until, held.share());
        }
        curve
    }

    /// Returns the next time at which one needs action if nothing is heard before.
    pub(crate) fn next_due(&self) -> Option<Timestamp> {
        self.reservations.values().map(|held| held.due).min()
    }

    /// Puts off a circuit that does not come: it is not asked again for a while, longer each time.
    pub(crate) fn put_off(&mut self, circuit: CircuitId, now: Timestamp) {
        const FIRST: Duration = Duration::from_secs(60);
        /// Most doublings of 60 s: an hour and a bit.
        const DOUBLED_MAX: u32 = 6;
        if let Some(circuit) = self.offered.get_mut(&circuit) {
            circuit.not_before = now + FIRST * (1 << circuit.refusals.min(DOUBLED_MAX));
            circuit.refusals = circuit.refusals.saturating_add(1);
            circuit.fits = None;
        }
    }
}

fn sum(rates: impl Iterator<Item = ByteRate>) -> ByteRate {
    ByteRate::new(rates.fold(0u64, |sum, rate| sum.saturating_add(rate.get())))
}
