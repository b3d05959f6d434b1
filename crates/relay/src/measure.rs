//! Measurements of the path to another relay, on the order of a caller with the right to write to
//! both: by a usual probe, whose result the caller gets.

use std::sync::Arc;

use http::Response;
use posthaste_endpoint::{
    ErrorKind,
    relay::{
        Probed, RelayClient,
        wire::{MeasureBody, MeasureEnd, status_of},
    },
};
use posthaste_forecast::{Finding, Probe};
use posthaste_types::Bytes as Amount;
use tokio::sync::Semaphore;

use crate::{
    answer::Body,
    order,
    others::{Others, answer_in_time},
    reception::Reception,
    store::Refusal,
};

/// Maximum of a request's bytes: it says where to, with what, and how much.
const ORDER_BYTES_MAX: usize = 4096;

/// Measurements between relays.
pub(crate) struct Measures {
    /// Permit for one measurement: several at once would measure each other.
    permit: Arc<Semaphore>,
    others: Arc<Others>,
}

impl Measures {
    pub(crate) fn new(others: Arc<Others>) -> Self {
        let permit = Arc::new(Semaphore::new(1));
        Self { permit, others }
    }

    /// Measures by the order in the body.
    pub(crate) async fn measure(
        &self,
        body: Reception,
    ) -> Result<Response<Body>, (Refusal, Option<(Reception, u64)>)> {
        let order = body.read(ORDER_BYTES_MAX).await;
        let order = order.map_err(|refusal| (refusal, None))?;
        self.begin(&order).map_err(|refusal| (refusal, None))
    }

    fn begin(&self, order: &[u8]) -> Result<Response<Body>, Refusal> {
        let order: MeasureBody = order::read(order, "the body says not what to measure")?;
        let permit = Arc::clone(&self.permit)
            .try_acquire_owned()
            .map_err(|_| Refusal::new(ErrorKind::Busy, "another path is being measured"))?;
        let client = self
            .others
            .client(&order.url, &order.fingerprint, &order.token)?;
        client.expect_passes(order.lets_through);
        let budget = Amount::new(order.budget_bytes);
        Ok(answer_in_time(Box::pin(async move {
            let _permit = permit;
            match probe(&client, budget).await {
                Ok((probed, finding)) => told(&probed, finding),
                Err(error) => MeasureEnd {
                    status: status_of(error.kind()),
                    message: error.to_string(),
                    round_trip_micros: None,
                    sent_bytes: 0,
                    averaged_bytes: 0,
                    averaged_micros: 0,
                    is_bound: true,
                },
            }
        })))
    }
}

/// Probes the path to a relay with at most `budget` bytes, until the rule says that it has seen
/// enough. Returns what that showed (`docs/algorithms/bandwidth-forecast.md`).
///
/// # Errors
/// Errors of [`RelayClient::probe`].
pub async fn probe(
    client: &RelayClient,
    budget: Amount,
) -> posthaste_endpoint::Result<(Probed, Finding)> {
    let mut sending: Option<Probe> = None;
    let goes_on = move |round_trip, since, sent| {
        let probe = sending.get_or_insert_with(|| Probe::new(round_trip, budget));
        // The bytes sent decide when it ends; the bytes that the relay saw decide what it shows.
        probe.mark(since, sent);
        probe.goes_on(since, sent)
    };
    let probed = client.probe(budget, goes_on).await?;
    let mut seen = Probe::new(probed.round_trip, budget);
    for &(after, carried) in &probed.marks {
        seen.mark(after, carried);
    }
    let finding = seen.finding();
    Ok((probed, finding))
}

/// Returns the result of a probe as the sender of the order receives it.
fn told(probed: &Probed, finding: Finding) -> MeasureEnd {
    let micros = |span: std::time::Duration| u64::try_from(span.as_micros()).unwrap_or(u64::MAX);
    MeasureEnd {
        status: 200,
        message: String::new(),
        round_trip_micros: Some(micros(probed.round_trip)),
        sent_bytes: probed.sent.get(),
        averaged_bytes: finding.bytes.get(),
        averaged_micros: micros(finding.window),
        is_bound: finding.is_bound,
    }
}
