//! Reservation under which data is sent, if streams name theirs.

use alloc::vec::Vec;
use posthaste_types::{ChunkIndex, CircuitId, DepotId, RequestId, ReservationId};

use crate::{Mind, books::Reservation, contract::ReservationState};

/// Quotient of 2^64 and the golden ratio. Multiples of it, modulo 2^64, are spread most evenly
/// (Knuth, The Art of Computer Programming 3, 6.4, theorem S). So consecutive chunks go to each
/// reservation in proportion.
const SPREAD: u64 = 0x9E37_79B9_7F4A_7C15;

impl Mind {
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
        let mine = self.circuits.of(request);
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
