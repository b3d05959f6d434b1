//! Holds requests back while the centre's uplink is full.

use crate::{
    state,
    state::State,
    state::uplink::{SHARE_PERCENT, Taken},
};

/// Returns whether only the full uplink bounded a depot's rate: a depot slower than the share
/// of others is slow by itself.
pub(crate) fn is_held_by_way_out(state: &mut State, taken: &Taken) -> bool {
    if state.settings.egress.is_none() {
        return false;
    }
    state.way_out.count(state.now, taken);
    let share = state.way_out.share.scaled(SHARE_PERCENT, 100);
    state::uplink::is_way_out_full(state) && taken.rate() >= share
}
