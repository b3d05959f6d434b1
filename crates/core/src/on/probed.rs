use core::time::Duration;
use posthaste_types::{ByteRate, Bytes, DepotId};

use crate::{Mind, contract::Outbox};

impl Mind {
    /// Handles the end of a probe, with or without a result.
    pub(crate) fn on_probed(
        &mut self,
        id: DepotId,
        sent: Bytes,
        bytes: Bytes,
        window: Duration,
        is_bound: bool,
        out: &mut Outbox,
    ) {
        if let Some(probing) = self
            .probing
            .take_if(|probing| probing.from.is_none() && probing.depot == id)
        {
            self.settle_probe(&probing, sent);
        }
        let (now, settings) = (self.now, &self.settings);
        if let Some(depot) = self.depots.get_mut(&id) {
            depot.link.probed_at = Some(now);
            if !window.is_zero() && bytes > Bytes::ZERO {
                // Fragments that started meanwhile took their share.
                let is_bound = is_bound || depot.link.flights > 0;
                let rate = ByteRate::over(bytes, window);
                depot.link.observe_probe(now, rate, is_bound, settings);
            }
        }
        self.probe_asked(out);
    }
}
