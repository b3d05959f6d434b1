use alloc::{collections::BTreeMap, string::String, vec::Vec};
use core::time::Duration;
use posthaste_plan::Curve;
use posthaste_types::{ByteRate, CircuitId, DepotId, RequestId, ReservationId, Timestamp, record};

use crate::contract::{CircuitTerms, ReservationState};

record! {
    /// A circuit that is offered.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub(crate) struct Circuit {
        pub(crate) terms: CircuitTerms,
        /// Refusals and failures in a row.
        pub(crate) refusals: u32,
        /// It is not asked before.
        pub(crate) not_before: Timestamp,
        /// What it said would fit when it refused more, until it is asked again.
        pub(crate) fits: Option<ByteRate>,
    }
}

record! {
    /// How often a request asked for rate, and when it may again.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
    pub(crate) struct Asks {
        pub(crate) count: u32,
        pub(crate) not_before: Timestamp,
    }
}

impl Asks {
    /// Before the first.
    pub(crate) const NONE: Self = Self {
        count: 0,
        not_before: Timestamp::from_micros(0),
    };
}

record! {
    /// Another rate and end that a reservation was asked to have.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub(crate) struct Change {
        pub(crate) rate: ByteRate,
        pub(crate) until: Timestamp,
    }
}

record! {
    /// Rate that is reserved, or asked for.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub(crate) struct Reservation {
        pub(crate) circuit: CircuitId,
        pub(crate) name: String,
        /// Its depots share it evenly.
        pub(crate) depots: Vec<DepotId>,
        /// Who needs it.
        pub(crate) request: RequestId,
        pub(crate) rate: ByteRate,
        pub(crate) from: Timestamp,
        pub(crate) until: Timestamp,
        pub(crate) state: ReservationState,
        /// Asked for, and not answered yet.
        pub(crate) change: Option<Change>,
        /// Changes asked for so far, and when the next one may be.
        pub(crate) changes: u32,
        pub(crate) change_at: Timestamp,
        /// Looks in a row at which less would have done, and at which it would have ended too early.
        pub(crate) spare_looks: u32,
        pub(crate) short_looks: u32,
        /// When something is done about it if nothing was heard.
        pub(crate) due: Timestamp,
        /// Times it was given back without an answer.
        pub(crate) returns: u32,
        /// What its whole time costs, in millionths of a dollar.
        pub(crate) cost: u64,
    }
}

impl Reservation {
    /// What each depot gets of it.
    pub(crate) fn share(&self) -> ByteRate {
        share(self.rate, self.depots.len())
    }

    /// Whether plans count on it.
    pub(crate) fn is_counted(&self) -> bool {
        match self.state {
            ReservationState::Granted | ReservationState::Up => true,
            ReservationState::Asked | ReservationState::Down | ReservationState::Returning => false,
        }
    }

    /// Whether it is, or may come to be, of use.
    pub(crate) fn is_live(&self) -> bool {
        self.state != ReservationState::Returning
    }
}

/// What each of so many depots gets of a rate.
pub(crate) fn share(rate: ByteRate, depots: usize) -> ByteRate {
    ByteRate::new(rate.get() / (depots as u64).max(1))
}

record! {
    /// What can be reserved, and what is.
    #[derive(Debug, Clone, PartialEq, Eq, Default)]
    pub(crate) struct Circuits {
        pub(crate) offered: BTreeMap<CircuitId, Circuit>,
        pub(crate) reservations: BTreeMap<ReservationId, Reservation>,
        /// Reservations asked for so far: the number of the last one.
        pub(crate) asked: u64,
    }
}

impl Circuits {
    /// Circuits that can be offered: each late request looks at all that lead to its depots.
    pub(crate) const OFFERED_MAX: usize = 64;
    /// Reservations at a time, of all requests together.
    pub(crate) const RESERVATIONS_MAX: usize = 256;

    /// Whether there is nothing to decide about.
    pub(crate) fn is_idle(&self) -> bool {
        self.offered.is_empty() && self.reservations.is_empty()
    }

    /// Those that may be of use to a request.
    pub(crate) fn of(
        &self,
        request: RequestId,
    ) -> impl Iterator<Item = (ReservationId, &Reservation)> {
        let all = self.reservations.iter();
        let mine = all.filter(move |(_, held)| held.request == request && held.is_live());
        mine.map(|(id, held)| (*id, held))
    }

    /// Whether a request waits for the answer about one.
    pub(crate) fn is_awaited(&self, request: RequestId) -> bool {
        self.of(request)
            .any(|(_, held)| held.state == ReservationState::Asked || held.change.is_some())
    }

    /// What data to a depot has for itself now.
    pub(crate) fn carried(&self, depot: DepotId) -> ByteRate {
        let all = self.reservations.values();
        let up = all.filter(|held| held.state == ReservationState::Up);
        let up = up.filter(|held| held.depots.contains(&depot));
        sum(up.map(Reservation::share))
    }

    /// Whether data to a depot may have something for itself though nobody said so yet.
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

    /// What data to a depot can count on having for itself, over time; none where nothing is reserved.
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

    /// When something is done about one if nothing is heard before.
    pub(crate) fn next_due(&self) -> Option<Timestamp> {
        self.reservations.values().map(|held| held.due).min()
    }

    /// What is asked for does not come: it is not asked for again for a while, longer each time.
    pub(crate) fn put_off(&mut self, circuit: CircuitId, now: Timestamp) {
        const FIRST: Duration = Duration::from_secs(60);
        /// An hour and a bit: 60 s doubled six times.
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
