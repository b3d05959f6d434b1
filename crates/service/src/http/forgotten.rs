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

/// Refuses a pull of what depots keep no longer, unless its source is given out.
pub(super) fn refuse_over(
    centre: &Centre,
    record: &RequestRecord,
    holders: &[api::Holder],
) -> Result<()> {
    let shown = render::request(centre, &centre.mind(), record);
    if !shown.keep_ended || holders.iter().any(|holder| holder.is_source) {
        return Ok(());
    }
    let until = shown.kept_until.unwrap_or_default();
    let error = Error::new(
        ErrorKind::NotFound,
        "pull",
        format!("request {}", record.id),
    );
    let error = error.cause(format!("depots keep it no longer, they did until {until}"));
    Err(match (shown.state, shown.out_of_reach) {
        (api::RequestState::Released, _) => {
            error.hint("its source was released: it is nowhere that this service knows")
        }
        (_, true) => error.hint("only its source has what was not released there"),
        (_, false) => error.hint("only its source has it: offload it again"),
    })
}

/// Says why a request is not cancelled of whose source some was released.
pub(super) fn touched(centre: &Centre, record: &RequestRecord) -> Error {
    let error = Error::new(
        ErrorKind::Conflict,
        "cancel",
        format!("request {}", record.id),
    );
    if render::is_kept_no_longer(centre, &centre.mind(), record) {
        return error
            .cause("of its source some was released, and depots keep it no longer")
            .hint("`posthaste status` says where it still is, if anywhere");
    }
    error
        .cause("of its source some was released: the depots hold the only copy")
        .hint("pull it first")
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
