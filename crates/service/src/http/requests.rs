//! Routes for requests: submitted, shown, cancelled, explained, pulled.

use std::{sync::Arc, time::Duration};

use axum::{
    Extension, Json,
    extract::{Path, Query, State},
    http::{StatusCode, header},
    response::{IntoResponse, Response},
};
use posthaste_api as api;
use posthaste_core::contract::{Input, RequestState};
use posthaste_endpoint::{Error, ErrorKind, Result, Status, relay};
use posthaste_journal::{RequestRecord, Scan};
use posthaste_types::{ByteRate, RequestId, Timestamp};
use serde::Deserialize;

use super::{Answer, Desk, Refusal, forgotten, pauses::is_under_way, stage_ins};
use crate::{
    depots::Viewer, outbound, purges, render, submit as submission, tokens::Caller, wishes,
};

/// Lifetime of a ticket's tokens: a slow pull asks for another.
const TICKET_TTL: Duration = Duration::from_secs(24 * 3600);

pub(super) fn show_record(desk: &Desk, record: &RequestRecord) -> api::Request {
    render::request(&desk.centre, &desk.centre.mind(), record)
}

pub(super) fn parse_id(id: &str) -> Answer<RequestId> {
    Ok(id.parse().map_err(|_| {
        Error::new(ErrorKind::Invalid, "find", format!("request {id}"))
            .cause("a request's id is written like r7")
    })?)
}

pub(super) fn find(desk: &Desk, id: &str) -> Answer<RequestRecord> {
    let id = parse_id(id)?;
    Ok(desk.centre.store.request(id).map_err(|error| {
        if error.kind() == ErrorKind::NotFound {
            error.hint("`posthaste list` shows the requests")
        } else {
            error
        }
    })?)
}

/// Finds a request that the caller may change and whose data it may have.
pub(super) fn find_own(desk: &Desk, caller: &Caller, id: &str) -> Answer<RequestRecord> {
    let record = find(desk, id)?;
    caller.owns(&record)?;
    Ok(record)
}

/// Finds such a request, to do that with what depots hold of it.
///
/// # Errors
/// [`ErrorKind::Conflict`] if it goes to its place without them.
fn find_held(desk: &Desk, caller: &Caller, id: &str, doing: &'static str) -> Answer<RequestRecord> {
    let record = find_own(desk, caller, id)?;
    if record.stage_in.is_none() {
        return Ok(record);
    }
    let to = crate::credentials::shown(&record.destination);
    Err(
        Error::new(ErrorKind::Conflict, doing, format!("request {}", record.id))
            .cause(format!(
                "its files go to {to} themselves: depots hold no dataset of it"
            ))
            .hint(format!(
                "`posthaste status {}` says how far it is",
                record.id
            ))
            .into(),
    )
}

/// Options of a submission.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct How {
    /// Say what would be decided, and change nothing.
    #[serde(default)]
    pub(crate) dry_run: bool,
}

/// Submits a stage-out. It is written down when this answers; whether it is admitted is known once
/// its source has been scanned.
#[utoipa::path(post, path = "/v1/requests", operation_id = "submit_request", tag = "requests", security(("bearer" = ["submit"])), params(How), request_body = api::NewRequest,
    responses((status = 201, body = api::Request),
        (status = 200, body = api::Request,
            description = "That submission id was taken before, or it was a dry run"),
        (status = 401, body = api::Problem), (status = 404, body = api::Problem),
        (status = 422, body = api::Problem)))]
pub(crate) async fn submit(
    State(desk): State<Desk>,
    Extension(caller): Extension<Arc<Caller>>,
    Query(how): Query<How>,
    Json(mut new): Json<api::NewRequest>,
) -> Answer<(StatusCode, Json<api::Request>)> {
    tokio::task::block_in_place(|| claim(&desk, &caller, &mut new))?;
    if how.dry_run {
        return Ok((
            StatusCode::OK,
            Json(submission::rehearse(&desk.centre, &new).await?),
        ));
    }
    let permit = desk.reserve_scan(new.wishes.owner.as_ref(), &new.source)?;
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
    Ok((status, Json(show_record(&desk, &record))))
}

