//! Trace spans of a mover.

use posthaste_api as api;
use posthaste_trace::{TARGET, follow};
use tracing::{Span, field::Empty, info_span};

/// Starts the span of a piece of work, below the span of the service that gave it.
pub(crate) fn of(chore: &api::Chore, mover: &str) -> Span {
    let (span, parent) = match chore {
        api::Chore::Send(chore) => {
            let span = info_span!(
                target: TARGET,
                "mover sends fragment",
                mover,
                request = chore.request,
                chunk = chore.chunk,
                fragment = chore.fragment,
                depot = chore.depot.name,
                bytes = Empty,
                error = Empty,
                otel.kind = "client",
                otel.status_code = Empty,
            );
            (span, &chore.traceparent)
        }
        api::Chore::Fetch(chore) => {
            let bytes: u64 = chore.pieces.iter().map(|piece| piece.to - piece.from).sum();
            let span = info_span!(
                target: TARGET,
                "mover fetches chunk",
                mover,
                request = chore.request,
                chunk = chore.chunk,
                bytes,
                error = Empty,
                otel.kind = "client",
                otel.status_code = Empty,
            );
            (span, &chore.traceparent)
        }
        api::Chore::Carry(chore) => {
            let span = info_span!(
                target: TARGET,
                "mover copies piece",
                mover,
                request = chore.request,
                bytes = chore.piece.to - chore.piece.from,
                error = Empty,
                otel.kind = "client",
                otel.status_code = Empty,
            );
            (span, &chore.traceparent)
        }
    };
    follow(&span, parent.as_deref());
    span
}
