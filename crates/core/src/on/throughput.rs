use core::time::Duration;
use posthaste_types::{ByteRate, Bytes, DepotId};

use crate::{
    Mind,
    contract::{Happening, Outbox, Reason},
};

impl Mind {
    /// A measurement of what a depot took.
    pub(crate) fn on_throughput(
        &mut self,
        id: DepotId,
        bytes: Bytes,
        window: Duration,
        saturated: bool,
        out: &mut Outbox,
    ) {
        if !window.is_zero() {
            self.way_out.observe(self.now, bytes, window);
        }
        let rate = ByteRate::over(bytes, window);
        let is_held = self.is_held_by_way_out(rate);
        let (now, settings) = (self.now, &self.settings);
        // What a probe took is missing here.
        let is_probed = self.probing.is_some_and(|probing| probing.depot == id);
        let saturated = saturated && !is_probed && !is_held;
        let may_carry = self.circuits.may_carry(id, now);
        let Some(depot) = self.depots.get_mut(&id).filter(|_| !window.is_zero()) else {
            return;
        };
        if bytes > Bytes::ZERO {
            depot.link.progress_at = now;
        }
        if self.is_trial_of(id) {
            self.on_trial_carried(id, rate, saturated && !may_carry, out);
            return;
        }
        let Some(depot) = self.depots.get_mut(&id) else {
            return;
        };
        let rate = match may_carry {
            true => depot.link.at_most_believed(rate),
            false => rate,
        };
        if let Some((from, to)) = depot.link.observe(now, rate, saturated, settings) {
            self.tell(
                out,
                None,
                Some(id),
                Happening::ForecastMoved,
                Reason::RateMoved { from, to },
            );
        }
    }
}
