//! Reservation under which data is sent, if streams name theirs.

use alloc::vec::Vec;
use posthaste_types::{ChunkIndex, CircuitId, DepotId, RequestId, ReservationId};

use crate::{
    Mind,
    contract::{CircuitTerms, ReservationState, ReservationView},
    state::Reservation,
};

impl Mind {
    /// Returns every circuit on offer with its terms, in the order of their numbers.
    #[must_use]
    pub fn circuits(&self) -> Vec<(CircuitId, CircuitTerms)> {
        let all = self.state.circuits.offered.iter();
        all.map(|(id, circuit)| (*id, circuit.terms.clone()))
            .collect()
    }

    /// Returns every reservation, in the order they were asked for.
    #[must_use]
    pub fn reservations(&self) -> Vec<ReservationView> {
        let all = self.state.circuits.reservations.iter();
        all.map(|(id, held)| ReservationView {
            reservation: *id,
            request: held.request,
            circuit: held.circuit,
            name: held.name.clone(),
            depots: held.depots.clone(),
            rate: held.rate,
            from: held.from,
            until: held.until,
            state: held.state,
            cost_micro_usd: held.cost,
        })
        .collect()
    }

    /// Returns the reservation under which a chunk of the request goes to the depot now; none if it
    /// goes at best effort. Only reservations for this request that are up are used, on circuits
    /// whose streams name their reservation, as `is_named` says. Several of them get chunks in
    /// proportion to their rates; a repeated chunk goes under the same one while nothing changes.
    #[must_use]
    pub fn reservation_for(
        &self,
        request: RequestId,
        depot: DepotId,
        chunk: ChunkIndex,
        is_named: impl Fn(CircuitId) -> bool,
    ) -> Option<ReservationId> {
        let is_able = |held: &Reservation| {
            held.state == ReservationState::Up
                && held.depots.contains(&depot)
                && is_named(held.circuit)
        };
        let mine = self.state.circuits.of(request);
        let able = mine.filter(|(_, held)| is_able(held));
        // In KiB a second, so that all possible sums stay below 2^64.
        let weight = |held: &Reservation| (held.share().get() >> 10).max(1);
        let able: Vec<(ReservationId, u64)> = able.map(|(id, held)| (id, weight(held))).collect();
        let total: u64 = able.iter().map(|(_, weight)| weight).sum();
        let spread = u64::from(chunk.get()).wrapping_mul(SPREAD);
        let at = (u128::from(spread) * u128::from(total)) >> 64;
        let mut passed = 0;
        let mut able = able.into_iter();
        let chosen = able.find(|(_, weight)| {
            passed += u128::from(*weight);
            at < passed
        });
        chosen.map(|(id, _)| id)
    }
}

/// Quotient of 2^64 and the golden ratio. Multiples of it, modulo 2^64, are spread most evenly
/// (Knuth, The Art of Computer Programming 3, 6.4, theorem S). So consecutive chunks go to each
/// reservation in proportion.
const SPREAD: u64 = 0x9E37_79B9_7F4A_7C15;
