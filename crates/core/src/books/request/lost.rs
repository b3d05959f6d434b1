//! What became of a request that was safe: depots may be lost afterwards.

use super::Request;
use crate::contract::RequestState;

impl Request {
    /// Whether what was said to be safe is so no longer. Where less sufficed by its deadline, that much is what was said. Visits
    /// every chunk there.
    pub(crate) fn is_unsafe_again(&self) -> bool {
        let was_safe = self.safe_at.is_some() && self.has_promise();
        was_safe && !self.replica.is_safe() && !self.survives_what_suffices()
    }

    /// Chunks that nobody who is there can give any more, and that can't be sent again since the source is gone. Visits every chunk
    /// where some are not safe.
    pub(crate) fn chunks_out_of_reach(&self) -> u32 {
        let is_gone = self.release.is_over() && self.has_promise();
        match is_gone && !self.replica.is_safe() {
            true => self.replica.out_of_reach(),
            false => 0,
        }
    }

    /// Whether what depots hold of it matters to anybody: where somebody has all of it, only if destinations have.
    pub(crate) fn counts_on_depots(&self) -> bool {
        self.has_promise() || self.state == RequestState::Delivered && self.due.whole_at.is_some()
    }

    /// Whether its deadline is in danger, as was said or as its finish is forecast now, or it is unsafe again.
    pub(crate) fn is_in_danger(&self) -> bool {
        let is_open = self.is_moving() && self.safe_at.is_none();
        let finish = self.finish.filter(|_| is_open);
        let is_short = finish.is_some_and(|finish| finish.p90 > self.spec.deadline);
        self.at_risk || is_short || self.is_unsafe_again()
    }

    /// Whether its source is gone and it was said that chunks are not safe, and not yet that they are again.
    pub(crate) fn is_thin(&self) -> bool {
        self.is_thin && self.state == RequestState::Released
    }

    /// Whether its deadline passed before it was safe.
    pub(crate) fn is_late(&self) -> bool {
        self.missed && self.safe_at.is_none_or(|at| at > self.spec.deadline)
    }

    /// Whether anything is still promised of what depots hold: nothing is once whoever wanted it has it.
    fn has_promise(&self) -> bool {
        match self.state {
            RequestState::Moving | RequestState::Safe | RequestState::Released => true,
            RequestState::Refused
            | RequestState::Delivered
            | RequestState::Cancelled
            | RequestState::Failed => false,
        }
    }
}
