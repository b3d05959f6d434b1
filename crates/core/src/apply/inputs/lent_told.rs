use alloc::vec::Vec;
use posthaste_types::{DepotId, RequestId};

use crate::{
    apply,
    contract::{LentReason, LentTerms, Outbox, Reason},
    state,
    state::State,
};

/// Sets the terms on which depots are lent for a request that is submitted next.
pub(crate) fn on_lent_told(state: &mut State, id: RequestId, terms: Vec<LentTerms>) {
    if !state.requests.contains_key(&id) && !state.planning.is_held(id) {
        state.lent.insert(id, terms);
    }
}

/// Records the load of a depot's machine: requests that waited for that get another chance.
pub(crate) fn on_load_told(state: &mut State, id: DepotId, load: Option<u32>, out: &mut Outbox) {
    let Some(depot) = state.depots.get_mut(&id) else {
        return;
    };
    let before = depot.load_felt_permille;
    depot.tell_load(load);
    let own = depot.load_max_permille;
    if before != depot.load_felt_permille && (own.is_some() || state::usable::heeds_load(state, id))
    {
        note_load(state, id, before, own);
        apply::depots::give_another_chance(state, id, out);
    }
}

/// Sets the load below which an owner lends a depot.
pub(crate) fn on_load_bounded(state: &mut State, id: DepotId, most: Option<u32>, out: &mut Outbox) {
    let Some(depot) = state.depots.get_mut(&id) else {
        return;
    };
    let load = depot.load_felt_permille;
    let before = core::mem::replace(&mut depot.load_max_permille, most);
    if before != most {
        note_load(state, id, load, before);
        apply::depots::give_another_chance(state, id, out);
    }
}

/// Records with requests that a depot's load rose above their bound, or fell below it, since it
/// was `before`, when its owner's bound was `own_before`.
fn note_load(state: &mut State, id: DepotId, before: Option<u32>, own_before: Option<u32>) {
    let Some(depot) = state.depots.get(&id) else {
        return;
    };
    let Some((load_permille, felt)) = depot.load_permille.zip(depot.load_felt_permille) else {
        return;
    };
    let own = depot.load_max_permille;
    for user in state.index.users(id) {
        let request = state
            .requests
            .get(&user)
            .filter(|request| request.is_moving());
        let lent = request.into_iter();
        let mut lent = lent.flat_map(|request| &request.uncommon.lent);
        let lent = lent.find(|lent| lent.depot == id);
        let lent = lent.and_then(|lent| lent.load_max_permille);
        let is_moving = request.is_some();
        let most = own.into_iter().chain(lent).min();
        let most_before = own_before.into_iter().chain(lent).min();
        // When a bound is lifted, the former one says from what it is free.
        let Some(most_permille) = most.or(most_before).filter(|_| is_moving) else {
            continue;
        };
        let was_loaded = before
            .zip(most_before)
            .is_some_and(|(before, most)| before >= most);
        let is_loaded = most.is_some_and(|most| felt >= most);
        let (what, why) = match (was_loaded, is_loaded) {
            (false, true) => (
                "is left alone",
                LentReason::Loaded {
                    load_permille,
                    most_permille,
                },
            ),
            (true, false) => (
                "is used again",
                LentReason::Unloaded {
                    load_permille,
                    most_permille,
                },
            ),
            (true, true) | (false, false) => continue,
        };
        let name = state::names::name_of(state, id);
        state::memory::remember_of(state, user, name, 0, what.into(), Reason::Lent { why });
    }
}

/// Records which depots of a request have too much load for all.
pub(crate) fn remember_loaded(state: &mut State, id: RequestId) {
    let request = state.requests.get(&id).into_iter();
    let lanes = request.flat_map(|request| &request.lanes);
    let depots = lanes.filter_map(|lane| state.depots.get(&lane.depot));
    let loaded = depots.filter(|depot| depot.is_loaded(None));
    let loaded = loaded.filter_map(|depot| {
        let why = LentReason::Loaded {
            load_permille: depot.load_permille?,
            most_permille: depot.load_max_permille?,
        };
        Some((depot.name.clone(), why))
    });
    for (name, why) in loaded.collect::<Vec<_>>() {
        state::memory::remember_of(
            state,
            id,
            name,
            0,
            "is left alone".into(),
            Reason::Lent { why },
        );
    }
}
