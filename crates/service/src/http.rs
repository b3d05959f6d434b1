//! The REST API: authentication, routes, and one shape for every refusal.

mod access;
mod bulk;
mod credentials;
mod datasets;
mod depots;
mod directory;
mod document;
mod endpoints;
mod events;
mod files;
mod forgotten;
mod history;
mod identity;
mod jobs;
mod lines;
mod listing;
mod metrics;
mod movers;
mod named;
mod observed;
mod overview;
mod paths;
mod pauses;
mod plan;
mod queue;
mod refusals;
mod requests;
mod reservations;
mod stage_ins;
mod tokens;
mod transfers;
mod tree;

use std::sync::Arc;

use axum::{
    Json, Router,
    extract::{DefaultBodyLimit, Request},
    http::{StatusCode, header},
    middleware,
    response::{IntoResponse, Response},
    routing::{get, post},
};
use posthaste_api as api;
use posthaste_endpoint::{Error, ErrorKind};
use tokio::sync::mpsc;

use crate::{driver::Centre, fts, oidc::Logins, reload::Current, submit::Place, tokens::Tokens};
pub use document::openapi;

/// Largest request body: a request with a thousand depot names is a tenth of this.
const BODY_BYTES_MAX: usize = 1 << 20;

/// State shared by all routes.
#[derive(Clone)]
pub(crate) struct Desk {
    pub(crate) centre: Arc<Centre>,
    pub(crate) tokens: Arc<Tokens>,
    /// Login provider.
    pub(crate) logins: Arc<Logins>,
    /// Queue of depots to watch.
    pub(crate) watches: mpsc::Sender<Arc<crate::depots::Depot>>,
    /// Directories below which jobs may have data moved, with links resolved.
    pub(crate) scratch: Arc<Current<Vec<std::path::PathBuf>>>,
    /// Jobs that are gone, whose stage-ins may still be under way.
    pub(crate) forgotten: mpsc::Sender<posthaste_journal::JobRecord>,
    /// Held during requests for inputs of jobs.
    pub(crate) asking: Arc<std::sync::Mutex<()>>,
    /// Jobs to look at ahead of schedule.
    pub(crate) looks: Arc<crate::jobs::held::Looks>,
    /// Jobs of FTS's interface.
    pub(crate) fts: Arc<fts::Fts>,
    /// Watched queue, if any.
    pub(crate) outlook: Option<Arc<crate::queue::Outlook>>,
    /// REST client that replaces Slurm's programs, if configured.
    pub(crate) slurmrestd: Option<Arc<crate::slurmrestd::Slurmrestd>>,
}

impl Desk {
    /// Reserves a slot among an owner's requests that wait for their scan.
    ///
    /// # Errors
    /// [`ErrorKind::Busy`] if all are taken; `subject` is what was submitted.
    pub(crate) fn reserve_scan(&self, owner: Option<&String>, subject: &str) -> Answer<Place> {
        let owner = owner.map_or("", String::as_str);
        Ok(self.centre.scans.reserve(owner, subject)?)
    }

    /// Requests a look at the queue, if one is watched, after a change of a job.
    pub(crate) fn look_at_queue(&self) {
        if let Some(outlook) = &self.outlook {
            outlook.tell();
        }
    }
}

/// Error to be returned to a client.
pub(crate) struct Refusal(Error);

impl Refusal {
    /// Returns the problem to answer. Temporary obstacles have a page of their own.
    fn problem(&self) -> api::Problem {
        let is_early = self.0.kind() == ErrorKind::Conflict && self.0.is_temporary();
        let code = if is_early { "busy" } else { self.0.code() };
        api::Problem::new(self.status().as_u16(), code, self.0.to_string())
    }

    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "ErrorKind may grow; the rest is ours"
    )]
    fn status(&self) -> StatusCode {
        match self.0.kind() {
            ErrorKind::NotFound => StatusCode::NOT_FOUND,
            ErrorKind::PermissionDenied => StatusCode::FORBIDDEN,
            ErrorKind::Unauthenticated => StatusCode::UNAUTHORIZED,
            ErrorKind::Invalid => StatusCode::UNPROCESSABLE_ENTITY,
            ErrorKind::Conflict => StatusCode::CONFLICT,
            ErrorKind::Full => StatusCode::INSUFFICIENT_STORAGE,
            ErrorKind::Unreachable | ErrorKind::TimedOut => StatusCode::BAD_GATEWAY,
            ErrorKind::Busy | ErrorKind::Cancelled => StatusCode::SERVICE_UNAVAILABLE,
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    /// Returns whether a retry may succeed.
    pub(crate) fn may_pass(&self) -> bool {
        self.0.is_temporary()
    }
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(&self.0, f)
    }
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        Self(error)
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        answer_problem(&self.problem())
    }
}

