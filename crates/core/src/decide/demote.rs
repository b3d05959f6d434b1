//! Late requests let others go first if that keeps more deadlines
//! (`docs/algorithms/greedy-planner.md`). The earliest deadline first is the best order only while
//! all can be kept. A large late request makes all behind it late as well.

use alloc::vec::Vec;
use posthaste_types::RequestId;

use crate::state::{Request, State};

/// Most late requests that are tried, the largest first: without one of these the others gain most.
pub(crate) const TRIED_MAX: usize = 8;

pub(crate) fn those(state: &State, are: impl Fn(&Request) -> bool) -> Vec<RequestId> {
    let all = state.index.after(None).map(|urgency| urgency.request);
    all.filter(|id| state.requests.get(id).is_some_and(&are))
        .collect()
}
