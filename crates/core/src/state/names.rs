//! Names that people use for depots.

use alloc::{format, string::String};
use posthaste_types::DepotId;

use crate::state::State;

/// Returns the name that people use for a depot.
pub(crate) fn name_of(state: &State, depot: DepotId) -> String {
    state
        .depots
        .get(&depot)
        .map_or_else(|| format!("{depot}"), |depot| depot.name.clone())
}
