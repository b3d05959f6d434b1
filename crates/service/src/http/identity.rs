//! Routes for logging in and for the caller's identity.

use std::sync::Arc;

use axum::{Extension, Json, extract::State};
use posthaste_api as api;
use posthaste_endpoint::{Error, ErrorKind};

use super::{Answer, Desk};
use crate::tokens::Caller;

/// Says how people log in, where they can. Needs no token.
#[utoipa::path(get, path = "/v1/identity", operation_id = "get_identity_provider", tag = "tokens", security(()),
    responses((status = 200, body = api::Identity), (status = 404, body = api::Problem)))]
pub(crate) async fn show(State(desk): State<Desk>) -> Answer<Json<api::Identity>> {
    let told = desk.logins.told();
    let told = told.ok_or_else(|| {
        Error::new(ErrorKind::NotFound, "log in to", "the service")
            .cause("it takes tokens alone")
            .hint("an operator makes tokens with `posthaste token add`")
    })?;
    Ok(Json(told))
}

/// Says who the service thinks that somebody is, and what they may.
#[utoipa::path(get, path = "/v1/whoami", operation_id = "get_whoami", tag = "tokens", security(("bearer" = ["read"])),
    responses((status = 200, body = api::Whoami), (status = 401, body = api::Problem)))]
pub(crate) async fn whoami(
    State(desk): State<Desk>,
    Extension(caller): Extension<Arc<Caller>>,
) -> Answer<Json<api::Whoami>> {
    let owner = caller.owner().unwrap_or_default();
    let quota = || desk.centre.quotas.shown(&desk.centre, owner);
    Ok(Json(api::Whoami {
        quota: tokio::task::block_in_place(quota)?,
        ..caller.shown()
    }))
}
