//! Inputs for the mind about a recorded request.

use posthaste_core::contract::{Input, RequestSpec};
use posthaste_endpoint::Result;
use posthaste_journal::RequestRecord;
use posthaste_types::DepotId;

use crate::{depots::Viewer, driver::Centre};

/// Returns the input that submits a request to the mind.
pub(super) fn asked(record: &RequestRecord, spec: RequestSpec, pinned: Vec<DepotId>) -> Input {
    let (request, optimizer, wishes) = (record.id, record.optimizer, record.wishes.clone());
    let purge_at = record.purge_at;
    if !pinned.is_empty() {
        return Input::RequestPinned {
            request,
            spec,
            optimizer,
            wishes,
            purge_at,
            pinned,
        };
    }
    match purge_at {
        None => Input::RequestAsked {
            request,
            spec,
            optimizer,
            wishes,
        },
        Some(purge_at) => Input::RequestAskedBy {
            request,
            spec,
            optimizer,
            wishes,
            purge_at,
        },
    }
}

/// Returns the depots of these names that a request may use.
pub(super) fn ids(
    centre: &Centre,
    record: &RequestRecord,
    names: &[String],
) -> Result<Vec<DepotId>> {
    let whose = Viewer::of(record);
    let known = |name: &String| centre.depots.known(whose, "send via", name);
    let ids = names.iter().map(|name| Ok(known(name)?.record.id));
    ids.collect()
}
