//! Routes for stage-ins: submitted and cancelled. Otherwise they are like other requests.

use std::sync::Arc;

use axum::{
    Extension, Json,
    extract::{Query, State},
    http::StatusCode,
};
use posthaste_api as api;
use posthaste_core::contract::{ArrivalState, Input};
use posthaste_endpoint::{Error, ErrorKind, Status};
use posthaste_journal::{RequestRecord, Scan};

use super::{Answer, Desk, requests::How};
use crate::{inbound::submit as submission, outbound, render, tokens::Caller};

/// Submits a stage-in. It is written down when this answers; whether it is admitted is known once its
/// sources have been looked at.
#[utoipa::path(post, path = "/v1/stage-ins", operation_id = "submit_stage_in", tag = "requests", security(("bearer" = ["submit"])), params(How),
    request_body = api::NewStageIn,
    responses((status = 201, body = api::Request),
        (status = 200, body = api::Request,
            description = "That submission id was taken before, or it was a dry run"),
        (status = 401, body = api::Problem), (status = 409, body = api::Problem),
        (status = 422, body = api::Problem)))]
pub(crate) async fn submit(
    State(desk): State<Desk>,
    Extension(caller): Extension<Arc<Caller>>,
    Query(how): Query<How>,
    Json(mut new): Json<api::NewStageIn>,
) -> Answer<(StatusCode, Json<api::Request>)> {
    caller.claim(&mut new.owner, &mut new.project);
    caller.name_submission(&mut new.submission_id, new.owner.as_deref())?;
    tokio::task::block_in_place(|| -> Answer<()> {
        let _ = caller.reaches(new.to.as_ref())?;
        let credentials = &desk.centre.store.actors.credentials;
        let owner = new.owner.as_deref().unwrap_or_default();
        for source in &mut new.sources {
            credentials.claim(owner, source)?;
            caller.reads(source, new.profile.as_deref())?;
        }
        Ok(())
    })?;
    if how.dry_run {
        let shown = submission::rehearse(&desk.centre, &new).await?;
        return Ok((StatusCode::OK, Json(shown)));
    }
    let permit = desk.reserve_scan(new.owner.as_ref(), &new.to)?;
    let (record, fresh) = tokio::task::block_in_place(|| submission::accept(&desk.centre, &new))?;
    if fresh {
        desk.centre.traced.begin(record.id);
        permit.send(record.id);
    }
    let status = if fresh {
        StatusCode::CREATED
    } else {
        StatusCode::OK
    };
    let shown = render::request(&desk.centre, &desk.centre.mind(), &record);
    Ok((status, Json(shown)))
}

/// Cancels a stage-in and removes what was written of it. An export's files at its destination
/// stay.
///
/// # Errors
/// [`ErrorKind::Conflict`] if it has ended or not begun.
pub(super) async fn cancel(desk: &Desk, record: &RequestRecord) -> Answer<StatusCode> {
    let view = desk.centre.mind().arrival(record.id);
    let subject = format!("request {}", record.id);
    let over = |why: String| Error::new(ErrorKind::Conflict, "cancel", subject).cause(why);
    let state = view.map(|view| view.state);
    let early = match record.scan {
        None => Some("its sources are still being looked at"),
        Some(Scan::Sealed { .. }) if record.ended.is_none() => Some("it is about to begin"),
        Some(Scan::Sealed { .. } | Scan::Failed { .. }) => None,
    };
    if let (None, Some(why)) = (state, early) {
        let early = over(why.to_owned()).status_is(Status::Temporary);
        return Err(early.hint("try again").into());
    }
    let why = match state {
        None if record.ended.is_none() && matches!(record.scan, Some(Scan::Failed { .. })) => {
            "its sources could not be looked at".to_owned()
        }
        None => format!(
            "it is already {}",
            record.ended.as_deref().unwrap_or("over")
        ),
        Some(ArrivalState::Landing) if outbound::goes_out(record) => {
            "all of it is there".to_owned()
        }
        Some(ArrivalState::Landing) => "all of it is here, its files get their names".to_owned(),
        Some(
            state @ (ArrivalState::Refused
            | ArrivalState::Arrived
            | ArrivalState::Released
            | ArrivalState::Cancelled
            | ArrivalState::Failed),
        ) => format!("it is already {}", state.name()),
        Some(ArrivalState::Waiting | ArrivalState::Moving) => {
            let request = record.id;
            desk.centre
                .put_down(Input::RequestCancelled { request })
                .await?;
            return Ok(StatusCode::ACCEPTED);
        }
    };
    Err(over(why).into())
}
