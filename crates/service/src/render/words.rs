//! Names of the mind, in the API.

use posthaste_api as api;
use posthaste_core::contract::{DepotState, ReservationState, TransferKind};

pub(crate) const fn depot_state(state: DepotState) -> api::DepotState {
    match state {
        DepotState::Unknown => api::DepotState::Unknown,
        DepotState::Up => api::DepotState::Up,
        DepotState::Down => api::DepotState::Down,
    }
}

pub(super) const fn source_state(state: DepotState) -> api::SourceState {
    match state {
        DepotState::Unknown => api::SourceState::Unknown,
        DepotState::Up => api::SourceState::Up,
        DepotState::Down => api::SourceState::Down,
    }
}

pub(super) const fn reservation_state(state: ReservationState) -> api::ReservationState {
    match state {
        ReservationState::Asked => api::ReservationState::Asked,
        ReservationState::Granted => api::ReservationState::Granted,
        ReservationState::Up => api::ReservationState::Up,
        ReservationState::Down => api::ReservationState::Down,
        ReservationState::Returning => api::ReservationState::Returning,
    }
}

pub(super) const fn transfer_kind(kind: TransferKind) -> api::TransferKind {
    match kind {
        TransferKind::Depot => api::TransferKind::Depot,
        TransferKind::Destination => api::TransferKind::Destination,
        TransferKind::Source => api::TransferKind::Source,
        TransferKind::Prestage => api::TransferKind::Prestage,
        TransferKind::Near => api::TransferKind::Near,
        TransferKind::Address => api::TransferKind::Address,
    }
}

/// Returns the state of this name, by which the mind and the journal know it.
pub(super) fn request_state(name: &str) -> api::RequestState {
    let known = api::RequestState::named(name);
    debug_assert!(known.is_some(), "no state of a request is called `{name}`");
    known.unwrap_or(api::RequestState::Failed)
}
