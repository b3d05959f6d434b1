//! Observes calls: a span in the caller's trace, and a log line if wanted.

use axum::{
    extract::{MatchedPath, Request},
    middleware::Next,
    response::Response,
};
use posthaste_trace::{HEADER, TARGET, fail, follow};
use tracing::{Instrument, field::Empty, info_span};

/// Route that movers call repeatedly, waiting there for work: traces have their work instead.
const TURNS: &str = "/v1/movers/{mover}/turns";

/// Observes the call.
pub(super) async fn observe(matched: MatchedPath, request: Request, next: Next) -> Response {
    let route = matched.as_str();
    if route == TURNS {
        return next.run(request).await;
    }
    let method = request.method().clone();
    let span = info_span!(
        target: TARGET,
        "call",
        otel.name = format!("{method} {route}"),
        otel.kind = "server",
        http.request.method = %method,
        http.route = route,
        http.response.status_code = Empty,
        error = Empty,
        otel.status_code = Empty,
    );
    let parent = request.headers().get(HEADER);
    follow(&span, parent.and_then(|parent| parent.to_str().ok()));
    let answer = next.run(request).instrument(span.clone()).await;
    let status = answer.status();
    span.record("http.response.status_code", status.as_u16());
    if status.is_server_error() {
        fail(&span, &status);
    }
    tracing::debug!(%method, route, status = status.as_u16(), "answered");
    answer
}
