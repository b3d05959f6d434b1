//! Routes for movers, which join, take work and report results, and for showing them.

use axum::{
    Json, Router,
    extract::{Path, State},
    http::{StatusCode, header},
    response::IntoResponse,
    routing::{delete, get, post},
};
use posthaste_api as api;
use posthaste_core::movers::MoverId;
use posthaste_endpoint::{Error, ErrorKind};
use posthaste_types::RequestId;

use super::{Answer, Desk};

/// Returns all routes of movers.
pub(super) fn routes() -> Router<Desk> {
    Router::new()
        .route("/v1/movers", get(list).post(join))
        .route("/v1/movers/{mover}", delete(leave))
        .route("/v1/movers/{mover}/turns", post(turn))
        .route("/v1/movers/{mover}/datasets/{request}", get(dataset))
        .route("/v1/movers/{mover}/datasets/{request}/files", get(files))
        .route("/v1/movers/{mover}/drain", post(drain).delete(undrain))
}

/// Lists the movers that are there.
#[utoipa::path(get, path = "/v1/movers", operation_id = "list_movers", tag = "movers", security(("bearer" = ["read"])),
    responses((status = 200, body = Vec<api::Mover>), (status = 401, body = api::Problem)))]
pub(crate) async fn list(State(desk): State<Desk>) -> Json<Vec<api::Mover>> {
    Json(desk.centre.movers.all())
}

/// A mover joins. One of the same name that was there before is gone, and what it had is given to others.
#[utoipa::path(post, path = "/v1/movers", operation_id = "join_mover", tag = "movers", security(("bearer" = ["move"])), request_body = api::NewMover,
    responses((status = 200, body = api::JoinedMover), (status = 401, body = api::Problem),
        (status = 409, body = api::Problem, description = "No protocol is spoken by both"),
        (status = 422, body = api::Problem), (status = 503, body = api::Problem)))]
pub(crate) async fn join(
    State(desk): State<Desk>,
    Json(new): Json<api::NewMover>,
) -> Answer<Json<api::JoinedMover>> {
    Ok(Json(desk.centre.movers.join(&new)?))
}

/// A mover ends; what it still had is given to others.
#[utoipa::path(delete, path = "/v1/movers/{mover}", operation_id = "leave_mover", tag = "movers", security(("bearer" = ["move"])),
    params(("mover" = u64, Path, description = "The number it was given when it joined")),
    responses((status = 204), (status = 401, body = api::Problem)))]
pub(crate) async fn leave(State(desk): State<Desk>, Path(mover): Path<u64>) -> StatusCode {
    desk.centre.movers.leave(MoverId::new(mover));
    StatusCode::NO_CONTENT
}

/// A mover says what it has done and what it may take, and is given work; the answer waits for some as long as it may.
#[utoipa::path(post, path = "/v1/movers/{mover}/turns", operation_id = "take_mover_turn", tag = "movers", security(("bearer" = ["move"])),
    params(("mover" = u64, Path, description = "The number it was given when it joined")), request_body = api::MoverTurn,
    responses((status = 200, body = api::MoverOrders), (status = 401, body = api::Problem),
        (status = 404, body = api::Problem, description = "It is not known (any more), and joins anew"),
        (status = 422, body = api::Problem)))]
pub(crate) async fn turn(
    State(desk): State<Desk>,
    Path(mover): Path<u64>,
    Json(turn): Json<api::MoverTurn>,
) -> Answer<Json<api::MoverOrders>> {
    let centre = &desk.centre;
    let moved = |depot: &str, sent, arrived| {
        if let Some(depot) = centre.depots.named(depot) {
            depot.moved(sent, arrived);
        }
    };
    let mover = MoverId::new(mover);
    Ok(Json(centre.movers.turn(mover, &turn, moved).await?))
}