/// Sets the owner of a submission, and checks that the owner may have it moved. Blocking.
pub(super) fn claim(desk: &Desk, caller: &Caller, new: &mut api::NewRequest) -> Result<()> {
    caller.claim(&mut new.wishes.owner, &mut new.wishes.project);
    caller.name_submission(&mut new.submission_id, new.wishes.owner.as_deref())?;
    let credentials = &desk.centre.store.actors.credentials;
    let owner = new.wishes.owner.as_deref().unwrap_or_default();
    for address in new.to.iter_mut().chain([&mut new.source]) {
        credentials.claim(owner, address)?;
    }
    let Some(address) = outbound::submit::address(&desk.centre, new) else {
        return reach(desk, caller, new);
    };
    if new.via.is_empty() {
        caller.reads(&new.source, new.profile.as_deref())?;
    } else {
        reach(desk, caller, new)?;
    }
    caller.writes(&address, new.profile.as_deref())
}

/// Checks that a source on this machine may be moved. If the kernel does not enforce its owner's
/// rights, the request gets the checked path, so that no later link leads elsewhere.
fn reach(desk: &Desk, caller: &Caller, new: &mut api::NewRequest) -> Result<()> {
    let judged = caller.reaches(new.source.as_ref())?;
    let is_owned = new
        .wishes
        .owner
        .as_ref()
        .is_some_and(|owner| !owner.is_empty());
    if is_owned
        && !desk.centre.store.actors.are_owners()
        && let Ok(judged) = judged.into_os_string().into_string()
    {
        new.source = judged;
    }
    Ok(())
}

/// Shows a request.
#[utoipa::path(get, path = "/v1/requests/{id}", operation_id = "get_request", tag = "requests", security(("bearer" = ["read"])),
    params(("id" = String, Path, description = "The request's id, like r7")),
    responses((status = 200, body = api::Request), (status = 401, body = api::Problem), (status = 404, body = api::Problem)))]
pub(crate) async fn show(
    State(desk): State<Desk>,
    Path(id): Path<String>,
) -> Answer<Json<api::Request>> {
    let record = find(&desk, &id)?;
    Ok(Json(show_record(&desk, &record)))
}

/// Cancels a request. Its source stays, and depots forget what they hold of it.
#[utoipa::path(delete, path = "/v1/requests/{id}", operation_id = "cancel_request", tag = "requests", security(("bearer" = ["submit"])),
    params(("id" = String, Path, description = "The request's id, like r7")),
    responses((status = 202), (status = 401, body = api::Problem), (status = 404, body = api::Problem), (status = 409, body = api::Problem)))]
pub(crate) async fn cancel(
    State(desk): State<Desk>,
    Extension(caller): Extension<Arc<Caller>>,
    Path(id): Path<String>,
) -> Answer<StatusCode> {
    let record = find_own(&desk, &caller, &id)?;
    if record.scan.is_none() && desk.centre.scans.cancel(record.id).await {
        let record = find(&desk, &id)?;
        if record.ended.is_some() {
            return Ok(StatusCode::ACCEPTED);
        }
    }
    if record.stage_in.is_some() {
        return stage_ins::cancel(&desk, &record).await;
    }
    let view = desk.centre.mind().request(record.id);
    let over = |why: &str| {
        Error::new(
            ErrorKind::Conflict,
            "cancel",
            format!("request {}", record.id),
        )
        .cause(why.to_owned())
    };
    let is_touched = view.as_ref().is_some_and(|view| view.has_tried_release);
    match view.map(|view| view.state) {
        None if record.scan.is_none() => {
            return Err(over("its source is still being scanned")
                .status_is(Status::Temporary)
                .hint("try again")
                .into());
        }
        None if record.ended.is_none() && matches!(record.scan, Some(Scan::Sealed { .. })) => {
            return Err(over("its answer waits for a plan")
                .status_is(Status::Temporary)
                .hint("try again in a few seconds")
                .into());
        }
        None => {
            let ended = record.ended.as_deref();
            let ended = ended.map(|end| format!("it is already {end}"));
            let why = ended.unwrap_or_else(|| "its source could not be scanned".to_owned());
            return Err(over(&why).into());
        }
        Some(RequestState::Released | RequestState::Safe) if is_touched => {
            return Err(forgotten::touched(&desk.centre, &record).into());
        }
        Some(
            state @ (RequestState::Refused
            | RequestState::Cancelled
            | RequestState::Failed
            | RequestState::Delivered),
        ) => return Err(over(&format!("it is already {}", state.name())).into()),
        Some(RequestState::Moving | RequestState::Safe | RequestState::Released) => {}
    }
    desk.centre
        .put_down(Input::RequestCancelled { request: record.id })
        .await?;
    // It may have ended otherwise, or a release of its source may have begun, meanwhile.
    let record = find(&desk, &id)?;
    let state = render::state(&desk.centre.mind(), &record);
    if state != api::RequestState::Cancelled {
        return Err(over(&format!("it is {state}, and can't be cancelled now")).into());
    }
    Ok(StatusCode::ACCEPTED)
}

