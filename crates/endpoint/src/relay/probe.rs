//! Measures the capacity of the path to a relay with bytes that the relay discards.

use std::{convert::Infallible, pin::Pin, time::Duration};

use bytes::Bytes;
use futures_util::{Stream, stream};
use http::{Method, Request, StatusCode, header};
use http_body_util::{BodyExt, Limited, StreamBody};
use hyper::{body::Frame, client::conn::http1};
use hyper_util::rt::TokioIo;
use posthaste_types::Bytes as Amount;
use socket2::SockRef;
use tokio::{
    task::JoinSet,
    time::{Instant, timeout},
};

use super::{
    RelayClient, Scope,
    connection::Opened,
    wire::{self, ErrorBody, ProbeBody, Target},
};
use crate::{Error, ErrorKind, Locus, Result, clock};

/// Bytes written at once: a probe checks the clock between two blocks.
const BLOCK_BYTES: usize = 64 << 10;
/// Largest answer: a mark is 30 bytes at most, and a relay sends some thousand.
const MARKS_BYTES_MAX: usize = 256 << 10;
/// Most bytes that the kernel may hold unsent: few, so that a probe ends promptly.
pub(super) const UNSENT_BYTES_MAX: u32 = 256 << 10;
/// Longest time of a probe, including what kernels hold at its end, and the answer.
const SPAN_MAX: Duration = Duration::from_secs(40);

/// Result of a probe.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Probed {
    /// Duration of a TCP handshake.
    pub round_trip: Duration,
    /// Bytes sent.
    pub sent: Amount,
    /// Times since the first byte, each with the bytes that the relay had received.
    pub marks: Vec<(Duration, Amount)>,
}

impl RelayClient {
    /// Sends noise over a separate connection while `goes_on(round trip, time since the first,
    /// bytes sent)`, at most `budget` and [`wire::PROBE_BYTES_MAX`]. The relay discards the bytes
    /// and reports when they arrived.
    ///
    /// # Errors
    /// Errors of [`Self::status`]; [`ErrorKind::Busy`] if the relay accepts no more probes, and
    /// [`ErrorKind::NotFound`] from a relay without probes.
    pub async fn probe(
        &self,
        budget: Amount,
        goes_on: impl FnMut(Duration, Duration, Amount) -> bool + Send + 'static,
    ) -> Result<Probed> {
        let probing = async {
            if self.lets_through().await {
                return self.probe_store(budget, goes_on).await;
            }
            let opened = self.pool.connect().await?;
            self.probe_over(opened, budget, goes_on).await
        };
        timeout(SPAN_MAX, probing).await.map_err(|_| {
            Error::new(ErrorKind::TimedOut, "probe", self.address.url.clone())
                .at(Locus::Network)
                .cause(format!("it took longer than {} s", SPAN_MAX.as_secs()))
        })?
    }

    async fn probe_over(
        &self,
        opened: Opened,
        budget: Amount,
        mut goes_on: impl FnMut(Duration, Duration, Amount) -> bool + Send + 'static,
    ) -> Result<Probed> {
        let socket = SockRef::from(opened.stream.tcp());
        // An optional improvement.
        let _ = socket.set_tcp_notsent_lowat(UNSENT_BYTES_MAX);
        let round_trip = opened.round_trip;
        let budget = budget.get().min(wire::PROBE_BYTES_MAX);
        let mut started = None;
        let blocks = blocks(budget, move |sent| {
            let since = started.get_or_insert_with(Instant::now).elapsed();
            goes_on(round_trip, since, sent)
        });
        let request = self.probe_request(StreamBody::new(blocks))?;
        let (mut sender, connection) = http1::handshake(TokioIo::new(opened.stream))
            .await
            .map_err(|cause| self.probe_broke(cause))?;
        let mut driver = JoinSet::new();
        driver.spawn(async move {
            // The request gets the same error; nobody else needs it.
            let _ = connection.await;
        });
        let answer = sender.send_request(request).await;
        let answer = answer.map_err(|cause| self.probe_broke(cause))?;
        let status = answer.status();
        let body = Limited::new(answer.into_body(), MARKS_BYTES_MAX).collect();
        let body = body.await.map_err(|cause| self.probe_broke(cause))?;
        self.read_probe(round_trip, status, &body.to_bytes())
    }

    fn probe_request<B>(&self, body: B) -> Result<Request<Pin<Box<B>>>> {
        let url = &self.address.url;
        let host = url.trim_start_matches("https://").trim_end_matches('/');
        let token = self
            .credential
            .token(Scope::Write, None, clock::unix_secs());
        Request::builder()
            .method(Method::POST)
            .uri(Target::Probe.path())
            .header(header::HOST, host)
            .header(header::AUTHORIZATION, format!("Bearer {token}"))
            .body(Box::pin(body))
            .map_err(|_| {
                Error::new(ErrorKind::Invalid, "probe", url.clone())
                    .cause("the token has characters no token has")
            })
    }

    fn read_probe(&self, round_trip: Duration, status: StatusCode, body: &[u8]) -> Result<Probed> {
        if !status.is_success() {
            let kind = wire::kind_of(status.as_u16());
            let refused = Error::new(kind, "probe", self.address.url.clone())
                .at(Locus::Destination)
                .with("status", status.as_u16());
            return Err(match serde_json::from_slice::<ErrorBody>(body) {
                Ok(told) => refused.cause(told.message),
                Err(_) => refused.cause(format!("it answered {status}")),
            });
        }
        let told: ProbeBody = serde_json::from_slice(body).map_err(|cause| {
            Error::new(ErrorKind::Other, "probe", self.address.url.clone())
                .at(Locus::Network)
                .cause(cause)
                .hint("what answers there is no relay of this release")
        })?;
        let marks = told.marks.iter();
        let marks = marks.map(|&(after, bytes)| (Duration::from_micros(after), Amount::new(bytes)));
        Ok(Probed {
            round_trip,
            sent: Amount::new(told.received_bytes),
            marks: marks.collect(),
        })
    }

    fn probe_broke(&self, cause: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
        Error::new(ErrorKind::Unreachable, "probe", self.address.url.clone())
            .at(Locus::Network)
            .cause(cause)
            .hint("the connection broke")
    }
}

/// Yields blocks of noise, `size` bytes in all or while `goes_on(bytes so far)`.
pub(super) fn blocks(
    size: u64,
    mut goes_on: impl FnMut(Amount) -> bool,
) -> impl Stream<Item = Result<Frame<Bytes>, Infallible>> {
    let block = noise();
    stream::unfold(0, move |sent| {
        let left = size - sent;
        let next = usize::try_from(left).map_or(BLOCK_BYTES, |left| left.min(BLOCK_BYTES));
        let more = next > 0 && goes_on(Amount::new(sent));
        let piece = more.then(|| (Ok(Frame::data(block.slice(..next))), sent + next as u64));
        std::future::ready(piece)
    })
}

/// Returns an incompressible block.
pub(super) fn noise() -> Bytes {
    let mut block = vec![0; BLOCK_BYTES];
    blake3::Hasher::new().finalize_xof().fill(&mut block);
    block.into()
}