/// Answers a problem in the form of RFC 9457.
fn answer_problem(problem: &api::Problem) -> Response {
    let status = StatusCode::from_u16(problem.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let kind = [(header::CONTENT_TYPE, api::Problem::CONTENT_TYPE)];
    let body = Json(problem).into_response().into_body();
    // RFC 9110 has each 401 say how to authenticate.
    match status {
        StatusCode::UNAUTHORIZED => {
            let scheme = [(header::WWW_AUTHENTICATE, "Bearer")];
            (status, kind, scheme, body).into_response()
        }
        _ => (status, kind, body).into_response(),
    }
}

/// Answer of a route.
pub(crate) type Answer<T> = Result<T, Refusal>;

/// Returns all routes.
pub(crate) fn router(desk: Desk) -> Router {
    let guarded = Router::new()
        .route("/v1/depots", get(depots::list).post(depots::add))
        .route("/v1/depots/{name}", axum::routing::delete(depots::remove))
        .route(
            "/v1/depots/{name}/drain",
            post(depots::drain).delete(depots::undrain),
        )
        .route(
            "/v1/depots/{name}/invite",
            post(depots::invite).delete(depots::withdraw),
        )
        .route("/v1/jobs", get(jobs::list))
        .route("/v1/jobs/names", get(jobs::names))
        .route("/v1/jobs/check", post(jobs::check))
        .route(
            "/v1/jobs/{scheduler}/{job}",
            get(jobs::show).put(jobs::register).delete(jobs::remove),
        )
        .route("/v1/jobs/{scheduler}/{job}/stage-in", post(jobs::stage_in))
        .route("/v1/jobs/{scheduler}/{job}/ended", post(jobs::ended))
        .route("/v1/jobs/{scheduler}/{job}/look", post(jobs::look))
        .route("/v1/scratch", get(jobs::scratch))
        .route("/v1/listing", get(directory::show))
        .route("/v1/listing/tree", get(tree::show))
        .route("/v1/endpoints", get(endpoints::show))
        .route("/v1/history", get(history::show))
        .route("/v1/metrics", get(metrics::show))
        .route("/v1/overview", get(overview::show))
        .route("/v1/paths", get(paths::list))
        .route("/v1/ranking", get(paths::ranking))
        .route("/v1/paths/probe", post(paths::probe_address))
        .route("/v1/paths/{to}/probe", post(paths::probe))
        .route("/v1/queue", get(queue::show))
        .merge(request_routes())
        .route("/v1/reservations", get(reservations::list))
        .route("/v1/stage-ins", post(stage_ins::submit))
        .route("/v1/tokens", get(tokens::list).post(tokens::add))
        .route("/v1/tokens/{name}", axum::routing::delete(tokens::remove))
        .route("/v1/events", get(events::stream))
        .merge(credential_routes())
        .merge(movers::routes())
        .route("/v1/whoami", get(identity::whoami))
        .merge(fts::routes())
        .layer(middleware::from_fn_with_state(
            desk.clone(),
            access::authenticate,
        ))
        .layer(middleware::from_fn(observed::observe));
    Router::new()
        .route("/v1/health", get(health))
        .route("/v1/identity", get(identity::show))
        .route(fts::PREFIX, get(fts::root))
        .route(&format!("{}/", fts::PREFIX), get(fts::root))
        .merge(guarded)
        .fallback(nothing_here)
        .layer(middleware::from_fn(shape_refusal))
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .with_state(desk)
}

fn request_routes() -> Router<Desk> {
    Router::new()
        .route("/v1/datasets", get(datasets::list))
        .route("/v1/datasets/{id}", get(datasets::show))
        .route("/v1/plan", get(plan::show))
        .route("/v1/requests", get(listing::list).post(requests::submit))
        .route("/v1/requests/bulk", post(bulk::submit))
        .route("/v1/requests/named", post(named::submit))
        .route(
            "/v1/requests/{id}",
            get(requests::show)
                .delete(requests::cancel)
                .patch(requests::modify),
        )
        .route("/v1/requests/{id}/pause", post(pauses::pause))
        .route("/v1/requests/{id}/resume", post(pauses::resume))
        .route("/v1/requests/{id}/explain", get(requests::explain))
        .route("/v1/requests/{id}/story", get(requests::story))
        .route("/v1/requests/{id}/files", get(files::show))
        .route("/v1/requests/{id}/transfers", get(transfers::show))
        .route("/v1/requests/{id}/manifest", get(requests::manifest))
        .route("/v1/requests/{id}/ticket", post(requests::ticket))
        .route("/v1/requests/{id}/delivered", post(requests::delivered))
        .route("/v1/requests/{id}/forget", post(requests::forget))
}

fn credential_routes() -> Router<Desk> {
    Router::new()
        .route(
            "/v1/credentials",
            get(credentials::list).post(credentials::add),
        )
        .route(
            "/v1/credentials/{name}",
            axum::routing::delete(credentials::remove),
        )
        .route("/v1/credentials/{name}/check", post(credentials::check))
        .route("/v1/credentials-key", post(credentials::rekey))
}

/// Says that the service is there. Needs no token.
#[utoipa::path(get, path = "/v1/health", operation_id = "get_health", tag = "service", security(()),
    responses((status = 200, body = api::Health)))]
