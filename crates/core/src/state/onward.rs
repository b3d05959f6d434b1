use posthaste_types::Timestamp;

use crate::{
    contract::ArrivalState,
    state::{Arrival, State},
};
use posthaste_types::{RequestId, record};

use crate::contract::ArrivalSpec;

record! {
    /// Onward copy of a request from its depots to an address.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub(crate) struct Onward {
        /// Number of the copy.
        pub(crate) id: RequestId,
        /// Specification, until both are answered together.
        pub(crate) spec: Option<ArrivalSpec>,
    }
}

/// Returns when a failed release is tried again.
pub(crate) fn next_outward_release(state: &State) -> Option<Timestamp> {
    let outward = state.arrivals.outward.values();
    outward.filter_map(|outward| outward.release_at).min()
}

/// Returns the request from whose depots an onward copy is read.
pub(crate) fn comes_of(state: &State, id: RequestId) -> Option<RequestId> {
    state.arrivals.outward.get(&id)?.of
}

/// Returns the number under which a request goes on from its depots to an address.
#[must_use]
pub(crate) fn goes_on_as(state: &State, of: RequestId) -> Option<RequestId> {
    state.arrivals.onward.get(&of).map(|onward| onward.id)
}

/// Returns whether all of a request is at the address to which it went on.
pub(crate) fn has_gone_on(state: &State, of: RequestId) -> bool {
    let arrival = goes_on_as(state, of).and_then(|id| state.arrivals.requests.get(&id));
    let is_all = |arrival: &Arrival| arrival.left_out.files == 0;
    arrival.is_some_and(|arrival| arrival.state == ArrivalState::Arrived && is_all(arrival))
}

/// Returns whether a request is still going on to its address.
pub(crate) fn is_going_on(state: &State, of: RequestId) -> bool {
    let arrival = goes_on_as(state, of).and_then(|id| state.arrivals.requests.get(&id));
    arrival.is_some_and(|arrival| arrival.state.is_live())
}

/// Returns whether nothing of it can be read yet, as the depots' data is not safe so far.
pub(crate) fn waits_for_depots(state: &State, id: RequestId) -> bool {
    let Some(of) = comes_of(state, id) else {
        return false;
    };
    let request = state.requests.get(&of);
    request.is_none_or(|request| request.safe_at.is_none())
}
