//! Ends of a transfer, as people name them.

use posthaste_types::DepotId;

use crate::{contract::TransferEnd, state, state::State};

pub(crate) fn end_at(state: &State, depot: DepotId) -> TransferEnd {
    TransferEnd::Depot {
        depot,
        name: state::names::name_of(state, depot),
    }
}
