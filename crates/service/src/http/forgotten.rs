//! Refusals about datasets that depots were told to remove, or are not to.

use posthaste_api as api;
use posthaste_core::contract::{Reason, RequestState, RequestView};
use posthaste_endpoint::{Error, ErrorKind, Result};
use posthaste_journal::RequestRecord;
use posthaste_types::RequestId;

use crate::{driver::Centre, render};

/// Refuses a pull of what depots were told to remove, unless its source is given out.
pub(super) fn refuse(centre: &Centre, id: RequestId, holders: &[api::Holder]) -> Result<()> {
    let mind = centre.mind();
    let is_gone = |view: RequestView| {
        view.state == RequestState::Delivered && view.shares.iter().all(|share| share.stored == 0)
    };
    let asked = mind.explain(id).unwrap_or_default();
    let mut asked = asked.iter().map(|decision| &decision.reason);
    let is_forgotten =
        mind.request(id).is_some_and(is_gone) && asked.any(|why| *why == Reason::Asked);
    if !is_forgotten || holders.iter().any(|holder| holder.is_source) {
        return Ok(());
    }
    let subject = format!("request {id}");
    Err(Error::new(ErrorKind::NotFound, "pull", subject)
        .cause("depots removed it, as `posthaste forget` asked")
        .hint("it is where it was pulled to"))
}

/// Says why depots are not told to remove a request.
pub(super) fn refused(centre: &Centre, record: &RequestRecord) -> Error {
    use api::RequestState::{Cancelled, Failed, Refused};
    let state = render::state(&centre.mind(), record);
    let error = Error::new(
        ErrorKind::Conflict,
        "forget",
        format!("request {}", record.id),
    );
    if matches!(state, Refused | Cancelled | Failed) {
        return error
            .cause(format!(
                "it is {state}, and there is no dataset of it to pull"
            ))
            .hint("what depots hold of it goes when it expires");
    }
    error
        .cause("nobody pulled all of it yet, or it is still to be released or to go on")
        .hint("`posthaste pull` it first, or `posthaste cancel` it where its source is still there")
}
