//! The queue of the batch system and its forecast.

use axum::{Json, extract::State};
use posthaste_api as api;
use posthaste_endpoint::{Error, ErrorKind};

use super::{Answer, Desk};

/// Shows what waits in the queue, when it is forecast to start, and how good such forecasts were so far.
#[utoipa::path(get, path = "/v1/queue", tag = "jobs", security(("bearer" = ["read"])),
    responses((status = 200, body = api::Queue), (status = 401, body = api::Problem),
        (status = 404, body = api::Problem)))]
pub(crate) async fn show(State(desk): State<Desk>) -> Answer<Json<api::Queue>> {
    let outlook = desk.outlook.as_ref().ok_or_else(|| {
        Error::new(ErrorKind::NotFound, "show", "the queue")
            .cause("the service looks at none")
            .hint("start it with `posthaste serve --queue slurm`")
    })?;
    Ok(Json(outlook.show()))
}
