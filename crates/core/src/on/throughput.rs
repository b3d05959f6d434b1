use core::time::Duration;
use posthaste_types::{Bytes, DepotId};

use crate::{
    Mind,
    contract::{Happening, Outbox, Reason},
    way_out::Taken,
};

impl Mind {
    /// Handles a measurement of a depot's rate.
    pub(crate) fn on_throughput(
        &mut self,
        id: DepotId,
        bytes: Bytes,
        window: Duration,
        saturated: bool,
        out: &mut Outbox,
    ) {
        let now = self.now;
        let Some(depot) = self.depots.get_mut(&id).filter(|_| !window.is_zero()) else {
            return;
        };
        if bytes > Bytes::ZERO {
            depot.link.progress_at = now;
        }
        let shows_rate = depot.link.shows_rate(bytes);
        // The bytes of a probe are missing here.
        let is_probed = self.probing.is_some_and(|probing| probing.depot == id);
        let taken = Taken {
            at: now,
            depot: id,
            bytes,
            window,
            saturated: saturated && shows_rate && !is_probed,
            is_trial: self.is_trial_of(id),
        };
        if self.settings.egress.is_none() {
            self.learn_throughput(taken, false, out);
            return;
        }
        self.learn_known(out);
        if let Some(before) = self.way_out.observe(taken) {
            self.learn_judged(before, out);
        }
    }

    /// Judges the last measurements, if nothing more comes.
    pub(crate) fn settle_way_out(&mut self, out: &mut Outbox) {
        self.learn_known(out);
        self.way_out.forget_old(self.now);
    }

    fn learn_known(&mut self, out: &mut Outbox) {
        for taken in self.way_out.known(self.now) {
            self.learn_judged(taken, out);
        }
    }

    /// Learns from a depot's rate: measurements beside it show whether the uplink was full.
    fn learn_judged(&mut self, taken: Taken, out: &mut Outbox) {
        let is_held = self.is_held_by_way_out(&taken);
        self.learn_throughput(taken, is_held, out);
    }

    /// Learns from a depot's rate, which the uplink held back or not.
    fn learn_throughput(&mut self, taken: Taken, is_held: bool, out: &mut Outbox) {
        let (now, id) = (self.now, taken.depot);
        let rate = taken.rate();
        let saturated = taken.saturated && !is_held;
        let may_carry = self.circuits.may_carry(id, now);
        if self.is_trial_of(id) != taken.is_trial {
            // It went another way.
            return;
        }
        if taken.is_trial {
            self.on_trial_carried(id, rate, saturated && !may_carry, out);
            return;
        }
        let settings = &self.settings;
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