/// Changes a running request: moves its deadline, limits what may be sent for it, or gives it another priority.
#[utoipa::path(patch, path = "/v1/requests/{id}", operation_id = "modify_request", tag = "requests", security(("bearer" = ["submit"])),
    params(("id" = String, Path, description = "The request's id, like r7")),
    request_body = api::Change,
    responses((status = 202), (status = 401, body = api::Problem), (status = 404, body = api::Problem),
        (status = 409, body = api::Problem, description = "It is over, or is not that far yet"), (status = 422, body = api::Problem)))]
pub(crate) async fn modify(
    State(desk): State<Desk>,
    Extension(caller): Extension<Arc<Caller>>,
    Path(id): Path<String>,
    Json(new): Json<api::Change>,
) -> Answer<StatusCode> {
    let record = find_own(&desk, &caller, &id)?;
    // A request that can't land continues: until it has landed, its deadline still counts.
    is_under_way(&desk, &record, "change", true)?;
    let moment = |what: &'static str, at: Option<String>| -> Answer<Option<Timestamp>> {
        let at = at.map(|at| render::parse_moment(what, &at)).transpose()?;
        if at.is_some_and(|at| at <= desk.centre.clock.now()) {
            let what = format!("{what} of {id}");
            let error = Error::new(ErrorKind::Invalid, "move", what);
            return Err(error.cause("the new one has passed").into());
        }
        Ok(at)
    };
    let deadline = moment("the deadline", new.deadline)?;
    let purge_at = moment("the purge", new.purge_at)?;
    if purge_at.is_some() && record.stage_in.is_some() {
        let what = format!("the purge of {id}");
        let error = Error::new(ErrorKind::Invalid, "move", what);
        let error = error.cause("only an offload over depots has one that moves");
        return Err(error.hint("move its deadline").into());
    }
    let deliver_by = match new.deliver_by.as_deref() {
        None => None,
        Some("any") => Some(None),
        Some(at) => Some(moment("the delivery", Some(at.to_owned()))?),
    };
    let goes_on = outbound::onward::goes_on(&record);
    if let Some(to) = deliver_by {
        may_be_delivered(&desk, &record, to)?;
    }
    let request = record.id;
    let priority = new.priority.as_deref().map(wishes::priority).transpose()?;
    let ranked = priority.map(|priority| Input::PriorityMoved { request, priority });
    let delivered = (deliver_by.filter(|_| !goes_on)).map(|deliver_by| Input::DeliveryMoved {
        request,
        deliver_by,
    });
    let purged = purge_at.map(|purge_at| Input::PurgeMoved {
        request,
        purge_at: Some(purge_at),
    });
    let moved = deadline.map(|deadline| Input::DeadlineMoved { request, deadline });
    let limited = new.rate_bytes_per_s_max.map(|rate| Input::RateLimited {
        request,
        rate_max: (rate > 0).then(|| ByteRate::new(rate)),
    });
    let mut inputs: Vec<Input> = moved
        .into_iter()
        .chain(delivered)
        .chain(purged)
        .chain(limited)
        .chain(ranked)
        .collect();
    inputs.extend(outbound::onward::changed(
        &desk.centre,
        &record,
        &inputs,
        deliver_by.flatten(),
    )?);
    let _turn = match purge_at {
        Some(at) => Some(purges::said(&desk.centre, request, at).await?),
        None => None,
    };
    for input in inputs {
        desk.centre.put_down(input).await?;
    }
    Ok(StatusCode::ACCEPTED)
}

