use posthaste_types::{Bytes, Timestamp};

use super::{Load, Outcome};

impl Load {
    /// What each of its lanes carried where it was filled early, with the place of its depot among the supplies, and when the last of
    /// that has arrived; never where it carries nothing.
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
