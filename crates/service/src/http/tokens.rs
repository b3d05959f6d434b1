//! Routes for tokens: made, listed, removed.

use axum::{
    Json,
    extract::{Path, State},
    http::StatusCode,
};
use posthaste_api as api;
use posthaste_endpoint::{Error, ErrorKind};
use posthaste_journal::TokenRecord;

use super::{Answer, Desk};
use crate::{render, tokens};

/// Lists the tokens that were given out. What is shown of them nobody knows but who has it.
#[utoipa::path(get, path = "/v1/tokens", operation_id = "list_tokens", tag = "tokens", security(("bearer" = ["operate"])),
    responses((status = 200, body = Vec<api::Token>), (status = 401, body = api::Problem)))]
pub(crate) async fn list(State(desk): State<Desk>) -> Answer<Json<Vec<api::Token>>> {
    let tokens = desk.centre.store.journal(|journal| journal.tokens())?;
    Ok(Json(tokens.iter().map(shown).collect()))
}

/// Makes a token. This answer alone has it: of what is kept nobody can make it.
#[utoipa::path(post, path = "/v1/tokens", operation_id = "add_token", tag = "tokens", security(("bearer" = ["operate"])), request_body = api::NewToken,
    responses((status = 201, body = api::MadeToken), (status = 401, body = api::Problem),
        (status = 409, body = api::Problem), (status = 422, body = api::Problem)))]
pub(crate) async fn add(
    State(desk): State<Desk>,
    Json(new): Json<api::NewToken>,
) -> Answer<(StatusCode, Json<api::MadeToken>)> {
    let centre = &desk.centre;
    let (record, token) = tokens::make(&new, centre.clock.now())?;
    if new.scope != api::Scope::Operate {
        let actors = &centre.store.actors;
        actors.refuse_roots_rights(format!("token {}", record.name), &record.below)?;
    }
    if !centre
        .store
        .journal(|journal| journal.keep_token(&record))?
    {
        return Err(tokens::not_kept(&record.name).into());
    }
    desk.tokens.add(&record);
    let known = shown(&record);
    Ok((StatusCode::CREATED, Json(api::MadeToken { token, known })))
}

/// Removes a token: from now on it is good for nothing.
#[utoipa::path(delete, path = "/v1/tokens/{name}", operation_id = "remove_token", tag = "tokens", security(("bearer" = ["operate"])),
    params(("name" = String, Path, description = "The token's name")),
    responses((status = 204), (status = 401, body = api::Problem),
        (status = 404, body = api::Problem)))]
pub(crate) async fn remove(
    State(desk): State<Desk>,
    Path(name): Path<String>,
) -> Answer<StatusCode> {
    let removed = desk
        .centre
        .store
        .journal(|journal| journal.remove_token(&name))?;
    if !removed {
        let error = Error::new(ErrorKind::NotFound, "remove", format!("token {name}"));
        return Err(error.hint("`posthaste token list` shows them").into());
    }
    desk.tokens.remove(&name);
    Ok(StatusCode::NO_CONTENT)
}

fn shown(record: &TokenRecord) -> api::Token {
    let below = record.below.iter();
    api::Token {
        name: record.name.clone(),
        scope: api::Scope::read(&record.scope).unwrap_or(api::Scope::Read),
        owner: record.owner.clone(),
        project: record.project.clone(),
        below: below.map(|path| path.display().to_string()).collect(),
        profiles: record.profiles.clone(),
        created: render::moment(record.created),
        expires: record.expires.map(render::moment),
    }
}
