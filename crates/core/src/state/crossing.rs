use alloc::collections::BTreeMap;
use core::time::Duration;
use posthaste_forecast::{Measure, Path, Quantiles};
use posthaste_plan::distance::{self, Place};
use posthaste_types::{ByteRate, Bytes, DepotId, Timestamp, record};

use crate::{Settings, contract::Knowledge};
use crate::{state::Depot, state::depot::LEVEL_BY_DISTANCE, state::link::FEW};

/// Most crossings remembered: 64 each way of 64.
const CROSSINGS_MAX: usize = 4096;
/// Duration that is slow however few bytes moved.
const LONG: Duration = Duration::from_secs(1);

record! {
    /// Path from one depot to another: its rate and its round trip.
    #[derive(Debug, Clone, PartialEq, Eq, Default)]
    pub(crate) struct Crossing {
        path: Path,
        /// Shortest round trip seen on it.
        pub(crate) round_trip: Option<Duration>,
        /// Time at which a probe of it last ended, whether it showed anything or not.
        pub(crate) probed_at: Option<Timestamp>,
        /// True if a person asked for a probe that did not start yet.
        is_probe_asked: bool,
    }
}

impl Crossing {
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    fn heard_at(&self) -> Option<Timestamp> {
        self.path.measured_at().max(self.probed_at)
    }

    /// Returns its forecast rate; none if nothing was ever measured.
    pub(crate) fn rates(&self, now: Timestamp, settings: &Settings) -> Option<Quantiles> {
        self.path.forecast(now, settings.forecast_tau)
    }

    /// Returns how its believed rate is known.
    pub(crate) fn knowledge(&self, now: Timestamp, settings: &Settings) -> Knowledge {
        match self.path.measured_by(now, settings.forecast_tau) {
            Some(Measure::Transfers) => Knowledge::Transfers,
            Some(Measure::Probe) => Knowledge::Probe,
            None => Knowledge::Assumed,
        }
    }

    /// Returns its forecast rate, or a guess if nothing was measured.
    pub(crate) fn believed(&self, now: Timestamp, settings: &Settings) -> Quantiles {
        let rates = self.rates(now, settings);
        rates.unwrap_or_else(|| settings.prior.quantiles(None))
    }
}

record! {
    /// Known paths between depots. Bounded: the one unheard of for longest makes room.
    #[derive(Debug, Clone, PartialEq, Eq, Default)]
    pub(crate) struct Crossings {
        all: BTreeMap<(DepotId, DepotId), Crossing>,
    }
}

impl Crossings {
    pub(crate) fn get(&self, from: DepotId, to: DepotId) -> Option<&Crossing> {
        self.all.get(&(from, to))
    }

    /// Returns all that are known, in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (DepotId, DepotId, &Crossing)> {
        let all = self.all.iter();
        all.map(|(&(from, to), crossing)| (from, to, crossing))
    }

    /// Returns the forecast rate of the path between two depots; none if nothing was ever measured.
    pub(crate) fn rates(
        &self,
        from: DepotId,
        to: DepotId,
        now: Timestamp,
        settings: &Settings,
    ) -> Option<Quantiles> {
        self.get(from, to)?.rates(now, settings)
    }

    /// Records what all transfers between two depots showed together.
    pub(crate) fn observe(
        &mut self,
        from: DepotId,
        to: DepotId,
        (bytes, span, beside): (Bytes, Duration, u32),
        now: Timestamp,
        settings: &Settings,
    ) {
        // The time of few bytes that arrive soon is mostly the round trip.
        let is_bound = bytes < FEW && span < LONG;
        let rate = ByteRate::over(bytes, span).scaled(beside.into(), 1);
        let crossing = self.entry(from, to);
        let believed = crossing.believed(now, settings);
        crossing
            .path
            .observe_transfer(now, rate, is_bound, believed);
    }

    /// Records the end of a probe: its rate, or a lower bound, if it showed any. Returns whether
    /// the depots are nearer to each other than was known.
    pub(crate) fn observe_probe(
        &mut self,
        (from, to): (DepotId, DepotId),
        found: Option<(ByteRate, bool)>,
        round_trip: Option<Duration>,
        now: Timestamp,
        settings: &Settings,
    ) -> bool {
        let crossing = self.entry(from, to);
        crossing.probed_at = Some(now);
        let shortest = crossing.round_trip.into_iter().chain(round_trip).min();
        let before = core::mem::replace(&mut crossing.round_trip, shortest);
        if let Some((rate, is_bound)) = found {
            let believed = crossing.believed(now, settings);
            crossing.path.observe_probe(now, rate, is_bound, believed);
        }
        before != shortest
    }

    /// Records that a person asks for a probe.
    pub(crate) fn ask(&mut self, from: DepotId, to: DepotId) {
        self.entry(from, to).is_probe_asked = true;
    }

    /// Returns those of which a person asked for a probe, in order.
    pub(crate) fn asked(&self) -> impl Iterator<Item = (DepotId, DepotId)> {
        let asked = self.all.iter().filter(|(_, known)| known.is_probe_asked);
        asked.map(|(ends, _)| *ends)
    }

    /// Marks a probe as begun.
    pub(crate) fn begin_probe(&mut self, from: DepotId, to: DepotId) {
        if let Some(known) = self.all.get_mut(&(from, to)) {
            known.is_probe_asked = false;
        }
    }

    /// Returns when it was measured last, if nothing was heard of it for too long.
    pub(crate) fn stale_since(
        &self,
        from: DepotId,
        to: DepotId,
        now: Timestamp,
        settings: &Settings,
    ) -> Option<Option<Timestamp>> {
        let Some(crossing) = self.get(from, to) else {
            return Some(None);
        };
        let is_stale = crossing
            .heard_at()
            .is_none_or(|at| at + settings.probe_after <= now);
        is_stale.then(|| crossing.path.measured_at())
    }

    /// Returns where a depot lies between the centre and a destination.
    pub(crate) fn place(&self, id: DepotId, depot: &Depot, to: Option<DepotId>) -> Place {
        let between = |to: DepotId| {
            let ways = [self.get(id, to), self.get(to, id)].into_iter().flatten();
            ways.filter_map(|way| way.round_trip).min()
        };
        Place {
            from_centre: depot.round_trip,
            to_destination: to.filter(|&to| to != id).and_then(between),
        }
    }

    /// Returns a depot's hops from the centre, for data to a destination.
    pub(crate) fn level(&self, id: DepotId, depot: &Depot, to: Option<DepotId>) -> u8 {
        match depot.level {
            LEVEL_BY_DISTANCE => distance::level(self.place(id, depot, to)),
            said => said,
        }
    }

    /// Forgets the paths from and to a depot.
    pub(crate) fn forget(&mut self, depot: DepotId) {
        self.all
            .retain(|&(from, to), _| from != depot && to != depot);
    }

    fn entry(&mut self, from: DepotId, to: DepotId) -> &mut Crossing {
        if !self.all.contains_key(&(from, to)) && self.all.len() >= CROSSINGS_MAX {
            let oldest = self.all.iter().min_by_key(|(_, known)| known.heard_at());
            let oldest = oldest.map(|(ends, _)| *ends);
            oldest.map(|ends| self.all.remove(&ends));
        }
        self.all.entry((from, to)).or_default()
    }
}
