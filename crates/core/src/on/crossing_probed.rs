use core::time::Duration;
use posthaste_types::{ByteRate, Bytes, DepotId};

use crate::{Mind, contract::Outbox, probing::Probing};

impl Mind {
    /// Handles the end of a probe from one depot to another. `found` is the rate of the path, or a
    /// lower bound if so marked; none if it showed nothing.
    pub(crate) fn on_crossing_probed(
        &mut self,
        (from, to): (DepotId, DepotId),
        sent: Bytes,
        found: Option<(ByteRate, bool)>,
        round_trip: Option<Duration>,
        out: &mut Outbox,
    ) {
        let ends = (from, to);
        let is_it = |probing: &mut Probing| (probing.from, probing.depot) == (Some(from), to);
        if let Some(probing) = self.probing.take_if(is_it) {
            self.settle_probe(&probing, sent);
        }
        let (now, settings) = (self.now, &self.settings);
        if let Some(taker) = self.depots.get(&to)
            && self.depots.contains_key(&from)
        {
            // Fragments that started meanwhile took their share.
            let is_shared = taker.arriving > Bytes::ZERO || taker.link.flights > 0;
            let found = found.map(|(rate, is_bound)| (rate, is_bound || is_shared));
            let is_nearer = self
                .crossings
                .observe_probe(ends, found, round_trip, now, settings);
            if is_nearer {
                self.on_distance_changed(from);
                self.on_distance_changed(to);
            }
        }
        self.probe_asked(out);
    }
}
