//! Paths: how each is forecast, and a probe of one.

use axum::{
    Json,
    extract::{Path, State},
    http::StatusCode,
};
use posthaste_api as api;
use posthaste_core::contract::{DepotState, Input};
use posthaste_endpoint::{Error, ErrorKind};

use super::{Answer, Desk};
use crate::render;

/// Lists the paths from the centre: what each is forecast to carry, how that is known, and how far
/// the forecast was off so far.
#[utoipa::path(get, path = "/v1/paths", tag = "paths",
    responses((status = 200, body = Vec<api::Path>), (status = 401, body = api::Problem)))]
pub(crate) async fn list(State(desk): State<Desk>) -> Json<Vec<api::Path>> {
    let now = desk.centre.clock.now();
    let paths = desk.centre.mind().paths(now);
    Json(paths.iter().map(|path| render::path(path, now)).collect())
}

/// Asks for a probe of the path to a depot: it begins once nothing is on its way there and no other
/// probe runs, and `probed` of the path says when it has ended.
#[utoipa::path(post, path = "/v1/paths/{to}/probe", tag = "paths",
    params(("to" = String, Path, description = "The depot's name")),
    responses((status = 202), (status = 401, body = api::Problem),
        (status = 404, body = api::Problem), (status = 502, body = api::Problem)))]
pub(crate) async fn probe(State(desk): State<Desk>, Path(to): Path<String>) -> Answer<StatusCode> {
    let centre = &desk.centre;
    let depot = centre.depots.named(&to).ok_or_else(|| {
        Error::new(ErrorKind::NotFound, "probe", format!("the path to {to}"))
            .hint("`posthaste paths` shows the paths")
    })?;
    let depot = depot.record.id;
    let views = centre.mind().depots();
    let is_up = |state: DepotState| state == DepotState::Up;
    if !views
        .iter()
        .any(|view| view.depot == depot && is_up(view.state))
    {
        return Err(
            Error::new(ErrorKind::Unreachable, "probe", format!("the path to {to}"))
                .cause("the depot does not answer")
                .into(),
        );
    }
    centre.tell(Input::ProbeAsked { depot }).await?;
    Ok(StatusCode::ACCEPTED)
}
