//! Route for the batch system's queue and its forecast.

use std::sync::Arc;

use axum::{Extension, Json, extract::State};
use posthaste_api as api;
use posthaste_endpoint::{Error, ErrorKind};

use super::{Answer, Desk};
use crate::tokens::Caller;

/// Shows what waits in the queue, when it is forecast to start, and how good such forecasts were so far. Who operates sees the jobs of
/// everybody; others see those of the user that their token is for, by the batch system's name of them.
#[utoipa::path(get, path = "/v1/queue", operation_id = "get_queue", tag = "jobs", security(("bearer" = ["read"])),
    responses((status = 200, body = api::Queue), (status = 401, body = api::Problem),
        (status = 404, body = api::Problem)))]
pub(crate) async fn show(
    State(desk): State<Desk>,
    Extension(caller): Extension<Arc<Caller>>,
) -> Answer<Json<api::Queue>> {
    let outlook = desk.outlook.as_ref().ok_or_else(|| {
        Error::new(ErrorKind::NotFound, "show", "the queue")
            .cause("the service looks at none")
            .hint("start it with `posthaste serve --queue slurm`")
    })?;
    Ok(Json(outlook.show(|user| caller.sees_jobs_of(user))))
}
