//! Decision about a request, and the ways it could go.

use alloc::vec::Vec;
use posthaste_plan::{Proposal, Scene};
use posthaste_types::Timestamp;

use crate::{contract::Reason, state::Route};

/// Decision about a request.
pub(crate) enum Verdict {
    /// Accepted on this route.
    Admit {
        route: Route,
        /// Lanes to feed.
        active: Vec<usize>,
        reason: Reason,
        /// Forecast time at which it is done, so far.
        finish: Option<Timestamp>,
        /// True if its deadline can't be met: it gets what the others leave.
        is_leftover: bool,
    },
    /// Refused.
    Refuse(Reason),
}

/// Possible ways of a request: its depots, best first, and the planner's question about them and
/// the destination.
pub(crate) struct Way {
    pub(crate) lanes: Vec<usize>,
    pub(crate) scene: Scene,
    pub(crate) proposal: Proposal,
}

impl Way {
    /// Returns the route that feeds so many depots.
    pub(crate) fn route(&self, depots: usize) -> Route {
        if depots == 0 && self.proposal.destination.is_some() {
            Route::Direct
        } else {
            Route::Staged
        }
    }
}
