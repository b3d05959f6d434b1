//! Gives each depot the next fragments of the most urgent requests.

pub(crate) mod endgame;
pub(crate) mod placing;
pub(crate) mod recall;

use alloc::collections::BTreeSet;
use posthaste_types::DepotId;

use crate::{
    apply,
    contract::Outbox,
    decide,
    decide::dispatch::{MISS, MISSES_MAX},
    state::{Depot, State, Urgency},
};

/// Gives every depot with room its next fragments, the most urgent request first.
///
/// Only depots about which something changed are looked at, and for each only the requests that
/// could send something there. The rest would find what they found before.
pub(crate) fn dispatch(state: &mut State, out: &mut Outbox) {
    apply::reindex::wind_timers(state);
    let changed = state.depots.take_touched();
    let mut heads: BTreeSet<(Urgency, DepotId, u32)> = changed
        .into_iter()
        .filter(|depot| state.depots.get(depot).is_some_and(Depot::is_up))
        .filter_map(|depot| Some((state.index.next_for(depot, None)?, depot, 0)))
        .collect();
    while let Some((urgency, depot, misses)) = heads.pop_first() {
        let id = urgency.request;
        let could = decide::dispatch::could_take(state, depot, urgency);
        let before = out.commands.len();
        if could {
            apply::tuning::begin_tuning(state, id);
            let ranks = decide::dispatch::rank::ranks(state, urgency);
            if let Some(mut placing) = apply::dispatch::placing::placing(state, id) {
                placing.ranks = ranks;
                placing.feed(out);
            }
            apply::failure_domain::say_crowded(state, id, out);
            apply::encoding::say_scattered(state, id);
            apply::reindex::bring_up_to_date(state);
        }
        let misses = match (could, out.commands.len() > before) {
            (true, true) => 0,
            (true, false) => misses + 1,
            (false, _) => misses + MISS,
        };
        if misses < MISSES_MAX {
            let next = state.index.next_for(depot, Some(urgency));
            heads.extend(next.map(|next| (next, depot, misses)));
        }
    }
    // Everything that was fed found its place; nothing is left for the next step.
    apply::reindex::wind_timers(state);
    state.depots.take_touched();
}