/// Checks that a request can have that deliver-by time, or any.
fn may_be_delivered(desk: &Desk, record: &RequestRecord, by: Option<Timestamp>) -> Result<()> {
    let depots = &desk.centre.depots;
    let is_relay = |name: &str| depots.named_for(Viewer::of(record), name).is_some();
    let names_relays = record.stage_in.is_none() && record.destinations().all(is_relay);
    if names_relays || (by.is_some() && outbound::onward::goes_on(record)) {
        return Ok(());
    }
    let what = format!("the delivery of {}", record.id);
    Err(Error::new(ErrorKind::Invalid, "move", what)
        .cause("it has no destination that runs a relay")
        .hint("only what goes to such, or over depots to an address, is delivered by a moment"))
}

/// Explains a request: what was decided when, and why.
#[utoipa::path(get, path = "/v1/requests/{id}/explain", operation_id = "explain_request", tag = "requests", security(("bearer" = ["read"])),
    params(("id" = String, Path, description = "The request's id, like r7")),
    responses((status = 200, body = Vec<api::Decision>), (status = 401, body = api::Problem), (status = 404, body = api::Problem)))]
pub(crate) async fn explain(
    State(desk): State<Desk>,
    Path(id): Path<String>,
) -> Answer<Json<Vec<api::Decision>>> {
    let record = find(&desk, &id)?;
    let decisions = desk.centre.mind().explain(record.id).unwrap_or_default();
    let shown = decisions.into_iter().map(|decision| api::Decision {
        at: render::moment(decision.at),
        what: decision.at.undate(&decision.what()),
        reason: render::reason(&desk.centre, &decision.reason, decision.at),
    });
    Ok(Json(shown.collect()))
}

/// Tells the story of a request: what was asked and answered, what happened and what was done about
/// it, how it stands or ended, and where its slack went.
#[utoipa::path(get, path = "/v1/requests/{id}/story", operation_id = "get_request_story", tag = "requests", security(("bearer" = ["read"])),
    params(("id" = String, Path, description = "The request's id, like r7")),
    responses((status = 200, body = api::Story), (status = 401, body = api::Problem), (status = 404, body = api::Problem)))]
pub(crate) async fn story(
    State(desk): State<Desk>,
    Path(id): Path<String>,
) -> Answer<Json<api::Story>> {
    let record = find(&desk, &id)?;
    let told = desk.centre.mind().story(record.id);
    let sentences = match (told, &record.scan) {
        (Some(told), _) => told,
        (None, Some(Scan::Failed { error, .. })) => vec![format!("It was never begun: {error}.")],
        (None, None) => vec!["Its source is still being looked at.".to_owned()],
        // The mind forgets the oldest ended requests.
        (None, Some(Scan::Sealed { .. })) => {
            let end = record.ended.as_deref().unwrap_or("over");
            vec![format!(
                "It is {end}; what was decided about it is no longer known."
            )]
        }
    };
    Ok(Json(api::Story {
        request: record.id.to_string(),
        sentences,
    }))
}

/// Gives out the manifest: the list of files and every digest. Of an encrypted dataset, the
/// envelope that its recipients can open.
#[utoipa::path(get, path = "/v1/requests/{id}/manifest", operation_id = "get_request_manifest", tag = "requests", security(("bearer" = ["submit"])),
    params(("id" = String, Path, description = "The request's id, like r7")),
    responses((status = 200, content_type = "application/octet-stream", body = Vec<u8>),
        (status = 401, body = api::Problem), (status = 404, body = api::Problem),
        (status = 409, body = api::Problem, description = "Code `busy`: not all of it has been read yet; else it never will be")))]
pub(crate) async fn manifest(
    State(desk): State<Desk>,
    Extension(caller): Extension<Arc<Caller>>,
    Path(id): Path<String>,
) -> Answer<Response> {
    let record = find_held(&desk, &caller, &id, "pull")?;
    let read = || desk.centre.store.manifest_bytes(record.id);
    match tokio::task::block_in_place(read) {
        Ok(manifest) => {
            let kind = [(header::CONTENT_TYPE, "application/octet-stream")];
            Ok((kind, manifest).into_response())
        }
        // The service is well, but the manifest does not exist yet, or never will.
        Err(error) if error.kind() == ErrorKind::Busy => {
            let state = render::state(&desk.centre.mind(), &record);
            if matches!(
                state,
                api::RequestState::Refused
                    | api::RequestState::Cancelled
                    | api::RequestState::Failed
            ) {
                let subject = format!("the manifest of {}", record.id);
                let error = Error::new(ErrorKind::Conflict, "make", subject);
                return Err(error
                    .cause(format!("it is {state}, and not all of it was read"))
                    .into());
            }
            let mut problem = Refusal::from(error).problem();
            problem.status = StatusCode::CONFLICT.as_u16();
            Ok(super::answer_problem(&problem))
        }
        Err(error) => Err(error.into()),
    }
}

