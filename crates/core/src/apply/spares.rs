//! Judges spare depots.

use crate::state::State;

/// Judges whether depots come and go here, by the number of everybody's lost recently. Visits every
/// depot.
pub(crate) fn judge_rest(state: &mut State) {
    let (mut all, mut gone) = (0u64, 0u64);
    for depot in state.depots.values().filter(|depot| depot.is_common()) {
        all += 1;
        gone += u64::from(depot.went_lately(state.now));
    }
    state.is_restless = gone > 0 && gone * u64::from(state.settings.restless_of) >= all;
}
