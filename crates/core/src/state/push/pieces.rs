//! Depots that code chunks, and the fragments that they send on.

use alloc::vec::Vec;
use posthaste_types::{DepotId, FragmentIndex, RequestId, Timestamp, record};

use crate::{state::FlightKey, state::push::Pushes};

record! {
    /// Rest of a depot after failures to code chunks, counted since its last success.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
    pub(crate) struct Rest {
        failures: u32,
        /// Time before which it is not asked.
        resume_at: Timestamp,
    }
}

impl Rest {
    /// Returns whether it rested until after that.
    pub(super) fn lasts_beyond(&self, before: Timestamp) -> bool {
        self.resume_at > before
    }
}

impl Pushes {
    /// Returns whether the path from one depot to another is not at rest, whatever is in progress.
    pub(crate) fn is_rested(&self, from: DepotId, to: DepotId, now: Timestamp) -> bool {
        let pair = self.pairs.get(&(from, to));
        pair.is_none_or(|pair| pair.resume_at <= now)
    }

    /// Returns whether a depot may be asked to code a chunk.
    pub(crate) fn may_code(&self, depot: DepotId, now: Timestamp) -> bool {
        let rest = self.rests.get(&depot);
        rest.is_none_or(|rest| rest.resume_at <= now)
    }

    /// Records that a depot coded a chunk.
    pub(crate) fn has_coded(&mut self, depot: DepotId) {
        self.rests.remove(&depot);
    }

    /// Records that it did not: it rests for a while. Returns the number of consecutive failures.
    pub(crate) fn rest(&mut self, depot: DepotId, resume: impl Fn(u32) -> Timestamp) -> u32 {
        let rest = self.rests.entry(depot).or_default();
        rest.failures = rest.failures.saturating_add(1);
        rest.resume_at = resume(rest.failures);
        rest.failures
    }

    /// Returns whether any depot codes something now.
    pub(crate) fn has_pieces(&self) -> bool {
        self.flights.values().any(|flight| flight.is_piece)
    }

    /// Returns what a coding depot sends on of chunks it was sent, of one request or of all.
    pub(crate) fn pieces_from(
        &self,
        from: DepotId,
        request: Option<RequestId>,
    ) -> Vec<(FlightKey, FragmentIndex)> {
        let all = self.flights.iter().filter(|(key, flight)| {
            flight.is_piece
                && flight.givers.contains(&from)
                && request.is_none_or(|request| key.request == request)
        });
        all.map(|(key, flight)| (*key, flight.fragment)).collect()
    }
}
