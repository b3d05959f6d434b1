//! Measurement of the path between two relays, requested by the holder of both secrets.

use std::{sync::atomic::Ordering, time::Duration};

use posthaste_types::Bytes as Amount;

use super::{
    DatasetId, RelayClient, Scope,
    wire::{MeasureBody, MeasureEnd, Target, kind_of},
};
use crate::{Error, Locus, Result, clock};

/// Result of a relay's measurement of the path to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Measured {
    /// Duration of a TCP handshake between them.
    pub round_trip: Duration,
    /// Bytes sent in all.
    pub sent: Amount,
    /// Bytes that arrived during the averaging window.
    pub bytes: Amount,
    /// Length of the averaging window; zero without a result.
    pub window: Duration,
    /// True if the probe ended before the window was long enough: the result is a lower bound.
    pub is_bound: bool,
}

impl RelayClient {
    /// Returns the shortest round trip observed on a direct route to the relay. None before a
    /// connection, and if all routes lead through gateways.
    #[must_use]
    pub fn round_trip(&self) -> Option<Duration> {
        let micros = self.pool.traffic.round_trip_micros.load(Ordering::Relaxed);
        (micros > 0).then(|| Duration::from_micros(micros))
    }

    /// Makes the relay measure the path to another one with at most `budget` bytes of noise that
    /// the other discards. The other relay's token is valid for ten minutes and for a dataset that
    /// nobody has.
    ///
    /// Dropping the future cancels it at the relay too.
    ///
    /// # Errors
    /// Errors of [`Self::status`]; [`ErrorKind::NotFound`](crate::ErrorKind::NotFound) from a relay
    /// without this feature, [`ErrorKind::Busy`](crate::ErrorKind::Busy) from one that is already
    /// measuring. Errors of the other relay, or of reaching it, at [`Locus::Destination`].
    pub async fn measure(&self, to: &Self, budget: Amount) -> Result<Measured> {
        let mut nobody = [0; 16];
        // A guessable name would let others store something there for ten minutes, unnoticed.
        getrandom::fill(&mut nobody).map_err(|cause| {
            Error::new(
                crate::ErrorKind::Other,
                "measure from",
                self.address.url.clone(),
            )
            .cause(cause)
        })?;
        let nobody = DatasetId::new(nobody);
        let body = MeasureBody {
            url: to.address.url.clone(),
            fingerprint: to.address.fingerprint.to_string(),
            token: to
                .credential
                .lent(Scope::Write, &nobody, clock::unix_secs()),
            budget_bytes: budget.get(),
            lets_through: to.lets_through().await,
        };
        let target = Target::Measure;
        let end: MeasureEnd = self.order("measure from", target, &body).await?;
        match end.round_trip_micros {
            Some(round_trip) if end.status == 200 => Ok(Measured {
                round_trip: Duration::from_micros(round_trip),
                sent: Amount::new(end.sent_bytes.min(budget.get())),
                bytes: Amount::new(end.averaged_bytes),
                window: Duration::from_micros(end.averaged_micros),
                is_bound: end.is_bound,
            }),
            _ => Err(
                Error::new(kind_of(end.status), "measure to", to.address.url.clone())
                    .at(Locus::Destination)
                    .with("from", self.address.url.clone())
                    .cause(end.message),
            ),
        }
    }
}
