//! Exporter of spans to an OpenTelemetry collector, by OTLP over HTTP.
//!
//! Spans wait in a bounded queue. If the collector is too slow or does not answer, they are lost;
//! nothing else waits for them. A thread of its own sends them.

use std::{
    fmt,
    pin::Pin,
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use clap::Args;
use http_body_util::{BodyExt, Full, Limited};
use hyper_util::{
    client::legacy::Client,
    rt::{TokioExecutor, TokioTimer},
};
use opentelemetry::trace::TracerProvider;
use opentelemetry_http::{Bytes, HttpClient, HttpError, Request, Response};
use opentelemetry_otlp::{SpanExporter, WithExportConfig, WithHttpConfig};
use opentelemetry_sdk::{
    Resource,
    trace::{BatchConfigBuilder, BatchSpanProcessor, SdkTracer, SdkTracerProvider},
};
use posthaste_endpoint::{Error, ErrorKind, WebConnector, deepest, web_connector, web_tls};
use tokio::runtime::Runtime;

use crate::{config, failure::Failure};

/// Spans that wait, at most: some hundred bytes each. More are lost.
const QUEUE_MAX: usize = 8192;
/// Spans sent at once.
const BATCH_MAX: usize = 512;
/// Time for which spans wait for others.
const DELAY: Duration = Duration::from_secs(2);
/// Longest wait for a collector's answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// Time for the last spans when the process ends.
const ENDING: Duration = Duration::from_secs(2);
/// Time after which an idle connection is closed.
const IDLE_FOR: Duration = Duration::from_secs(30);
/// Bytes of an answer, at most: it says little.
const ANSWER_BYTES_MAX: usize = 1 << 16;
/// Path of a collector for spans, below its address.
const PATH: &str = "/v1/traces";

/// Where spans go.
#[derive(Debug, Clone, Default, Args)]
pub struct TraceArguments {
    /// Send traces to this OpenTelemetry collector, by OTLP over HTTP, as http://127.0.0.1:4318; what it wants to be shown stands in
    /// OTEL_EXPORTER_OTLP_HEADERS [default: nowhere]
    #[arg(
        long,
        value_name = "URL",
        env = "OTEL_EXPORTER_OTLP_ENDPOINT",
        hide_env_values = true
    )]
    traces: Option<String>,
}

/// Sender of spans, until it is dropped.
pub struct Traces {
    provider: SdkTracerProvider,
}

impl TraceArguments {
    /// Returns the address of the collector, if there is one.
    pub fn url(&self) -> Option<&str> {
        self.traces.as_deref().filter(|url| !url.is_empty())
    }

    /// Starts to send recorded spans, as `service`, if that was asked for.
    ///
    /// # Errors
    /// Fails for an invalid address, or one with a password in it.
    pub fn begin(&self, service: &'static str) -> Result<Option<Traces>, Failure> {
        let Some(url) = self.url() else {
            return Ok(None);
        };
        let address = address(url)?;
        let exporter = SpanExporter::builder()
            .with_http()
            .with_http_client(Sender::new(&address)?)
            .with_endpoint(address)
            .with_timeout(PATIENCE)
            .build()
            .map_err(|cause| wrong(url).cause(cause))?;
        let batches = BatchConfigBuilder::default()
            .with_max_queue_size(QUEUE_MAX)
            .with_max_export_batch_size(BATCH_MAX)
            .with_scheduled_delay(DELAY)
            .build();
        let sender = BatchSpanProcessor::builder(exporter)
            .with_batch_config(batches)
            .build();
        let mut named = Resource::builder();
        if !config::names_service() {
            named = named.with_service_name(service);
        }
        let provider = SdkTracerProvider::builder()
            .with_span_processor(sender)
            .with_resource(named.build())
            .build();
        Ok(Some(Traces { provider }))
    }
}

impl Traces {
    /// Returns the recorder of spans.
    pub fn tracer(&self) -> SdkTracer {
        self.provider.tracer("posthaste")
    }
}

impl Drop for Traces {
    fn drop(&mut self) {
        // The last ones may be lost as any others.
        let _ = self.provider.shutdown_with_timeout(ENDING);
    }
}

fn wrong(url: &str) -> Error {
    let shown = url.rsplit('@').next().unwrap_or_default();
    Error::new(ErrorKind::Invalid, "send traces to", shown.to_owned())
        .hint("name the collector like http://127.0.0.1:4318")
}

