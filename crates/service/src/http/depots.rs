//! Routes for depots: listed, added, removed.

use std::sync::Arc;

use axum::{
    Extension, Json,
    extract::{Path, Query, State},
    http::StatusCode,
};
use posthaste_api as api;
use posthaste_core::contract::{Drain, Input};
use posthaste_endpoint::{Error, ErrorKind, Result};
use serde::Deserialize;

use super::{Answer, Desk};
use crate::{
    circuits,
    depots::{self, Depot},
    driver::Centre,
    enlist::{check_terms, enlist},
    invites, needed, render,
    tokens::Caller,
};

/// Lists the depots in the books: everybody's, and one's own. Who operates sees all.
#[utoipa::path(get, path = "/v1/depots", operation_id = "list_depots", tag = "depots", security(("bearer" = ["read"])),
    responses((status = 200, body = Vec<api::Depot>), (status = 401, body = api::Problem)))]
pub(crate) async fn list(
    State(desk): State<Desk>,
    Extension(caller): Extension<Arc<Caller>>,
) -> Json<Vec<api::Depot>> {
    let centre = &desk.centre;
    Json(
        centre
            .depots
            .seen_by(caller.viewer())
            .iter()
            .map(|depot| render::depot(centre, depot))
            .collect(),
    )
}

/// Adds a depot, or changes the facts of the one with that name. The relay is asked how it is
/// doing first, so that a wrong address, key or secret is said at once. What a token to submit adds belongs to the token's
/// owner, is called `NAME@OWNER`, and only that owner's requests use it.
#[utoipa::path(post, path = "/v1/depots", operation_id = "add_depot", tag = "depots", security(("bearer" = ["submit"])), request_body = api::NewDepot,
    responses((status = 200, body = api::Depot), (status = 401, body = api::Problem),
        (status = 409, body = api::Problem, description = "It is a relay that has another name here, or shows another key than the one of this name, without which a released dataset would not be safe"),
        (status = 403, body = api::Problem, description = "The owner has as many depots as the quota allows, or the address is one that nobody may name"),
        (status = 422, body = api::Problem), (status = 502, body = api::Problem)))]
pub(crate) async fn add(
    State(desk): State<Desk>,
    Extension(caller): Extension<Arc<Caller>>,
    Json(new): Json<api::NewDepot>,
) -> Answer<Json<api::Depot>> {
    let centre = &desk.centre;
    let depot = enlist(centre, &desk.watches, new, caller.viewer()).await?;
    Ok(Json(render::depot(centre, &depot)))
}

/// How to take a depot out of the books.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct Removal {
    /// Take it out even if datasets whose source is gone need what it holds.
    #[serde(default)]
    force: bool,
}

/// Takes a depot out of the books. What it holds stays there until it expires. Refused while datasets whose
/// source is gone need that. Who does not operate removes their own.
#[utoipa::path(delete, path = "/v1/depots/{name}", operation_id = "remove_depot", tag = "depots", security(("bearer" = ["submit"])),
    params(("name" = String, Path, description = "The depot's name"), Removal),
    responses((status = 204), (status = 401, body = api::Problem), (status = 403, body = api::Problem),
        (status = 404, body = api::Problem), (status = 409, body = api::Problem)))]
pub(crate) async fn remove(
    State(desk): State<Desk>,
    Extension(caller): Extension<Arc<Caller>>,
    Path(name): Path<String>,
    Query(how): Query<Removal>,
) -> Answer<StatusCode> {
    let centre = &desk.centre;
    let depot = to_change(centre, &caller, "remove depot", &name)?;
    if !how.force {
        let held = needed::held(&centre.mind(), depot.record.id);
        let copy = || centre.copy_of_mind();
        needed::refuse_removal(&depot.record, &held, copy, centre.clock.now())?;
    }
    centre
        .store
        .journal(|journal| journal.remove_depot(depot.record.id))?;
    centre.depots.remove(depot.record.id);
    centre
        .put_down(Input::DepotRemoved {
            depot: depot.record.id,
        })
        .await?;
    circuits::offer(centre).await?;
    let _ = std::fs::remove_file(depots::secret_path(centre.store.directory(), &name));
    if depot.record.owner.is_none() {
        invites::withdraw(centre.store.directory(), &name)?;
    }
    Ok(StatusCode::NO_CONTENT)
}

