use posthaste_types::{Bytes, Timestamp};

use super::{Load, Outcome};

impl Load {
    /// Iterates over the bytes each lane carried when filled early, with the place of its depot
    /// among the supplies and the arrival of its last byte; never if it carries nothing.
    pub fn ends<'a>(
        &'a self,
        outcome: &'a Outcome,
    ) -> impl Iterator<Item = (usize, Bytes, Option<Timestamp>)> + 'a {
        let placed = self.placed(outcome).enumerate();
        placed.map(|(lane, (supply, bytes))| {
            let stretches = outcome.stretches.iter();
            let own = stretches.filter(|stretch| stretch.lane == lane);
            (supply, bytes, own.map(|stretch| stretch.to).max())
        })
    }
}