/// Returns the address for spans.
fn address(url: &str) -> Result<String, Failure> {
    let uri: http::Uri = url
        .parse()
        .map_err(|_| wrong(url).cause("that is no address"))?;
    let authority = uri.authority().map(http::uri::Authority::as_str);
    let is_web = matches!(uri.scheme_str(), Some("http" | "https"));
    match authority.filter(|_| is_web) {
        None => Err(wrong(url).cause("that is no address").into()),
        Some(authority) if authority.contains('@') => {
            let why = "passwords do not belong into addresses: OTEL_EXPORTER_OTLP_HEADERS has them";
            Err(wrong(url).cause(why).into())
        }
        Some(_) if uri.path().ends_with(PATH) => Ok(url.to_owned()),
        Some(_) => Ok(format!("{}{PATH}", url.trim_end_matches('/'))),
    }
}

type Answer = Result<Response<Bytes>, HttpError>;

/// Sender of the exporter's messages, which reports once that they don't arrive.
struct Sender {
    client: Client<WebConnector, Full<Bytes>>,
    /// Runtime of its own: the exporter waits on a thread without other work, even after everything
    /// else has ended.
    runtime: Runtime,
    address: String,
    is_lost: AtomicBool,
}

impl fmt::Debug for Sender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sender").finish_non_exhaustive()
    }
}

impl Sender {
    fn new(address: &str) -> Result<Self, Failure> {
        let tls = web_tls(address.starts_with("https"), None)?;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("traces")
            .enable_all()
            .build();
        Ok(Self {
            client: Client::builder(TokioExecutor::new())
                .pool_timer(TokioTimer::new())
                .pool_idle_timeout(IDLE_FOR)
                .build(web_connector(tls, PATIENCE)),
            runtime: runtime.map_err(anyhow::Error::from)?,
            address: address.to_owned(),
            is_lost: AtomicBool::new(false),
        })
    }

    /// Notes the result of a try.
    fn note(&self, why: Option<String>) {
        let was_lost = self.is_lost.swap(why.is_some(), Ordering::Relaxed);
        match why {
            Some(why) if !was_lost => {
                let address = &self.address;
                tracing::warn!(
                    "traces don't arrive at {address}, and are lost until they do: {why}"
                );
            }
            None if was_lost => tracing::info!("traces arrive at {} again", self.address),
            Some(_) | None => {}
        }
    }
}

impl HttpClient for Sender {
    fn send_bytes<'life0, 'async_trait>(
        &'life0 self,
        request: Request<Bytes>,
    ) -> Pin<Box<dyn Future<Output = Answer> + Send + 'async_trait>>
    where
        'life0: 'async_trait,
        Self: 'async_trait,
    {
        let client = self.client.clone();
        let asking = self.runtime.spawn(async move {
            let asked = async {
                let answer = client.request(request.map(Full::new)).await;
                let (head, body) = answer.map_err(|cause| deepest(&cause))?.into_parts();
                let body = Limited::new(body, ANSWER_BYTES_MAX).collect().await;
                let body = body.map_err(|cause| cause.to_string())?.to_bytes();
                Ok::<_, String>(Response::from_parts(head, body))
            };
            let answer = tokio::time::timeout(PATIENCE, asked).await;
            answer.map_err(|_| "no answer came".to_owned())?
        });
        Box::pin(async move {
            let answer = asking.await.map_err(|cause| cause.to_string()).flatten();
            self.note(match &answer {
                Ok(answer) if answer.status().is_success() => None,
                Ok(answer) => Some(format!("it answers {}", answer.status())),
                Err(why) => Some(why.clone()),
            });
            answer.map_err(HttpError::from)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_go_below_the_address_of_the_collector() {
        for (url, wanted) in [
            ("http://127.0.0.1:4318", "http://127.0.0.1:4318/v1/traces"),
            (
                "https://otel.example.org/a/",
                "https://otel.example.org/a/v1/traces",
            ),
            ("http://h:1/v1/traces", "http://h:1/v1/traces"),
        ] {
            assert_eq!(address(url).unwrap(), wanted);
        }
    }

    #[test]
    fn what_is_no_address_is_said_without_its_password() {
        for url in ["nowhere", "ftp://h", "", "http://user:geheim@h:1"] {
            let failure = address(url).unwrap_err().to_string();
            assert!(!failure.contains("geheim"), "{failure}");
            assert!(failure.contains("http://127.0.0.1:4318"), "{failure}");
        }
    }
}
