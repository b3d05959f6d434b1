//! The ways to a relay, as those who use it see them.

use posthaste_types::Bytes as Amount;

use super::RelayClient;

impl RelayClient {
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
}
