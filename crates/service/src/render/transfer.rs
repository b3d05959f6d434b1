use posthaste_api as api;
use posthaste_core::contract::{TransferEnd, TransferKind, TransferState, TransferView};
use posthaste_journal::RequestRecord;
use posthaste_types::ByteRate;

use super::{finish, words};
use crate::{driver::Centre, outbound};

/// Returns a transfer of a request. A transfer to an address gets the names of its ends from the
/// request.
pub(crate) fn transfer(
    centre: &Centre,
    record: &RequestRecord,
    view: &TransferView,
) -> api::Transfer {
    let (from, to) = match view.kind {
        TransferKind::Address => outbound::way::ends(record),
        TransferKind::Depot
        | TransferKind::Destination
        | TransferKind::Source
        | TransferKind::Prestage
        | TransferKind::Near => (Some(view.from.to_string()), view.to.to_string()),
    };
    api::Transfer {
        kind: words::transfer_kind(view.kind),
        from: from.unwrap_or_else(|| TransferEnd::Centre.to_string()),
        to,
        done_bytes: view.done.get(),
        left_bytes: view.left.get(),
        in_flight: view.in_flight,
        rate_bytes_per_s: rate(centre, view).map(ByteRate::get),
        finish: view.finish.map(finish),
        state: match view.state {
            TransferState::Waiting { .. } => api::TransferState::Waiting,
            TransferState::Running => api::TransferState::Running,
            TransferState::Parked { .. } => api::TransferState::Parked,
            TransferState::Done => api::TransferState::Done,
        },
        reason: view.state.why().map(ToString::to_string),
    }
}

/// Returns the recent rate of its path; none if its bytes don't pass through here.
fn rate(centre: &Centre, view: &TransferView) -> Option<ByteRate> {
    if let Some(source) = view.source {
        return Some(centre.flows.of(source).latest());
    }
    let is_sent_here = view.from == TransferEnd::Centre || view.kind == TransferKind::Prestage;
    match &view.to {
        TransferEnd::Depot { depot, .. } if is_sent_here => {
            let depot = centre.depots.get(*depot)?;
            Some(depot.meter.latest(crate::monotonic()))
        }
        TransferEnd::Depot { .. }
        | TransferEnd::Centre
        | TransferEnd::Source { .. }
        | TransferEnd::Depots
        | TransferEnd::Sources => None,
    }
}
