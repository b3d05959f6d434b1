use posthaste_api as api;
use posthaste_core::{
    Mind,
    contract::{ArrivalState, ArrivalView, RequestView},
};
use posthaste_types::RequestId;

use super::{finish, moment, seconds};

/// Returns the delivery state of a request, to destinations with relays or to an address.
pub(super) fn delivery_of(
    mind: &Mind,
    view: Option<&RequestView>,
    request: RequestId,
) -> Option<api::Delivery> {
    let told = view.and_then(|view| view.delivery).map(super::delivery);
    told.or_else(|| delivery(mind, request))
}

/// Returns the delivery state at the address to which a request goes on from its depots, if any.
fn delivery(mind: &Mind, request: RequestId) -> Option<api::Delivery> {
    let view = mind.arrival(mind.goes_on_as(request)?)?;
    let deadline = view.spec.deadline;
    let end = view.arrived_at.or(view.finish.map(|finish| finish.p90));
    Some(api::Delivery {
        deliver_by: Some(moment(deadline)),
        finish: view.finish.map(finish),
        slack_s: end.map(|end| seconds(deadline.slack_micros(end))),
        assumed: false,
        at_risk: view.at_risk,
        missed: view.missed || has_ended_before(&view),
        delivered: view.arrived_at.map(moment),
    })
}

/// Returns the files of a request that are missing at its final address.
pub(super) fn left_out(mind: &Mind, request: RequestId) -> Option<api::LeftOut> {
    let view = mind.arrival(mind.goes_on_as(request)?)?;
    super::stage_in::left_out(&view)
}

/// Returns whether its export ended before delivery.
fn has_ended_before(view: &ArrivalView) -> bool {
    matches!(
        view.state,
        ArrivalState::Refused | ArrivalState::Cancelled | ArrivalState::Failed
    )
}
