//! Routes for jobs of batch systems: registered, staged in, ended, forgotten.

use axum::{
    Json,
    extract::{Path, Query, State},
    http::StatusCode,
};
use posthaste_api as api;
use serde::Deserialize;

use super::{Answer, Desk};
use crate::jobs;

/// Fields of a listing.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct Which {
    /// Only those of this batch system: `slurm`, `pbs`.
    scheduler: Option<String>,
    /// Only those that are `registered`, `staging-in`, `ended` or `gone`; without it all that are not gone.
    phase: Option<String>,
    /// So many at most: 100 without it, 1000 at most.
    limit: Option<u32>,
}

/// Lists jobs, newest first, with what is moved for them.
#[utoipa::path(get, path = "/v1/jobs", operation_id = "list_jobs", tag = "jobs", security(("bearer" = ["read"])), params(Which),
    responses((status = 200, body = Vec<api::Job>), (status = 401, body = api::Problem),
        (status = 422, body = api::Problem)))]
pub(crate) async fn list(
    State(desk): State<Desk>,
    Query(which): Query<Which>,
) -> Answer<Json<Vec<api::Job>>> {
    let (scheduler, phase) = (which.scheduler.as_deref(), which.phase.as_deref());
    Ok(Json(jobs::list(&desk, scheduler, phase, which.limit)?))
}

/// Whose jobs are named.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct Whose {
    /// Only those of this batch system: `slurm`, `pbs`.
    scheduler: Option<String>,
}

/// Names all jobs that are not gone, newest first, without what is moved for them.
#[utoipa::path(get, path = "/v1/jobs/names", operation_id = "list_job_names", tag = "jobs", security(("bearer" = ["read"])), params(Whose),
    responses((status = 200, body = Vec<api::JobName>), (status = 401, body = api::Problem)))]
pub(crate) async fn names(
    State(desk): State<Desk>,
    Query(whose): Query<Whose>,
) -> Answer<Json<Vec<api::JobName>>> {
    Ok(Json(jobs::names(&desk, whose.scheduler.as_deref())?))
}

/// Tells of a job. Telling of it again changes nothing, unless it was forgotten meanwhile: then it begins anew,
/// with what is there already.
#[utoipa::path(put, path = "/v1/jobs/{scheduler}/{job}", operation_id = "register_job", tag = "jobs", security(("bearer" = ["operate"])),
    params(("scheduler" = String, Path, description = "The batch system: slurm"),
        ("job" = String, Path, description = "Its id there")),
    request_body = api::NewJob,
    responses((status = 200, body = api::Job), (status = 401, body = api::Problem),
        (status = 409, body = api::Problem), (status = 422, body = api::Problem),
        (status = 503, body = api::Problem)))]
pub(crate) async fn register(
    State(desk): State<Desk>,
    Path((scheduler, job)): Path<(String, String)>,
    Json(new): Json<api::NewJob>,
) -> Answer<Json<api::Job>> {
    Ok(Json(jobs::register(&desk, &scheduler, &job, new)?))
}

/// Says what would be refused of a job that is submitted held, before there is one; takes nothing down.
#[utoipa::path(post, path = "/v1/jobs/check", operation_id = "check_job", tag = "jobs", security(("bearer" = ["operate"])), request_body = api::NewJob,
    responses((status = 204), (status = 401, body = api::Problem), (status = 403, body = api::Problem),
        (status = 404, body = api::Problem), (status = 422, body = api::Problem),
        (status = 503, body = api::Problem)))]
pub(crate) async fn check(
    State(desk): State<Desk>,
    Json(new): Json<api::NewJob>,
) -> Answer<StatusCode> {
    jobs::check(&desk, &new)?;
    Ok(StatusCode::NO_CONTENT)
}

/// Shows a job and what is moved for it.
#[utoipa::path(get, path = "/v1/jobs/{scheduler}/{job}", operation_id = "get_job", tag = "jobs", security(("bearer" = ["read"])),
    params(("scheduler" = String, Path, description = "The batch system: slurm"),
        ("job" = String, Path, description = "Its id there")),
    responses((status = 200, body = api::Job), (status = 401, body = api::Problem),
        (status = 404, body = api::Problem)))]
