//! How a trace goes on in another process, and how spans say what went wrong.
//!
//! Whoever does something that people look for in traces makes a span of `tracing` with the target [`TARGET`]. Nobody keeps it where
//! traces are off, and then it costs next to nothing: it is disabled, and so is everything here. What is said between processes is the
//! `traceparent` of W3C's [Trace Context](https://www.w3.org/TR/trace-context/).

use std::{collections::HashMap, fmt::Display};

use opentelemetry::{propagation::TextMapPropagator, trace::TraceContextExt};
use opentelemetry_sdk::propagation::TraceContextPropagator;
use tracing::Span;
use tracing_opentelemetry::OpenTelemetrySpanExt;

/// The target of spans that belong to traces.
pub const TARGET: &str = "posthaste::span";

/// The header that says what a call belongs to.
pub const HEADER: &str = "traceparent";

/// The span in which this is asked, as other processes are told of it. `None` outside of any, and where nobody keeps traces.
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

/// Puts a span that has not begun below the one that another process told of. What can't be read is as if nobody had said anything.
pub fn follow(span: &Span, parent: Option<&str>) {
    let Some(parent) = parent.filter(|_| !span.is_disabled()) else {
        return;
    };
    let said = HashMap::from([(HEADER.to_owned(), parent.to_owned())]);
    let context = TraceContextPropagator::new().extract(&said);
    if context.span().span_context().is_valid() {
        // It may only be one that has begun, which stays where it is.
        let _ = span.set_parent(context);
    }
}

/// Says that what a span is about failed. It must have the fields `error` and `otel.status_code`.
pub fn fail(span: &Span, why: &dyn Display) {
    if !span.is_disabled() {
        span.record("error", why.to_string());
        span.record("otel.status_code", "error");
    }
}

/// The same where it did, and nothing where it went well.
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
