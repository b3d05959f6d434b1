//! Losses of a request that was safe: depots may be lost afterwards.

use crate::contract::RequestState;
use crate::state::request::Request;

impl Request {
    /// Returns whether a request that was reported as safe is no longer. If less sufficed by its
    /// deadline, that counts as reported. Visits every chunk there.
    pub(crate) fn is_unsafe_again(&self) -> bool {
        let was_safe = self.safe_at.is_some() && self.has_promise();
        was_safe && !self.replica.is_safe() && !self.survives_what_suffices()
    }

    /// Counts chunks that no available depot can give any more, and that can't be sent again since
    /// the source is gone. Visits every chunk if some are not safe.
    pub(crate) fn chunks_out_of_reach(&self) -> u32 {
        match self.has_promise() && !self.replica.is_safe() {
            true => self.replica.out_of_reach(self.release.is_over()),
            false => 0,
        }
    }

    /// Returns whether what depots hold of it matters: once the data is complete elsewhere, only if
    /// destinations have it.
    pub(crate) fn counts_on_depots(&self) -> bool {
        self.has_promise() || self.state == RequestState::Delivered && self.due.whole_at.is_some()
    }

    /// Returns whether its deadline is in danger, as reported or by its present forecast, or it is
    /// unsafe again.
    pub(crate) fn is_in_danger(&self) -> bool {
        let is_open = self.is_moving() && self.safe_at.is_none();
        let finish = self.finish.filter(|_| is_open);
        let is_short = finish.is_some_and(|finish| finish.p90 > self.spec.deadline);
        self.at_risk || is_short || self.is_unsafe_again()
    }

    /// Returns whether its source is gone and chunks were reported as unsafe, and not yet as safe
    /// again.
    pub(crate) fn is_thin(&self) -> bool {
        self.is_thin && self.state == RequestState::Released
    }

    /// Returns whether its deadline passed before it was safe.
    pub(crate) fn is_late(&self) -> bool {
        self.missed && self.safe_at.is_none_or(|at| at > self.spec.deadline)
    }

    /// Returns whether anything is still promised about what depots hold: nothing is once every
    /// recipient has it.
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
