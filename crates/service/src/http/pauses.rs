//! Routes for pausing and resuming requests.

use std::sync::Arc;

use axum::{
    Extension, Json,
    extract::{Path, State},
};
use posthaste_api as api;
use posthaste_core::contract::{ArrivalState, Input, RequestState};
use posthaste_endpoint::{Error, ErrorKind, Result, Status};
use posthaste_journal::{RequestRecord, Scan};

use super::{
    Answer, Desk,
    requests::{find_own, show_record},
};
use crate::tokens::Caller;

/// Lets a request wait: nothing of it is begun until it is resumed. Its deadline and its purge stay. Pausing what is
/// paused changes nothing.
#[utoipa::path(post, path = "/v1/requests/{id}/pause", operation_id = "pause_request", tag = "requests", security(("bearer" = ["submit"])),
    params(("id" = String, Path, description = "The request's id, like r7")),
    responses((status = 200, body = api::Request,
            description = "It waits: `slack_s` is how long it may, and `purge_at` when its source is to be purged, where that is known"),
        (status = 401, body = api::Problem), (status = 404, body = api::Problem),
        (status = 409, body = api::Problem)))]
pub(crate) async fn pause(
    State(desk): State<Desk>,
    Extension(caller): Extension<Arc<Caller>>,
    Path(id): Path<String>,
) -> Answer<Json<api::Request>> {
    let record = find_own(&desk, &caller, &id)?;
    is_under_way(&desk, &record, "pause", false)?;
    let (request, by) = (record.id, caller.name());
    desk.centre.put_down(Input::Paused { request, by }).await?;
    Ok(Json(show_record(&desk, &record)))
}

/// Lets a paused request go on; everything about it is planned anew. Resuming what goes on changes nothing.
#[utoipa::path(post, path = "/v1/requests/{id}/resume", operation_id = "resume_request", tag = "requests", security(("bearer" = ["submit"])),
    params(("id" = String, Path, description = "The request's id, like r7")),
    responses((status = 200, body = api::Request), (status = 401, body = api::Problem),
        (status = 404, body = api::Problem), (status = 409, body = api::Problem)))]
pub(crate) async fn resume(
    State(desk): State<Desk>,
    Extension(caller): Extension<Arc<Caller>>,
    Path(id): Path<String>,
) -> Answer<Json<api::Request>> {
    let record = find_own(&desk, &caller, &id)?;
    is_under_way(&desk, &record, "resume", false)?;
    let (request, by) = (record.id, caller.name());
    desk.centre.put_down(Input::Resumed { request, by }).await?;
    Ok(Json(show_record(&desk, &record)))
}

/// Checks that the request may still change.
///
/// # Errors
/// [`ErrorKind::Conflict`] if it has ended, or is not that far yet, which passes.
pub(super) fn is_under_way(
    desk: &Desk,
    record: &RequestRecord,
    operation: &'static str,
    may_land: bool,
) -> Result<()> {
    let subject = format!("request {}", record.id);
    let over = |why: String| Error::new(ErrorKind::Conflict, operation, subject.clone()).cause(why);
    let early = |why: &str| {
        over(why.to_owned())
            .status_is(Status::Temporary)
            .hint("try again")
    };
    let mind = desk.centre.mind();
    let stage_out = mind.request(record.id).map(|view| view.state);
    let stage_in = mind.arrival(record.id).map(|view| view.state);
    match (stage_out, stage_in) {
        (Some(RequestState::Moving | RequestState::Safe | RequestState::Released), _)
        | (None, Some(ArrivalState::Waiting | ArrivalState::Moving)) => Ok(()),
        (
            Some(
                state @ (RequestState::Refused
                | RequestState::Cancelled
                | RequestState::Failed
                | RequestState::Delivered),
            ),
            _,
        ) => Err(over(format!("it is already {}", state.name()))),
        (None, Some(ArrivalState::Landing)) if may_land => Ok(()),
        (None, Some(ArrivalState::Landing)) => Err(over("all of it is there".to_owned())),
        (
            None,
            Some(
                state @ (ArrivalState::Refused
                | ArrivalState::Arrived
                | ArrivalState::Released
                | ArrivalState::Cancelled
                | ArrivalState::Failed),
            ),
        ) => Err(over(format!("it is already {}", state.name()))),
        (None, None) if record.scan.is_none() => Err(early("its source is still being scanned")),
        // The request's answer waits for a plan.
        (None, None)
            if record.ended.is_none()
                && record.stage_in.is_none()
                && matches!(record.scan, Some(Scan::Sealed { .. })) =>
        {
            Ok(())
        }
        (None, None)
            if record.ended.is_none() && matches!(record.scan, Some(Scan::Failed { .. })) =>
        {
            Err(over("its source could not be scanned".to_owned()))
        }
        (None, None) if record.ended.is_none() && record.stage_in.is_some() => {
            Err(early("it is about to begin"))
        }
        (None, None) => {
            let end = record.ended.as_deref().unwrap_or("over");
            Err(over(format!("it is already {end}")))
        }
    }
}
