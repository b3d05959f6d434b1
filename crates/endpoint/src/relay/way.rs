//! The ways to a relay, and how connections stand to others on them, as those who use it see them.

use std::sync::Arc;

use posthaste_types::Bytes as Amount;

use super::{Credential, Departure, Haste, RelayClient, connection::Manners};
use crate::{Result, gateway::Reserved};

impl RelayClient {
    /// The same relay over connections of its own that take only what others on the path leave.
    #[must_use]
    pub fn humble(&self) -> Self {
        Self {
            pool: Arc::new(self.pool.beside(Manners::Humble, None)),
            ..self.clone()
        }
    }

    /// The same relay over connections of its own that are streams of a reservation at the gateways on their way. Where no
    /// gateway knows it they are as any others.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) where it can't be the name of a reservation.
    pub fn reserved(&self, reservation: &str) -> Result<Self> {
        let reservation = Some(Reserved::optional(reservation)?);
        Ok(Self {
            pool: Arc::new(self.pool.beside(Manners::Ordinary, reservation)),
            ..self.clone()
        })
    }

    /// The same relay over the same connections, for what must be through so soon.
    #[must_use]
    pub fn hasty(&self, haste: Haste) -> Self {
        Self {
            haste,
            ..self.clone()
        }
    }

    /// The same relay over the same connections, for what may be called back while it waits for one of them: then it
    /// ends as [cancelled](crate::ErrorKind::Cancelled), and nothing of it was sent.
    #[must_use]
    pub fn departing(&self, departure: Arc<Departure>) -> Self {
        Self {
            departure: Some(departure),
            ..self.clone()
        }
    }

    /// The same relay over the same connections, for what is shown another credential.
    #[must_use]
    pub fn showing(&self, credential: Credential) -> Self {
        Self {
            credential,
            ..self.clone()
        }
    }

    /// The names of the ways, in their order.
    #[must_use]
    pub fn ways(&self) -> Vec<String> {
        self.pool.ways.names()
    }

    /// Wants this way, by its place, before all others: the next connection takes it if it opens.
    pub fn take_way(&self, way: usize) {
        self.pool.ways.want(way);
    }

    /// The place of the way that the next connection would take.
    #[must_use]
    pub fn way(&self) -> Option<usize> {
        self.pool.ways.first()
    }

    /// Bytes that have arrived at the relay's machine so far, from all clones; none while they go through
    /// gateways, of which nobody can see from here what they have passed on.
    #[must_use]
    pub fn arrived(&self) -> Option<Amount> {
        let is_straight = self.pool.ways.hops(self.way()?).is_empty();
        is_straight.then(|| Amount::new(self.pool.traffic.arrived.count()))
    }

    /// Whether the relay said that it takes no more than some rate, so that its kernel holds what it does not read yet.
    #[must_use]
    pub fn is_held_back(&self) -> bool {
        self.rate_limit() > 0
    }
}