/// Gives somebody leave to pull: who holds the dataset, and tokens that read it and nothing else. Where
/// sources are handed out, chunks that nobody read yet are read from now on.
#[utoipa::path(post, path = "/v1/requests/{id}/ticket", operation_id = "issue_ticket", tag = "requests", security(("bearer" = ["submit"])),
    params(("id" = String, Path, description = "The request's id, like r7")),
    responses((status = 200, body = api::Ticket), (status = 401, body = api::Problem), (status = 404, body = api::Problem)))]
pub(crate) async fn ticket(
    State(desk): State<Desk>,
    Extension(caller): Extension<Arc<Caller>>,
    Path(id): Path<String>,
) -> Answer<Json<api::Ticket>> {
    let record = find_held(&desk, &caller, &id, "pull")?;
    let centre = &desk.centre;
    let dataset = centre.store.dataset(record.id)?;
    let expires = centre.clock.now() + TICKET_TTL;
    let holders = record
        .holders()
        .filter_map(|name| centre.depots.named_for(Viewer::of(&record), name))
        .map(|depot| api::Holder {
            name: depot.record.name.clone(),
            url: depot.record.url.clone(),
            fingerprint: depot.record.fingerprint.clone(),
            token: relay::mint(&depot.secret, relay::Scope::Read, Some(&dataset), expires),
            is_source: false,
        });
    let mut holders: Vec<api::Holder> = holders.collect();
    let lending = centre.lending.get();
    let source = lending.map(|lending| lending.offer(centre, &record, expires));
    let (source, unread_chunks) = source.transpose()?.flatten().unzip();
    holders.extend(source);
    forgotten::refuse(centre, record.id, &holders)?;
    forgotten::refuse_over(centre, &record, &holders)?;
    Ok(Json(api::Ticket {
        dataset: record.dataset.clone(),
        expires: render::moment(expires),
        holders,
        unread_chunks: unread_chunks.unwrap_or(0),
    }))
}

/// Lets depots remove what they hold of a request that is delivered, or was pulled: who pulled it has all of it.
#[utoipa::path(post, path = "/v1/requests/{id}/forget", operation_id = "forget_request", tag = "requests", security(("bearer" = ["submit"])),
    params(("id" = String, Path, description = "The request's id, like r7")),
    responses((status = 202), (status = 401, body = api::Problem), (status = 404, body = api::Problem), (status = 409, body = api::Problem)))]
pub(crate) async fn forget(
    State(desk): State<Desk>,
    Extension(caller): Extension<Arc<Caller>>,
    Path(id): Path<String>,
) -> Answer<StatusCode> {
    let record = find_held(&desk, &caller, &id, "forget")?;
    if !desk.centre.mind().may_forget(record.id) {
        return Err(forgotten::refused(&desk.centre, &record).into());
    }
    desk.centre
        .put_down(Input::ForgetAsked { request: record.id })
        .await?;
    Ok(StatusCode::ACCEPTED)
}

/// Says that somebody pulled and verified the whole dataset.
#[utoipa::path(post, path = "/v1/requests/{id}/delivered", operation_id = "confirm_delivery", tag = "requests", security(("bearer" = ["submit"])),
    params(("id" = String, Path, description = "The request's id, like r7")),
    responses((status = 202), (status = 401, body = api::Problem), (status = 404, body = api::Problem)))]
pub(crate) async fn delivered(
    State(desk): State<Desk>,
    Extension(caller): Extension<Arc<Caller>>,
    Path(id): Path<String>,
) -> Answer<StatusCode> {
    let record = find_held(&desk, &caller, &id, "pull")?;
    desk.centre
        .put_down(Input::Delivered { request: record.id })
        .await?;
    Ok(StatusCode::ACCEPTED)
}
