//! Routes to a relay, and connections with other manners, from the user's view.

use std::sync::Arc;

use posthaste_types::Bytes as Amount;

use super::{
    Credential, Departure, Haste, RelayAddress, RelayClient,
    connection::{Manners, Pool},
};
use crate::{
    Result,
    gateway::{Reserved, Way},
    reach::Reach,
};

impl RelayClient {
    /// Creates a client that reaches the relay by any of several routes. The preferred one comes
    /// first; others are used while it does not open or breaks.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) if the URL is not `https://host:port`.
    pub fn by_ways(address: RelayAddress, credential: Credential, ways: Vec<Way>) -> Result<Self> {
        Self::by_ways_within(address, credential, ways, Reach::default())
    }

    /// Creates such a client that connects only where `reach` permits, also to the store behind the
    /// relay. What a gateway connects to is up to the gateway, beyond what is known of it here.
    ///
    /// # Errors
    /// Errors of [`Self::by_ways`].
    pub fn by_ways_within(
        address: RelayAddress,
        credential: Credential,
        ways: Vec<Way>,
        reach: Reach,
    ) -> Result<Self> {
        Ok(Self {
            pool: Arc::new(Pool::new(&address, ways)?.reaching(reach)),
            address: Arc::new(address),
            credential,
            haste: Haste::default(),
            departure: None,
        })
    }

    /// Returns a client of this relay with separate connections that use only the rate others
    /// leave.
    #[must_use]
    pub fn humble(&self) -> Self {
        Self {
            pool: Arc::new(self.pool.beside(Manners::Humble, None)),
            ..self.clone()
        }
    }

    /// Returns a client of this relay with separate connections that belong to a reservation at
    /// gateways. Without a gateway that knows it, they are ordinary ones.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) if it can't be the name of a reservation.
    pub fn reserved(&self, reservation: &str) -> Result<Self> {
        let reservation = Some(Reserved::optional(reservation)?);
        Ok(Self {
            pool: Arc::new(self.pool.beside(Manners::Ordinary, reservation)),
            ..self.clone()
        })
    }

    /// Returns a client with the same connections for requests of this urgency.
    #[must_use]
    pub fn hasty(&self, haste: Haste) -> Self {
        Self {
            haste,
            ..self.clone()
        }
    }

    /// Returns a client with the same connections for requests that can be cancelled while they
    /// wait for one. They then end as [cancelled](crate::ErrorKind::Cancelled), with nothing sent.
    #[must_use]
    pub fn departing(&self, departure: Arc<Departure>) -> Self {
        Self {
            departure: Some(departure),
            ..self.clone()
        }
    }

    /// Returns a client with the same connections that uses another credential.
    #[must_use]
    pub fn showing(&self, credential: Credential) -> Self {
        Self {
            credential,
            ..self.clone()
        }
    }

    /// Returns the names of the routes, in order.
    #[must_use]
    pub fn ways(&self) -> Vec<String> {
        self.pool.ways.names()
    }

    /// Prefers this route, by its index: the next connection takes it if it opens.
    pub fn take_way(&self, way: usize) {
        self.pool.ways.want(way);
    }

    /// Returns the index of the route that the next connection would take.
    #[must_use]
    pub fn way(&self) -> Option<usize> {
        self.pool.ways.first()
    }

    /// Returns the bytes that have arrived at the relay's machine so far, from all clones. None if
    /// they go through gateways, since the bytes those have forwarded can't be observed from here.
    #[must_use]
    pub fn arrived(&self) -> Option<Amount> {
        let is_straight = self.pool.ways.hops(self.way()?).is_empty();
        is_straight.then(|| Amount::new(self.pool.traffic.arrived.count()))
    }

    /// Returns whether the relay reported a rate limit, so that its kernel buffers bytes it has not
    /// read yet.
    #[must_use]
    pub fn is_held_back(&self) -> bool {
        self.rate_limit() > 0
    }
}