async fn health() -> Json<api::Health> {
    Json(api::Health {
        status: "ok".into(),
        version: env!("CARGO_PKG_VERSION").into(),
    })
}

async fn nothing_here(request: Request) -> Refusal {
    Refusal(
        Error::new(
            ErrorKind::NotFound,
            "answer",
            request.uri().path().to_owned(),
        )
        .hint("GET /v1/health says whether this is posthaste; openapi/ lists the routes"),
    )
}

/// Refuses a request whose head is larger than that.
pub(crate) fn head_too_large(most: usize) -> Response {
    let status = StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE;
    let message = format!(
        "can't read the request: its address and headers are over {}",
        posthaste_types::Bytes::new(most as u64)
    );
    answer_problem(&api::Problem::new(status.as_u16(), "invalid", message))
}

/// Gives every refusal the form of its interface.
async fn shape_refusal(request: Request, next: middleware::Next) -> Response {
    let is_fts = request.uri().path().starts_with(fts::PREFIX);
    let response = explain_rejection(next.run(request).await).await;
    match is_fts {
        true => fts::shape_refusal(response).await,
        false => response,
    }
}

/// Gives the framework's own refusals (bad JSON, wrong method, body too large) our shape.
async fn explain_rejection(response: Response) -> Response {
    let status = response.status();
    let kind = response.headers().get(header::CONTENT_TYPE);
    // FTS's interface answers with JSON of its own.
    let ours = kind.is_some_and(|kind| {
        kind == api::Problem::CONTENT_TYPE || kind.as_bytes().starts_with(b"application/json")
    });
    if ours || !(status.is_client_error() || status.is_server_error()) {
        return response;
    }
    let body = axum::body::to_bytes(response.into_body(), BODY_BYTES_MAX).await;
    let said = body
        .map(|body| String::from_utf8_lossy(&body).into_owned())
        .unwrap_or_default();
    let said = if said.is_empty() {
        status
            .canonical_reason()
            .unwrap_or("refused")
            .to_lowercase()
    } else {
        said
    };
    let message = format!(
        "can't read the request: {} (see openapi/)",
        said.replace(posthaste_types::is_obeyed, " ")
    );
    answer_problem(&api::Problem::new(status.as_u16(), "invalid", message))
}
