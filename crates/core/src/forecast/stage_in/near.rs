//! Depots near the centre as sources of stage-ins, and their rates.

use alloc::collections::BTreeMap;
use posthaste_forecast::Quantiles;
use posthaste_types::{DepotId, SourceId};

use crate::{
    contract::Knowledge,
    state::{Depot, Link, Source, State},
};

/// Returns the depots that are read as sources because they are near the centre of some
/// stage-in.
pub(crate) fn depots_as_sources(state: &State) -> BTreeMap<SourceId, DepotId> {
    let live = state.arrivals.live();
    let near = live.flat_map(|(_, arrival)| arrival.near.iter());
    near.map(|near| (near.source, near.depot)).collect()
}

/// Returns the rate of a source. A depot near the centre from which nothing was read yet is
/// assumed to give at the rate at which it accepts.
pub(crate) fn rates_of(state: &State, source: &Source, near: Option<DepotId>) -> Quantiles {
    let depot = near.and_then(|near| state.depots.get(&near));
    let taken = depot.filter(|depot| !source.link.is_measured() && depot.link.is_measured());
    taken.map_or(source.link.rates, |depot| depot.link.rates)
}

/// Returns whether the rate of a source is only a guess.
pub(crate) fn is_assumed(state: &State, source: &Source, near: Option<DepotId>) -> bool {
    let depot = near.and_then(|near| state.depots.get(&near));
    let links = [Some(&source.link), depot.map(|depot| &depot.link)];
    let is_guess = |link: &Link| link.knowledge(state.now, &state.settings) == Knowledge::Assumed;
    links.into_iter().flatten().all(is_guess)
}

/// Returns whether nothing can come from a source now.
pub(crate) fn gives_nothing(state: &State, source: &Source, near: Option<DepotId>) -> bool {
    let depot = near.map(|near| state.depots.get(&near).is_some_and(Depot::is_up));
    source.is_down() || depot == Some(false)
}
