//! Depots that a request may use now: up, open, lent, not drained.

use alloc::vec::Vec;
use posthaste_plan::Shut;
use posthaste_types::{DepotId, Timestamp};

use crate::{
    contract::LentTerms,
    state::completion::HOURS_AHEAD,
    state::{Depot, LOADED_FOR, Request, State},
};

/// Returns whether the depot of a lane is up or expected, and was not given up.
pub(crate) fn can_use(state: &State, request: &Request, lane: usize) -> bool {
    let depot = state.depots.get(&request.lanes[lane].depot);
    !request.is_barred(lane) && depot.is_some_and(Depot::is_expected)
}

/// Returns whether the depot of a lane is up or expected, and gives what it holds: a drained
/// one does.
pub(crate) fn can_give(state: &State, request: &Request, lane: usize) -> bool {
    let depot = state.depots.get(&request.lanes[lane].depot);
    !request.is_unwanted(lane) && depot.is_some_and(Depot::is_expected)
}

/// Returns whether a depot may give to others for a request: with a budget only what costs nothing.
pub(crate) fn gives_for(request: &Request, depot: &Depot) -> bool {
    request.wishes.budget_micro_usd.is_none() || depot.gives_free()
}

/// Returns whether a depot may take from others for a request: with a budget only what costs nothing.
pub(crate) fn takes_for(request: &Request, depot: &Depot) -> bool {
    request.wishes.budget_micro_usd.is_none() || depot.is_free()
}

/// Returns whether the depot of a lane is up, expected, or may come back.
pub(crate) fn may_use(state: &State, request: &Request, lane: usize) -> bool {
    let depot = state.depots.get(&request.lanes[lane].depot);
    let may_be = |depot: &Depot| depot.is_expected() || depot.is_hoped_for(&state.settings);
    !request.is_barred(lane) && depot.is_some_and(may_be)
}

/// Returns whether the depot of a lane is up and within its hours.
pub(crate) fn is_there(state: &State, request: &Request, lane: usize) -> bool {
    let depot = state.depots.get(&request.lanes[lane].depot);
    let is_there = |depot: &Depot| !depot.is_down() && depot.is_open_to(request, lane, state.now);
    !request.is_barred(lane) && depot.is_some_and(is_there)
}

/// Returns whether a depot is lent for some request only below a load.
#[must_use]
pub(crate) fn heeds_load(state: &State, id: DepotId) -> bool {
    let is_bound = |lent: &LentTerms| lent.depot == id && lent.load_max_permille.is_some();
    let mut users = state.index.users(id).into_iter();
    users.any(|user| {
        let request = state.requests.get(&user);
        request.is_some_and(|request| request.uncommon.lent.iter().any(is_bound))
    }) || state.lent.values().flatten().any(is_bound)
}

/// Returns when hours next begin or end at which a depot may be used, by all or for one
/// request.
pub(crate) fn next_turn(state: &State, id: DepotId) -> Option<Timestamp> {
    let own = state.depots.get(&id)?.terms.windows.next_change(state.now);
    let users = state.index.users(id).into_iter();
    let lent = users.filter_map(|user| {
        let lent = &state.requests.get(&user)?.uncommon.lent;
        let lent = lent.iter().find(|lent| lent.depot == id)?;
        lent.windows.next_change(state.now)
    });
    own.into_iter().chain(lent).min()
}

/// Returns depots that a request alone may not use at all times, each with its place among the
/// supplies.
pub(crate) fn shut(
    state: &State,
    request: &Request,
    place: impl Fn(DepotId) -> Option<usize>,
) -> Vec<Shut> {
    let now = state.now;
    let lent = request.uncommon.lent.iter();
    let shut = lent.filter_map(|lent| {
        let is_loaded = state.depots.get(&lent.depot)?.is_loaded(Some(lent));
        let is_shut = is_loaded || !lent.windows.is_always();
        is_shut.then_some(())?;
        Some(Shut {
            supply: place(lent.depot)?,
            windows: lent.windows.clone(),
            from: now,
            closed_until: if is_loaded { now + LOADED_FOR } else { now },
            until: now + HOURS_AHEAD,
        })
    });
    shut.collect()
}

pub(crate) fn level_of(state: &State, request: &Request, lane: usize) -> u8 {
    let id = request.lanes[lane].depot;
    let depot = state.depots.get(&id);
    depot.map_or(1, |depot| {
        state.crossings.level(id, depot, request.lead_depot())
    })
}
