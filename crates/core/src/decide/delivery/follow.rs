//! Sends whole chunks on to other destinations while they still arrive from the centre, if nothing
//! else goes that way.

use crate::{decide::delivery::Perch, state::State};

/// Returns whether a destination could get from another what that one still receives.
pub(crate) fn could_follow(state: &State, from: &Perch, to: &Perch) -> bool {
    let follows = state
        .depots
        .get(&from.depot)
        .is_some_and(|depot| depot.follows);
    let is_fed = state
        .depots
        .get(&to.depot)
        .is_some_and(|depot| depot.link.flights > 0);
    from.is_destination
        && from.gives
        && follows
        && !is_fed
        && state.pushes.is_idle(from.depot, to.depot)
}