/// Description of the dataset of a request, for a mover that has work of it.
#[utoipa::path(get, path = "/v1/movers/{mover}/datasets/{request}", operation_id = "get_mover_dataset", tag = "movers", security(("bearer" = ["move"])),
    params(("mover" = u64, Path, description = "The number it was given when it joined"),
        ("request" = String, Path, description = "The request's id")),
    responses((status = 200, body = api::SealedDataset), (status = 401, body = api::Problem),
        (status = 403, body = api::Problem, description = "It has no work of it"), (status = 404, body = api::Problem)))]
pub(crate) async fn dataset(
    State(desk): State<Desk>,
    Path((mover, request)): Path<(u64, String)>,
) -> Answer<Json<api::SealedDataset>> {
    let (store, request) = (&desk.centre.store, checked(&desk, mover, &request)?);
    let sealed = desk.centre.opened.get(store, request)?;
    let seal = sealed.seal();
    let root = seal.root.to_str().ok_or_else(|| {
        Error::new(ErrorKind::Invalid, "name", "a source").cause("its path is no UTF-8")
    })?;
    let key = tokio::task::block_in_place(|| store.key(&store.request(request)?))?;
    Ok(Json(api::SealedDataset {
        dataset: seal.dataset.to_string(),
        root: root.to_owned(),
        code: seal.code.to_string(),
        chunk_bytes: seal.chunk_size.get(),
        expires_us: seal.expires.as_micros(),
        owner: seal.actor.name().map(str::to_owned),
        key: key.map(|key| key.to_secret_text().to_string()),
    }))
}

/// The files of that dataset, as the service keeps them.
#[utoipa::path(get, path = "/v1/movers/{mover}/datasets/{request}/files", operation_id = "get_mover_files", tag = "movers", security(("bearer" = ["move"])),
    params(("mover" = u64, Path, description = "The number it was given when it joined"),
        ("request" = String, Path, description = "The request's id")),
    responses((status = 200, content_type = "application/octet-stream"), (status = 401, body = api::Problem),
        (status = 403, body = api::Problem, description = "It has no work of it"), (status = 404, body = api::Problem)))]
pub(crate) async fn files(
    State(desk): State<Desk>,
    Path((mover, request)): Path<(u64, String)>,
) -> Answer<impl IntoResponse> {
    let request = checked(&desk, mover, &request)?;
    let store = &desk.centre.store;
    let list = tokio::task::block_in_place(|| store.list(request))?.to_bytes();
    Ok(([(header::CONTENT_TYPE, "application/octet-stream")], list))
}

/// Gives movers of this name nothing new; what they have they do.
#[utoipa::path(post, path = "/v1/movers/{mover}/drain", operation_id = "drain_mover", tag = "movers", security(("bearer" = ["operate"])),
    params(("mover" = String, Path, description = "What it is called")),
    responses((status = 204), (status = 401, body = api::Problem), (status = 404, body = api::Problem)))]
pub(crate) async fn drain(
    State(desk): State<Desk>,
    Path(mover): Path<String>,
) -> Answer<StatusCode> {
    desk.centre.movers.drain(&mover, true)?;
    Ok(StatusCode::NO_CONTENT)
}

/// Gives them work again.
#[utoipa::path(delete, path = "/v1/movers/{mover}/drain", operation_id = "undrain_mover", tag = "movers", security(("bearer" = ["operate"])),
    params(("mover" = String, Path, description = "What it is called")),
    responses((status = 204), (status = 401, body = api::Problem), (status = 404, body = api::Problem)))]
pub(crate) async fn undrain(
    State(desk): State<Desk>,
    Path(mover): Path<String>,
) -> Answer<StatusCode> {
    desk.centre.movers.drain(&mover, false)?;
    Ok(StatusCode::NO_CONTENT)
}

/// Checks that this mover has work of a request.
fn checked(desk: &Desk, mover: u64, request: &str) -> posthaste_endpoint::Result<RequestId> {
    let request: RequestId = request
        .parse()
        .map_err(|_| Error::new(ErrorKind::NotFound, "show", format!("request {request}")))?;
    let movers = &desk.centre.movers;
    movers.check_works_for(MoverId::new(mover), request)?;
    Ok(request)
}
