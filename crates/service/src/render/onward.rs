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

/// Returns the files left out of a request, with those missing at the address that it went on to.
pub(super) fn with_left_out(
    own: Option<api::LeftOut>,
    mind: &Mind,
    request: RequestId,
) -> Option<api::LeftOut> {
    let onward = mind.goes_on_as(request).and_then(|id| mind.arrival(id));
    let there = onward.and_then(|view| super::stage_in::left_out(&view));
    match (own, there) {
        (Some(mut own), Some(there)) => {
            own.files += there.files;
            own.bytes += there.bytes;
            own.named.extend(there.named);
            own.named.truncate(super::omitted::LEFT_OUT_NAMED_MAX);
            Some(own)
        }
        (own, there) => own.or(there),
    }
}

/// Returns whether its export ended before delivery.
fn has_ended_before(view: &ArrivalView) -> bool {
    matches!(
        view.state,
        ArrivalState::Refused | ArrivalState::Cancelled | ArrivalState::Failed
    )
}
