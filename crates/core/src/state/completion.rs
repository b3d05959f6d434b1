//! Forecasts: the books as the planner sees them, and the answers put back.
//!
//! A look at everything goes through the requests that move, the most urgent first. Each takes its
//! share of what the more urgent ones left: early, for its forecast, and late, for what it was
//! promised. A newcomer finds what is left at the end.

pub(crate) mod belief;

use alloc::collections::BTreeMap;
use core::time::Duration;
use posthaste_plan::{Curve, Load, Outcome, Scene, Supplies, Supply};
use posthaste_types::{ByteRate, DepotId, Timestamp, record};

use crate::{
    contract::Forecast,
    state::completion::belief::Belief,
    state::{Depot, Request, Urgency},
};

/// Requests in one slice of a look at everything: well under a millisecond with 10^5 of them.
pub(crate) const SLICE: usize = 24;

/// Most requests that are looked at in one go while a caller waits.
pub(crate) const QUICK: usize = 128;

/// Time between two slices.
pub(crate) const SLICE_PAUSE: Duration = Duration::from_micros(7500);

/// Age beyond which the capacity left for newcomers is recomputed for one.
pub(crate) const PROMISED_AGE_MAX: Duration = Duration::from_secs(1);

/// Span ahead for which hours of depots are planned; beyond it they count as open.
pub(crate) const HOURS_AHEAD: Duration = Duration::from_secs(8 * 86400);

/// Place of each depot among the supplies.
pub(crate) type Places = BTreeMap<DepotId, u32>;

fn has_places(supplies: &Supplies, places: &Places) -> bool {
    let most = supplies.depots.len();
    places.values().all(|&place| (place as usize) < most)
}

record! {
    /// Capacity left for newcomers.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub(crate) struct Promised {
        /// Time of this value.
        pub(crate) at: Timestamp,
        /// True if something about depots changed since.
        pub(crate) is_stale: bool,
        pub(crate) places: Places,
        pub(crate) careful: Scene,
        /// Hopeful scene; none if every depot was measured just now, when the careful one serves.
        pub(crate) hopeful: Option<Scene>,
    }
}

impl Promised {
    /// Returns whether decoded bytes made a usable value, in which every depot has its place.
    pub(crate) fn is_sound(&self) -> bool {
        let mut scenes = self.hopeful.iter().chain([&self.careful]);
        scenes.all(|scene| has_places(&scene.supplies, &self.places))
    }

    pub(crate) fn scene(&self, belief: Belief) -> &Scene {
        match (belief, &self.hopeful) {
            (Belief::Hopeful, Some(hopeful)) => hopeful,
            _ => &self.careful,
        }
    }

    /// Returns both scenes, each with its belief.
    pub(crate) fn scenes(&mut self) -> impl Iterator<Item = (Belief, &mut Scene)> {
        let hopeful = self
            .hopeful
            .iter_mut()
            .map(|scene| (Belief::Hopeful, scene));
        hopeful.chain([(Belief::P10, &mut self.careful)])
    }

    /// Adds a lost depot as if it were up.
    pub(crate) fn add(&mut self, id: DepotId, depot: &Depot, spread: u64, now: Timestamp) {
        let mut place = 0;
        for (belief, scene) in self.scenes() {
            place = scene.supplies.depots.len();
            let curve = lent_curve(depot, belief, spread, now);
            scene.supplies.depots.push(Supply::new(curve, depot.free));
        }
        if let Ok(place) = u32::try_from(place) {
            self.places.insert(id, place);
        }
    }

    /// Opens a depot as if it were lent outside its hours as well.
    pub(crate) fn open(
        &mut self,
        id: DepotId,
        depot: &Depot,
        spread: u64,
        (from, until): (Timestamp, Timestamp),
    ) {
        let place = self.places.get(&id).copied();
        for (belief, scene) in self.scenes() {
            let supplies = &mut scene.supplies.depots;
            let Some(supply) = place.and_then(|place| supplies.get_mut(place as usize)) else {
                continue;
            };
            let mut at = from;
            while at < until {
                let next = depot.terms.windows.next_change(at);
                let next = next.map_or(until, |next| next.min(until));
                if !depot.is_within_hours(at) {
                    supply.curve.give_back(at, next, belief.rate(depot, spread));
                }
                at = next;
            }
        }
    }

