//! Spread of the rates of paths.

use crate::state::State;

/// Returns by how much less the sum of depots' rates strays than each of them: errors of
/// independent paths add up by their squares. Requests use a few depots only.
pub(crate) fn spread(state: &State) -> u64 {
    const MOST: usize = 9;
    let depots = state.depots.values();
    let depots = depots.filter(|depot| depot.is_common() && depot.is_expected());
    (depots.take(MOST).count() as u64).isqrt().max(1)
}
