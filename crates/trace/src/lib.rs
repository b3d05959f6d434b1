//! Continuation of traces in other processes, and failures of spans.
//!
//! Code that people look for in traces makes a span of `tracing` with the target [`TARGET`]. If
//! traces are off, the span is disabled and costs next to nothing, and so does everything here.
//! Processes pass on the `traceparent` of W3C's [Trace
//! Context](https://www.w3.org/TR/trace-context/).

use std::{collections::HashMap, fmt::Display};

use opentelemetry::{propagation::TextMapPropagator, trace::TraceContextExt};
use opentelemetry_sdk::propagation::TraceContextPropagator;
use tracing::Span;
use tracing_opentelemetry::OpenTelemetrySpanExt;

/// Target of spans that belong to traces.
pub const TARGET: &str = "posthaste::span";

/// Header that names the span a call belongs to.
pub const HEADER: &str = "traceparent";

/// Returns the current span in the form for other processes. `None` outside of any, and if traces
/// are off.
#[must_use]
pub fn traceparent() -> Option<String> {
    let span = Span::current();
    if span.is_disabled() {
        return None;
    }
    let context = span.context();
    if !context.span().span_context().is_valid() {
        return None;
    }
    let mut said = HashMap::new();
    TraceContextPropagator::new().inject_context(&context, &mut said);
    said.remove(HEADER)
}

/// Makes a span that has not begun a child of another process's span. An unreadable parent is
/// ignored.
pub fn follow(span: &Span, parent: Option<&str>) {
    let Some(parent) = parent.filter(|_| !span.is_disabled()) else {
        return;
    };
    let said = HashMap::from([(HEADER.to_owned(), parent.to_owned())]);
    let context = TraceContextPropagator::new().extract(&said);
    if context.span().span_context().is_valid() {
        // Only a span that has begun can fail here, and it stays where it is.
        let _ = span.set_parent(context);
    }
}

/// Marks a span as failed. It must have the fields `error` and `otel.status_code`.
pub fn fail(span: &Span, why: &dyn Display) {
    if !span.is_disabled() {
        span.record("error", why.to_string());
        span.record("otel.status_code", "error");
    }
}

/// Marks a span as failed if its outcome is an error.
pub fn ended<T, E: Display>(span: &Span, outcome: &Result<T, E>) {
    if let Err(why) = outcome {
        fail(span, why);
    }
}

#[cfg(test)]
mod tests {
    use opentelemetry::trace::TracerProvider;
    use opentelemetry_sdk::trace::SdkTracerProvider;
    use tracing_subscriber::layer::SubscriberExt;

    use super::*;

    const CALLERS: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    fn kept(what: impl FnOnce()) {
        let tracer = SdkTracerProvider::default().tracer("test");
        let layer = tracing_opentelemetry::layer().with_tracer(tracer);
        tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), what);
    }

    #[test]
    fn a_trace_goes_on_below_what_the_caller_said() {
        kept(|| {
            let span = tracing::info_span!(target: TARGET, "call");
            follow(&span, Some(CALLERS));
            let said = span.in_scope(traceparent).unwrap();
            assert_eq!(said[..36], CALLERS[..36]);
            assert_ne!(said, CALLERS);
        });
    }

    #[test]
    fn what_can_not_be_read_begins_a_trace() {
        for wrong in [
            "",
            "00-",
            "00-00000000000000000000000000000000-b7ad6b7169203331-01",
            "☃",
        ] {
            kept(|| {
                let span = tracing::info_span!(target: TARGET, "call");
                follow(&span, Some(wrong));
                assert!(span.in_scope(traceparent).is_some(), "{wrong}");
            });
        }
    }

    #[test]
    fn nothing_is_said_where_nobody_keeps_traces() {
        let span = tracing::info_span!(target: TARGET, "call");
        follow(&span, Some(CALLERS));
        assert_eq!(span.in_scope(traceparent), None);
        kept(|| assert_eq!(traceparent(), None));
    }
}