/// Returns the depot of that name for a caller who may change it.
///
/// # Errors
/// [`ErrorKind::NotFound`] for one that is not there for the caller,
/// [`ErrorKind::PermissionDenied`] for everybody's if the caller does not operate.
fn to_change(
    centre: &Centre,
    caller: &Caller,
    operation: &'static str,
    name: &str,
) -> Result<Arc<Depot>> {
    let viewer = caller.viewer();
    let depot = centre.depots.named_for(viewer, name);
    let depot = depot.ok_or_else(|| centre.depots.unknown(viewer, operation, name))?;
    let owner = depot.record.owner.as_deref().unwrap_or_default();
    caller.stands_for(owner, || format!("depot {name}"))?;
    Ok(depot)
}

/// Drains a depot: nothing new goes there, what is under way ends, and what it holds counts and is given
/// out. Asking again changes only whether what it holds goes on to others.
#[utoipa::path(post, path = "/v1/depots/{name}/drain", operation_id = "drain_depot", tag = "depots", security(("bearer" = ["submit"])),
    params(("name" = String, Path, description = "The depot's name")),
    request_body = api::NewDrain,
    responses((status = 200, body = api::Depot), (status = 401, body = api::Problem), (status = 403, body = api::Problem),
        (status = 404, body = api::Problem)))]
pub(crate) async fn drain(
    State(desk): State<Desk>,
    Extension(caller): Extension<Arc<Caller>>,
    Path(name): Path<String>,
    Json(new): Json<api::NewDrain>,
) -> Answer<Json<api::Depot>> {
    let drain = if new.moves { Drain::Move } else { Drain::Keep };
    set_drain(&desk, &caller, &name, drain).await
}

/// Uses a depot again that was drained. One that says itself that it ends stays drained.
#[utoipa::path(delete, path = "/v1/depots/{name}/drain", operation_id = "undrain_depot", tag = "depots", security(("bearer" = ["submit"])),
    params(("name" = String, Path, description = "The depot's name")),
    responses((status = 200, body = api::Depot), (status = 401, body = api::Problem), (status = 403, body = api::Problem),
        (status = 404, body = api::Problem)))]
pub(crate) async fn undrain(
    State(desk): State<Desk>,
    Extension(caller): Extension<Arc<Caller>>,
    Path(name): Path<String>,
) -> Answer<Json<api::Depot>> {
    set_drain(&desk, &caller, &name, Drain::Off).await
}

async fn set_drain(
    desk: &Desk,
    caller: &Caller,
    name: &str,
    drain: Drain,
) -> Answer<Json<api::Depot>> {
    let centre = &desk.centre;
    let depot = to_change(centre, caller, "drain depot", name)?;
    let input = Input::DepotDrained {
        depot: depot.record.id,
        drain,
        is_own: false,
    };
    centre.put_down(input).await?;
    Ok(Json(render::depot(centre, &depot)))
}

/// Invites a relay: whoever starts one with the text that is answered makes it known by this name, on these terms. One
/// that was there for the name is good no longer.
#[utoipa::path(post, path = "/v1/depots/{name}/invite", operation_id = "invite_depot", tag = "depots", security(("bearer" = ["operate"])),
    params(("name" = String, Path, description = "What the depot is to be called")),
    request_body = api::NewInvite,
    responses((status = 200, body = api::Invite), (status = 401, body = api::Problem),
        (status = 422, body = api::Problem)))]
pub(crate) async fn invite(
    State(desk): State<Desk>,
    Path(name): Path<String>,
    Json(new): Json<api::NewInvite>,
) -> Answer<Json<api::Invite>> {
    let centre = &desk.centre;
    let lending = centre.lending.get().ok_or_else(|| {
        Error::new(ErrorKind::Invalid, "invite", format!("depot {name}"))
            .cause("relays make themselves known where sources are handed out, and that is nowhere")
            .hint("start the service with --source-listen ADDRESS, and --source-url where it is reached otherwise")
    })?;
    check_terms(&name, &new.terms)?;
    let invite = invites::issue(
        centre.store.directory(),
        &name,
        &new,
        lending.address(),
        centre.clock.now(),
    )?;
    Ok(Json(invite))
}

/// Withdraws an invitation. A relay that used it stays in the books.
#[utoipa::path(delete, path = "/v1/depots/{name}/invite", operation_id = "withdraw_invitation", tag = "depots", security(("bearer" = ["operate"])),
    params(("name" = String, Path, description = "What the depot was to be called")),
    responses((status = 204), (status = 401, body = api::Problem),
        (status = 404, body = api::Problem), (status = 422, body = api::Problem)))]
pub(crate) async fn withdraw(
    State(desk): State<Desk>,
    Path(name): Path<String>,
) -> Answer<StatusCode> {
    if invites::withdraw(desk.centre.store.directory(), &name)? {
        return Ok(StatusCode::NO_CONTENT);
    }
    Err(Error::new(
        ErrorKind::NotFound,
        "withdraw",
        format!("the invitation of {name}"),
    )
    .into())
}
