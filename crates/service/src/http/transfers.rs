//! Route for the transfers of a request and their progress.

use axum::{
    Json,
    extract::{Path, State},
};
use posthaste_api as api;

use super::{Answer, Desk, requests::find};
use crate::render;

/// Shows the ways that data of a request goes: to each depot and destination, or from each source. None of one that came to
/// nothing, or whose end is so long ago that only that is known of it.
#[utoipa::path(get, path = "/v1/requests/{id}/transfers", operation_id = "list_transfers", tag = "requests", security(("bearer" = ["read"])),
    params(("id" = String, Path, description = "The request's id, like r7")),
    responses((status = 200, body = Vec<api::Transfer>), (status = 401, body = api::Problem),
        (status = 404, body = api::Problem)))]
pub(crate) async fn show(
    State(desk): State<Desk>,
    Path(id): Path<String>,
) -> Answer<Json<Vec<api::Transfer>>> {
    let record = find(&desk, &id)?;
    let views = desk.centre.mind().transfers(record.id).unwrap_or_default();
    let shown = views
        .iter()
        .map(|view| render::transfer(&desk.centre, &record, view));
    Ok(Json(shown.collect()))
}
