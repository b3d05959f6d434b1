//! One relay measures the path to another: asked by whoever has the secrets of both.

use std::{sync::atomic::Ordering, time::Duration};

use posthaste_types::Bytes as Amount;

use super::{
    DatasetId, RelayClient, Scope,
    wire::{MeasureBody, MeasureEnd, Target, kind_of},
};
use crate::{Error, Locus, Result, clock};

/// What a relay found of the path to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Measured {
    /// How long a TCP handshake takes between them.
    pub round_trip: Duration,
    /// Bytes sent in all.
    pub sent: Amount,
    /// Bytes that arrived while it was averaged.
    pub bytes: Amount,
    /// How long that was; zero where nothing was found.
    pub window: Duration,
    /// Whether it ended before it was averaged for long enough: then the path carries at least this.
    pub is_bound: bool,
}

impl RelayClient {
    /// The shortest round trip straight to the relay that was seen; none before a connection, and where all lead through
    /// gateways.
    #[must_use]
    pub fn round_trip(&self) -> Option<Duration> {
        let micros = self.pool.traffic.round_trip_micros.load(Ordering::Relaxed);
        (micros > 0).then(|| Duration::from_micros(micros))
    }

    /// Lets the relay measure what the path from it to another one carries, with at most `budget` bytes of no meaning
    /// that the other throws away. The other's token is good for ten minutes and for a dataset that nobody has.
    ///
    /// Dropped, it is given up there too.
    ///
    /// # Errors
    /// As [`Self::status`]; [`ErrorKind::NotFound`](crate::ErrorKind::NotFound) of a relay that can't,
    /// [`ErrorKind::Busy`](crate::ErrorKind::Busy) of one that measures already. At [`Locus::Destination`] what the
    /// other one said, or that it was not reached.
    pub async fn measure(&self, to: &Self, budget: Amount) -> Result<Measured> {
        let mut nobody = [0; 16];
        // Whoever guessed it could store something there for ten minutes, and nobody would look for it.
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
