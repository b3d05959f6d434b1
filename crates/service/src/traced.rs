//! Spans of traces that the service makes, and the trace of each request.
//!
//! A request belongs to the trace of the call that submitted it, for as long as the service runs.
//! Its scan and each transferred fragment and chunk are spans below that call, also those of movers
//! and relays. After a restart each of them is a trace of its own.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use posthaste_trace::{TARGET, follow, traceparent};
use posthaste_types::{ChunkIndex, DepotId, FragmentIndex, RequestId, SourceId};
use tracing::{Span, field::Empty, info_span};

use crate::{depots::Depots, hands::Leg};

/// Requests whose trace is kept: a hundred bytes each. Beyond that the oldest is forgotten.
const REQUESTS_MAX: usize = 10_000;

/// Span above each request, as W3C's Trace Context writes it.
#[derive(Debug, Default)]
pub(crate) struct Traced(Mutex<BTreeMap<RequestId, String>>);

impl Traced {
    fn known(&self) -> MutexGuard<'_, BTreeMap<RequestId, String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records the current span as that of the request.
    pub(crate) fn begin(&self, request: RequestId) {
        let Some(parent) = traceparent() else {
            return;
        };
        let mut known = self.known();
        known.insert(request, parent);
        if known.len() > REQUESTS_MAX {
            known.pop_first();
        }
    }

    /// Forgets an ended request.
    pub(crate) fn forget(&self, request: RequestId) {
        self.known().remove(&request);
    }

    fn below(&self, request: RequestId, span: Span) -> Span {
        if !span.is_disabled() {
            follow(&span, self.known().get(&request).map(String::as_str));
        }
        span
    }

    /// Starts the span of a scan of a source.
    pub(crate) fn of_scan(&self, request: RequestId) -> Span {
        let span =
            info_span!(target: TARGET, "scan", %request, error = Empty, otel.status_code = Empty);
        self.below(request, span)
    }

    /// Starts the span of a fragment sent to a depot, or of a chunk that a depot codes.
    pub(crate) fn of_send(&self, leg: Leg, depots: &Depots) -> Span {
        let span = info_span!(
            target: TARGET,
            "send fragment",
            request = %leg.request,
            chunk = leg.chunk.get(),
            fragment = leg.fragment.get(),
            depot = depots.name(leg.depot),
            bytes = Empty,
            error = Empty,
            otel.kind = "client",
            otel.status_code = Empty,
        );
        self.below(leg.request, span)
    }

    /// Starts the span of a fragment or chunk that a depot pushes to another.
    pub(crate) fn of_push(&self, from: DepotId, leg: Leg, depots: &Depots) -> Span {
        let span = info_span!(
            target: TARGET,
            "push fragment",
            request = %leg.request,
            chunk = leg.chunk.get(),
            fragment = leg.fragment.get(),
            from = depots.name(from),
            depot = depots.name(leg.depot),
            error = Empty,
            otel.kind = "client",
            otel.status_code = Empty,
        );
        self.below(leg.request, span)
    }

    /// Starts the span of a chunk that a destination gathers, or of a fragment that a depot
    /// rebuilds.
    pub(crate) fn of_gather(&self, leg: Leg, depots: &Depots) -> Span {
        let name = match leg.fragment {
            FragmentIndex::WHOLE => "gather chunk",
            _ => "make fragment again",
        };
        let span = info_span!(
            target: TARGET,
            "gather",
            otel.name = name,
            request = %leg.request,
            chunk = leg.chunk.get(),
            fragment = leg.fragment.get(),
            depot = depots.name(leg.depot),
            error = Empty,
            otel.kind = "client",
            otel.status_code = Empty,
        );
        self.below(leg.request, span)
    }

    /// Starts the span of a chunk that goes to a depot near the centre.
    pub(crate) fn of_prestage(
        &self,
        (request, source, chunk): (RequestId, SourceId, ChunkIndex),
        depot: String,
    ) -> Span {
        let span = info_span!(
            target: TARGET,
            "prestage chunk",
            %request,
            chunk = chunk.get(),
            source = ?source,
            depot,
            error = Empty,
            otel.kind = "client",
            otel.status_code = Empty,
        );
        self.below(request, span)
    }

    /// Starts the span of a copy to an address, until its allowance is used up.
    pub(crate) fn of_copy(&self, request: RequestId, to: &str) -> Span {
        let span = info_span!(
            target: TARGET,
            "copy to address",
            %request,
            to,
            bytes = Empty,
            error = Empty,
            otel.kind = "client",
            otel.status_code = Empty,
        );
        self.below(request, span)
    }

    /// Starts the span of a chunk fetched from a source.
    pub(crate) fn of_fetch(&self, request: RequestId, source: SourceId, chunk: ChunkIndex) -> Span {
        let span = info_span!(
            target: TARGET,
            "fetch chunk",
            %request,
            chunk = chunk.get(),
            source = ?source,
            bytes = Empty,
            error = Empty,
            otel.kind = "client",
            otel.status_code = Empty,
        );
        self.below(request, span)
    }
}

/// Starts the span of solving a plan over time.
pub(crate) fn of_plan(number: u64) -> Span {
    info_span!(target: TARGET, "solve plan", plan = number, error = Empty, otel.status_code = Empty)
}

/// Starts the span of waiting for leadership.
pub(crate) fn of_lead(holder: &str) -> Span {
    info_span!(target: TARGET, "wait to lead", holder, error = Empty, otel.status_code = Empty)
}