pub(crate) async fn show(
    State(desk): State<Desk>,
    Path((scheduler, job)): Path<(String, String)>,
) -> Answer<Json<api::Job>> {
    Ok(Json(jobs::show(
        &desk,
        &jobs::find(&desk, &scheduler, &job)?,
    )?))
}

/// Asks for what the job reads, where that was not asked for yet, and says how far it is.
#[utoipa::path(post, path = "/v1/jobs/{scheduler}/{job}/stage-in", operation_id = "stage_in_job", tag = "jobs", security(("bearer" = ["operate"])),
    params(("scheduler" = String, Path, description = "The batch system: slurm"),
        ("job" = String, Path, description = "Its id there")),
    responses((status = 200, body = api::Job), (status = 401, body = api::Problem),
        (status = 403, body = api::Problem), (status = 404, body = api::Problem),
        (status = 409, body = api::Problem), (status = 422, body = api::Problem)))]
pub(crate) async fn stage_in(
    State(desk): State<Desk>,
    Path((scheduler, job)): Path<(String, String)>,
) -> Answer<Json<api::Job>> {
    let record = jobs::find(&desk, &scheduler, &job)?;
    Ok(Json(jobs::stage_in(&desk, record)?))
}

/// Says that the job ended: what it leaves is asked for, where that was not done yet. Says how far that is.
#[utoipa::path(post, path = "/v1/jobs/{scheduler}/{job}/ended", operation_id = "end_job", tag = "jobs", security(("bearer" = ["operate"])),
    params(("scheduler" = String, Path, description = "The batch system: slurm"),
        ("job" = String, Path, description = "Its id there")),
    request_body = api::JobEnd,
    responses((status = 200, body = api::Job), (status = 401, body = api::Problem),
        (status = 403, body = api::Problem), (status = 404, body = api::Problem),
        (status = 409, body = api::Problem), (status = 422, body = api::Problem)))]
pub(crate) async fn ended(
    State(desk): State<Desk>,
    Path((scheduler, job)): Path<(String, String)>,
    Json(end): Json<api::JobEnd>,
) -> Answer<Json<api::Job>> {
    let record = jobs::find(&desk, &scheduler, &job)?;
    Ok(Json(jobs::ended(&desk, record, end)?))
}

/// Has the batch system asked soon how a job stands that was submitted held, rather than at the next look: for its prologs and
/// epilogs.
#[utoipa::path(post, path = "/v1/jobs/{scheduler}/{job}/look", operation_id = "poll_job", tag = "jobs", security(("bearer" = ["operate"])),
    params(("scheduler" = String, Path, description = "The batch system: slurm"),
        ("job" = String, Path, description = "Its id there")),
    responses((status = 204), (status = 401, body = api::Problem), (status = 404, body = api::Problem)))]
pub(crate) async fn look(
    State(desk): State<Desk>,
    Path((scheduler, job)): Path<(String, String)>,
) -> Answer<StatusCode> {
    let record = jobs::find(&desk, &scheduler, &job)?;
    desk.looks.ask(&record.job);
    Ok(StatusCode::NO_CONTENT)
}

/// Forgets a job: what is still on its way to it is given up half a minute later, unless the job is told of again. What
/// leaves scratch goes on.
#[utoipa::path(delete, path = "/v1/jobs/{scheduler}/{job}", operation_id = "forget_job", tag = "jobs", security(("bearer" = ["operate"])),
    params(("scheduler" = String, Path, description = "The batch system: slurm"),
        ("job" = String, Path, description = "Its id there")),
    responses((status = 204), (status = 401, body = api::Problem), (status = 404, body = api::Problem)))]
pub(crate) async fn remove(
    State(desk): State<Desk>,
    Path((scheduler, job)): Path<(String, String)>,
) -> Answer<StatusCode> {
    let record = jobs::find(&desk, &scheduler, &job)?;
    jobs::remove(&desk, record)?;
    Ok(StatusCode::NO_CONTENT)
}

/// Says what room there is for jobs.
#[utoipa::path(get, path = "/v1/scratch", operation_id = "list_scratch", tag = "jobs", security(("bearer" = ["read"])),
    responses((status = 200, body = Vec<api::Scratch>), (status = 401, body = api::Problem)))]
pub(crate) async fn scratch(State(desk): State<Desk>) -> Answer<Json<Vec<api::Scratch>>> {
    Ok(Json(jobs::room::scratch(&desk)?))
}
