//! Terms of depots that are lent, and timers for their hours.

use alloc::vec::Vec;
use posthaste_types::RequestId;

use crate::{
    apply,
    contract::{LentReason, Reason},
    state,
    state::{Request, State},
};

/// Records the terms on which depots are lent for an accepted request, and those that can't be
/// kept.
pub(crate) fn remember_lent(state: &mut State, id: RequestId) {
    let request = state.requests.get(&id);
    let lent = request.map_or(Vec::new(), |request| request.uncommon.lent.clone());
    apply::inputs::lent_told::remember_loaded(state, id);
    for lent in lent {
        let (depot, name) = (
            state.depots.get(&lent.depot),
            state::names::name_of(state, lent.depot),
        );
        let load = depot.and_then(|depot| depot.load_permille.zip(depot.load_felt_permille));
        let bound = lent.load_max_permille.map(|most_permille| match load {
            None => LentReason::LoadUnknown { most_permille },
            Some((load_permille, felt)) if felt >= most_permille => LentReason::Loaded {
                load_permille,
                most_permille,
            },
            Some((load_permille, _)) => LentReason::Unloaded {
                load_permille,
                most_permille,
            },
        });
        let windows = lent.windows;
        let hours = (!windows.is_always()).then_some(LentReason::Hours { windows });
        for why in hours.into_iter().chain(bound) {
            let what = "is lent for it".into();
            state::memory::remember_of(state, id, name.clone(), 0, what, Reason::Lent { why });
        }
    }
}

/// Schedules a look at depots with hours of a newcomer's own when these begin or end.
pub(crate) fn wind_for_lent(state: &mut State, request: &Request) {
    for lent in &request.uncommon.lent {
        let next = lent.windows.next_change(state.now);
        if let Some(depot) = state.depots.get_mut(&lent.depot) {
            depot.turns_at = depot.turns_at.into_iter().chain(next).min();
        }
    }
}
