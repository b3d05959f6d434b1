//! Routes for users' credentials: kept, listed without their secrets, tried, removed.

use std::sync::Arc;

use axum::{
    Extension, Json,
    extract::{Path, Query, State},
    http::StatusCode,
};
use posthaste_api as api;
use posthaste_endpoint::{Error, ErrorKind, Result};
use serde::Deserialize;

use super::{Answer, Desk};
use crate::{credentials::address_in, inbound::look, tokens::Caller};

/// Whose they are.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct Whose {
    /// Whose, where an operator asks: everybody's where nobody is named in a listing, and nobody's in particular elsewhere.
    owner: Option<String>,
}

/// Returns the owner that is meant: the caller, or the one that an operator names.
///
/// # Errors
/// [`ErrorKind::PermissionDenied`] if a caller that is no operator names another owner.
fn owner_of(caller: &Caller, named: Option<&str>) -> Result<String> {
    let own = caller.owner().unwrap_or_default();
    let owner = named.unwrap_or(own);
    if owner == own || caller.operates() {
        return Ok(owner.to_owned());
    }
    Err(
        Error::new(ErrorKind::PermissionDenied, "use", "another's credentials")
            .with("asked by", caller)
            .hint("leave the owner out: it is you"),
    )
}

/// Lists the credentials of whoever asks; for operators all. What they are nobody is told.
#[utoipa::path(get, path = "/v1/credentials", operation_id = "list_credentials", tag = "credentials", security(("bearer" = ["submit"])), params(Whose),
    responses((status = 200, body = Vec<api::Credential>), (status = 401, body = api::Problem),
        (status = 403, body = api::Problem)))]
pub(crate) async fn list(
    State(desk): State<Desk>,
    Extension(caller): Extension<Arc<Caller>>,
    Query(whose): Query<Whose>,
) -> Answer<Json<Vec<api::Credential>>> {
    let shows_all = caller.operates() && whose.owner.is_none();
    let owner = owner_of(&caller, whose.owner.as_deref())?;
    let owner = (!shows_all).then_some(&*owner);
    let credentials = &desk.centre.store.actors.credentials;
    Ok(Json(credentials.list(owner)))
}

/// Keeps a credential of whoever asks: from now on `NAME:path` in what they ask for is opened with it. It is kept encrypted.
#[utoipa::path(post, path = "/v1/credentials", operation_id = "add_credential", tag = "credentials", security(("bearer" = ["submit"])),
    request_body = api::NewCredential,
    responses((status = 201, body = api::Credential), (status = 401, body = api::Problem),
        (status = 403, body = api::Problem), (status = 409, body = api::Problem),
        (status = 422, body = api::Problem)))]
pub(crate) async fn add(
    State(desk): State<Desk>,
    Extension(caller): Extension<Arc<Caller>>,
    Json(new): Json<api::NewCredential>,
) -> Answer<(StatusCode, Json<api::Credential>)> {
    let owner = owner_of(&caller, new.owner.as_deref())?;
    let (store, now) = (&desk.centre.store, desk.centre.clock.now());
    let kept = tokio::task::block_in_place(|| {
        let credentials = &store.actors.credentials;
        credentials.add(store, &owner, new, now)
    })?;
    Ok((StatusCode::CREATED, Json(kept)))
}

/// Removes a credential. What is open with it goes on until it is closed.
#[utoipa::path(delete, path = "/v1/credentials/{name}", operation_id = "remove_credential", tag = "credentials", security(("bearer" = ["submit"])),
    params(("name" = String, Path, description = "The credential's name"), Whose),
    responses((status = 204), (status = 401, body = api::Problem), (status = 403, body = api::Problem),
        (status = 404, body = api::Problem)))]
pub(crate) async fn remove(
    State(desk): State<Desk>,
    Extension(caller): Extension<Arc<Caller>>,
    Path(name): Path<String>,
    Query(whose): Query<Whose>,
) -> Answer<StatusCode> {
    let owner = owner_of(&caller, whose.owner.as_deref())?;
    let store = &desk.centre.store;
    tokio::task::block_in_place(|| store.actors.credentials.remove(store, &owner, &name))?;
    Ok(StatusCode::NO_CONTENT)
}

/// Opens the place of a credential and looks whether it can be asked there.
#[utoipa::path(post, path = "/v1/credentials/{name}/check", operation_id = "check_credential", tag = "credentials", security(("bearer" = ["submit"])),
    params(("name" = String, Path, description = "The credential's name"), Whose),
    responses((status = 204, description = "It opens its place"), (status = 401, body = api::Problem),
        (status = 403, body = api::Problem), (status = 404, body = api::Problem),
        (status = 502, body = api::Problem)))]
pub(crate) async fn check(
    State(desk): State<Desk>,
    Extension(caller): Extension<Arc<Caller>>,
    Path(name): Path<String>,
    Query(whose): Query<Whose>,
) -> Answer<StatusCode> {
    let owner = owner_of(&caller, whose.owner.as_deref())?;
    let actors = &desk.centre.store.actors;
    actors.credentials.find(&owner, &name)?;
    let behalf = actors.elsewhere(&owner);
    let endpoint = look::open_at(&address_in(&name), None, &behalf).await?;
    endpoint.list(b"", false).await?.next_page().await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Makes a new key, and encrypts all credentials with it.
#[utoipa::path(post, path = "/v1/credentials-key", operation_id = "renew_credentials_key", tag = "credentials", security(("bearer" = ["operate"])),
    responses((status = 200, body = api::Rekeyed), (status = 401, body = api::Problem)))]
pub(crate) async fn rekey(State(desk): State<Desk>) -> Answer<Json<api::Rekeyed>> {
    let store = &desk.centre.store;
    let credentials = tokio::task::block_in_place(|| store.actors.credentials.rekey(store))?;
    Ok(Json(api::Rekeyed { credentials }))
}