    /// Adds reserved rate to the link to a depot, or to the uplink.
    pub(crate) fn reserve(
        &mut self,
        on: Option<DepotId>,
        from: Timestamp,
        until: Timestamp,
        rate: ByteRate,
    ) {
        let place = on.and_then(|id| self.places.get(&id).copied());
        for (_, scene) in self.scenes() {
            let supplies = &mut scene.supplies;
            let curve = match (on, place) {
                (None, _) => supplies.way_out.as_mut(),
                (Some(_), Some(place)) => supplies
                    .depots
                    .get_mut(place as usize)
                    .map(|supply| &mut supply.curve),
                (Some(_), None) => None,
            };
            if let Some(curve) = curve {
                curve.give_back(from, until, rate);
            }
        }
    }

    pub(crate) fn promise(&mut self, load: &Load, deadline: Timestamp) {
        self.careful.promise(load, deadline);
        if let Some(hopeful) = &mut self.hopeful {
            hopeful.promise(load, deadline);
        }
    }
}

record! {
    /// Look at everything, as far as it has come.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub(crate) struct Sweep {
        /// Time at which the next slice is due.
        pub(crate) goes_on: Timestamp,
        /// Last request that was looked at.
        pub(crate) after: Option<Urgency>,
        /// Supplies left by the requests so far at p10, p50 and p90.
        pub(crate) slow: Supplies,
        pub(crate) middle: Supplies,
        pub(crate) fast: Supplies,
        pub(crate) promised: Promised,
    }
}

/// Forecast of one request after the more urgent ones.
pub(crate) struct Fares {
    pub(crate) load: Load,
    pub(crate) slow: Outcome,
    pub(crate) middle: Outcome,
    pub(crate) fast: Outcome,
}

impl Sweep {
    /// Returns whether decoded bytes are usable, as [`Promised::is_sound`] does.
    pub(crate) fn is_sound(&self) -> bool {
        let supplies = [&self.slow, &self.middle, &self.fast];
        self.promised.is_sound()
            && supplies
                .into_iter()
                .all(|supplies| has_places(supplies, self.places()))
    }

    /// Returns the place of each depot.
    pub(crate) fn places(&self) -> &Places {
        &self.promised.places
    }

    /// Returns what is left for newcomers after the requests so far.
    pub(crate) fn into_promised(self) -> Promised {
        self.promised
    }

    /// Returns when a load would be done after the requests so far, at p10.
    pub(crate) fn finish_slow(&self, load: &Load, now: Timestamp) -> Option<Timestamp> {
        self.slow.early(load, now).edge
    }

    pub(crate) fn fares(&self, load: Load, now: Timestamp) -> Fares {
        Fares {
            slow: self.slow.early(&load, now),
            middle: self.middle.early(&load, now),
            fast: self.fast.early(&load, now),
            load,
        }
    }

    /// Takes what the request uses from the supplies of the next one.
    pub(crate) fn take(&mut self, fares: &Fares, request: &Request) {
        self.slow.take(&fares.load, &fares.slow);
        self.middle.take(&fares.load, &fares.middle);
        self.fast.take(&fares.load, &fares.fast);
        // A request that can't be on time was promised nothing.
        if !request.is_leftover {
            let deadline = request.aim();
            self.promised
                .promise_kept(&fares.load, deadline, &fares.slow);
        }
    }
}

impl Fares {
    pub(crate) fn forecast(&self) -> Option<Forecast> {
        Some(Forecast {
            p10: self.fast.edge?,
            p50: self.middle.edge?,
            p90: self.slow.edge?,
        })
    }
}

/// Returns the believed rate of a depot over time.
fn lent_curve(depot: &Depot, belief: Belief, spread: u64, now: Timestamp) -> Curve {
    let mut curve = Curve::constant(belief.rate(depot, spread));
    depot.close(&mut curve, now, now + HOURS_AHEAD);
    curve
}
