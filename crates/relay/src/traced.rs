//! Trace of a call from outside: a span of the trace that its caller named, and a line for anybody
//! who asked for such.

use http::{Method, Request, StatusCode, header};
use posthaste_trace::{HEADER, TARGET, fail, follow};
use tracing::{Span, field::Empty, info_span};

/// Call that is being answered.
pub(crate) struct Call {
    method: Method,
    path: String,
    span: Span,
}

impl Call {
    pub(crate) fn begin<B>(relay: &str, request: &Request<B>) -> Self {
        let (method, path) = (request.method().clone(), request.uri().path().to_owned());
        let said = |name| request.headers().get(name)?.to_str().ok();
        let bytes: Option<u64> =
            said(header::CONTENT_LENGTH.as_str()).and_then(|bytes| bytes.parse().ok());
        let span = info_span!(
            target: TARGET,
            "call",
            otel.name = format!("relay {method}"),
            otel.kind = "server",
            relay,
            http.request.method = %method,
            url.path = path,
            http.request.body.size = bytes,
            http.response.status_code = Empty,
            error = Empty,
            otel.status_code = Empty,
        );
        follow(&span, said(HEADER));
        Self { method, path, span }
    }

    /// Returns the span in which it is answered.
    pub(crate) fn span(&self) -> Span {
        self.span.clone()
    }

    pub(crate) fn end(self, status: StatusCode) {
        let Self { method, path, span } = self;
        span.record("http.response.status_code", status.as_u16());
        if status.is_server_error() {
            fail(&span, &status);
        }
        tracing::debug!(%method, path, status = status.as_u16(), "answered");
    }
}
