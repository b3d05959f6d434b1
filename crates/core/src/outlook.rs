//! Forecasts: the books as the planner sees them, and the answers put back.
//!
//! A look at everything goes through the requests that move, the most urgent first. Each takes its
//! share of what the more urgent ones left: early, for its forecast, and late, for what it was
//! promised. A newcomer finds what is left at the end.

mod ahead;
mod belief;
mod keep;
mod raise;

pub(crate) use {ahead::Ahead, belief::Belief, keep::give_back, raise::Raise};

use alloc::{collections::BTreeMap, vec, vec::Vec};
use core::time::Duration;
use posthaste_plan::{Curve, Lane, Load, Outcome, Scene, Supplies, Supply, Whole};
use posthaste_types::{ByteRate, DepotId, RequestId, Timestamp, record};

use crate::{
    Mind,
    books::{Depot, Request, Route, Urgency},
    contract::Forecast,
};

/// Requests in one slice of a look at everything: well under a millisecond with 10^5 of them.
pub(crate) const SLICE: usize = 24;
/// Most requests that are looked at in one go while a caller waits.
const QUICK: usize = 128;
/// Time between two slices.
pub(crate) const SLICE_PAUSE: Duration = Duration::from_micros(7500);
/// Age beyond which the capacity left for newcomers is recomputed for one.
const PROMISED_AGE_MAX: Duration = Duration::from_secs(1);

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
        at: Timestamp,
        /// True if something about depots changed since.
        pub(crate) is_stale: bool,
        pub(crate) places: Places,
        careful: Scene,
        /// Hopeful scene; none if every depot was measured just now, when the careful one serves.
        hopeful: Option<Scene>,
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
    fn scenes(&mut self) -> impl Iterator<Item = (Belief, &mut Scene)> {
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
        after: Option<Urgency>,
        /// Supplies left by the requests so far at p10, p50 and p90.
        slow: Supplies,
        middle: Supplies,
        fast: Supplies,
        promised: Promised,
    }
}

/// Forecast of one request after the more urgent ones.
pub(crate) struct Fares {
    load: Load,
    slow: Outcome,
    middle: Outcome,
    fast: Outcome,
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

    fn fares(&self, load: Load, now: Timestamp) -> Fares {
        Fares {
            slow: self.slow.early(&load, now),
            middle: self.middle.early(&load, now),
            fast: self.fast.early(&load, now),
            load,
        }
    }

    /// Takes what the request uses from the supplies of the next one.
    fn take(&mut self, fares: &Fares, request: &Request) {
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
    fn forecast(&self) -> Option<Forecast> {
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

impl Mind {
    /// Returns by how much less the sum of depots' rates strays than each of them: errors of
    /// independent paths add up by their squares. Requests use a few depots only.
    pub(crate) fn spread(&self) -> u64 {
        const MOST: usize = 9;
        let depots = self.depots.values().filter(|depot| depot.is_expected());
        (depots.take(MOST).count() as u64).isqrt().max(1)
    }

    /// Returns whether the depot has a place in plans: it is up, expected, or may come back.
    fn counts(&self, depot: &Depot) -> bool {
        depot.is_expected() || depot.is_hoped_for(&self.settings)
    }

    /// Returns what the depots offer, lost ones only under a hopeful belief, without the space that
    /// is kept.
    pub(crate) fn supplies(&self, belief: Belief) -> Supplies {
        let spread = self.spread();
        let counted = self.depots.iter().filter(|(_, depot)| self.counts(depot));
        let curve = |id: &DepotId, depot: &Depot| {
            let rate = belief.rate(depot, spread);
            let mut curve = match (depot.is_expected(), belief) {
                (true, _) => Curve::constant(rate),
                (false, Belief::Hopeful) => {
                    let mut curve = Curve::constant(rate);
                    curve.close(self.now, depot.may_be_back_at(self.now));
                    curve
                }
                (false, _) => Curve::constant(ByteRate::ZERO),
            };
            self.raise(*id, depot, &mut curve);
            let (from, until) = (self.now, self.now + HOURS_AHEAD);
            depot.close(&mut curve, from, until);
            curve
        };
        Supplies {
            depots: counted
                .map(|(id, depot)| {
                    let mut supply = Supply::new(curve(id, depot), depot.space());
                    supply.keep(self.index.kept(*id) + self.index.held(*id));
                    supply
                })
                .collect(),
            way_out: self.settings.egress.map(Curve::constant),
            pace: None,
        }
    }

    /// Returns the place of each depot that counts among the supplies.
    pub(crate) fn places(&self) -> Places {
        let counted = self.depots.iter().filter(|(_, depot)| self.counts(depot));
        counted.map(|(id, _)| *id).zip(0..).collect()
    }

    /// Returns what a request still has to send: whole to its destination, and when staged in
    /// fragments to the depots that `uses` accepts.
    pub(crate) fn load(
        &self,
        request: &Request,
        places: &Places,
        route: Route,
        uses: impl Fn(usize) -> bool,
    ) -> Load {
        let place = |lane: usize| Some(*places.get(&request.lanes[lane].depot)? as usize);
        let bytes = request.replica.unsafe_bytes();
        let there = request
            .depot_lanes()
            .filter(|&lane| self.can_use(request, lane));
        let stands_in = self.stands_in(request, there.count());
        let destination = request.lead().filter(|_| request.is_safe_whole());
        let destination = (destination.or(stands_in)).filter(|&lane| !request.is_barred(lane));
        let whole = destination.and_then(|lane| {
            let chunks = request.replica.room_count(lane);
            let left = request.spec.chunk_size.times(chunks.into()).min(bytes);
            let lane = Lane {
                quota: request.quota_bytes(lane),
                ..Lane::new(place(lane)?, left, request.spec.chunk_size)
            };
            let code = request.code_now();
            Some(Whole { lane, code })
        });
        let lanes = request.depot_lanes();
        let lanes = lanes.filter(|&lane| uses(lane) && !request.is_barred(lane));
        let lanes = lanes.filter(|&lane| stands_in.is_none() || self.can_use(request, lane));
        let lanes = lanes.filter_map(|lane| {
            Some(Lane {
                supply: place(lane)?,
                room: request.share_of_domain(lane, request.replica.room(lane)),
                quota: request.quota_bytes(lane),
                piece: request.piece(lane),
                is_pinned: request.is_pinned(lane) || stands_in.is_some(),
            })
        });
        let rate_max = request.wishes.rate_max;
        let shut = self.shut(request, |depot| Some(*places.get(&depot)? as usize));
        let (bytes, lanes, whole) = match (route, whole) {
            (Route::Direct, Some(Whole { lane, .. })) => {
                (bytes, vec![Lane::new(lane.supply, bytes, lane.piece)], None)
            }
            (Route::Direct, None) => (bytes, Vec::new(), None),
            (Route::Staged, whole) => (request.replica.missing_bytes(), lanes.collect(), whole),
        };
        Load {
            bytes,
            lanes,
            whole,
            rate_max,
            shut,
        }
    }

    /// Returns what the request still has to send at present.
    pub(crate) fn load_now(&self, request: &Request, places: &Places) -> Load {
        self.load(request, places, request.route, |place| {
            request.lanes[place].is_active
        })
    }

    /// Begins a look at everything.
    pub(crate) fn begin_sweep(&self) -> Sweep {
        let spread = self.spread();
        let is_certain = |depot: &Depot| {
            let rate = |belief: Belief| belief.rate(depot, spread);
            !self.counts(depot)
                || (depot.is_expected() && rate(Belief::Hopeful) == rate(Belief::P10))
        };
        let scene = |belief| Scene {
            now: self.now,
            supplies: self.supplies(belief),
        };
        let slow = self.supplies(Belief::P10);
        Sweep {
            goes_on: self.now,
            after: None,
            middle: self.supplies(Belief::P50),
            fast: self.supplies(Belief::P90),
            promised: Promised {
                at: self.now,
                is_stale: false,
                places: self.places(),
                careful: Scene {
                    now: self.now,
                    supplies: slow.clone(),
                },
                hopeful: (!self.depots.values().all(is_certain)).then(|| scene(Belief::Hopeful)),
            },
            slow,
        }
    }

    /// Ages what is known of every link until now.
    pub(crate) fn look_at_links(&mut self) {
        let all: Vec<DepotId> = self.depots.keys().copied().collect();
        for id in all {
            self.look_at_link(id);
        }
    }

    /// Ages what is known of the link to one depot.
    pub(crate) fn look_at_link(&mut self, id: DepotId) {
        if let Some(depot) = self.depots.get_mut(&id) {
            depot.link.look(self.now, &self.settings);
        }
    }

    /// Returns the next request of a sweep.
    pub(crate) fn next_in(&self, sweep: &Sweep) -> Option<Urgency> {
        self.index.after(sweep.after).next()
    }

    /// Forecasts when a request ends after more urgent ones; a waiting one uses no supplies.
    pub(crate) fn look_at(&mut self, sweep: &mut Sweep, id: RequestId) -> Option<Fares> {
        sweep.give_back(&self.space_of(id, sweep.places()));
        self.review_lead(id);
        let request = self.requests.get(&id)?;
        let fares = sweep.fares(self.load_now(request, sweep.places()), self.now);
        let finish = fares.forecast();
        let is_due = fares.middle.moves_at(self.now);
        let request = self.requests.get_mut(&id)?;
        (request.finish, request.is_due) = (finish, is_due);
        request.due.straight = fares.straight(request, sweep.places());
        fares.keep(request, sweep.places());
        let is_counted = !request.is_paused();
        self.keep_account(id, sweep.after.is_none());
        is_counted.then_some(fares)
    }

    /// Passes over the request: the sweep goes on to the next one.
    pub(crate) fn pass(&self, sweep: &mut Sweep, urgency: Urgency, fares: Option<&Fares>) {
        sweep.after = Some(urgency);
        if let Some((request, fares)) = self.requests.get(&urgency.request).zip(fares) {
            sweep.take(fares, request);
        }
    }

    /// Ends a look at everything: what is left is for newcomers.
    pub(crate) fn end_sweep(&mut self, sweep: Sweep) {
        self.promised = Some(sweep.promised);
    }

    /// Forecasts everything at once, as long as that is quick.
    pub(crate) fn look_ahead(&mut self) {
        if self.index.moving() > QUICK {
            return;
        }
        let mut sweep = self.begin_sweep();
        while let Some(urgency) = self.next_in(&sweep) {
            let fares = self.look_at(&mut sweep, urgency.request);
            self.pass(&mut sweep, urgency, fares.as_ref());
        }
        self.end_sweep(sweep);
    }

    /// Returns what would be left for a newcomer if another request had this deadline. Visits every
    /// request that moves.
    pub(crate) fn left_with(&self, other: RequestId, deadline: Timestamp) -> Promised {
        let mut promised = self.begin_sweep().promised;
        for urgency in self.index.after(None) {
            let Some(request) = self.requests.get(&urgency.request) else {
                continue;
            };
            promised.give_back(&self.space_of(urgency.request, &promised.places));
            if !request.is_leftover && !request.is_paused() {
                let load = self.load_now(request, &promised.places);
                let is_other = urgency.request == other;
                let by = if is_other { deadline } else { urgency.deadline };
                promised.promise(&load, by);
            }
        }
        promised
    }

    /// Returns the capacity left for newcomers: now if that is quick, else at the last full look.
    pub(crate) fn left_for_newcomers(&mut self) -> Promised {
        let is_fresh = self.promised.as_ref().is_some_and(|promised| {
            !promised.is_stale && self.now.since(promised.at) < PROMISED_AGE_MAX
        });
        if !is_fresh {
            self.look_ahead();
        }
        let promised = self.promised.take();
        let mut promised = promised.unwrap_or_else(|| self.begin_sweep().promised);
        promised.careful.now = self.now;
        if let Some(hopeful) = &mut promised.hopeful {
            hopeful.now = self.now;
        }
        promised
    }

    /// Returns the plan's margin before the deadline: a twentieth of what is left, within limits.
    pub(crate) fn margin(&self, deadline: Timestamp) -> Duration {
        const LEAST: Duration = Duration::from_secs(1);
        const MOST: Duration = Duration::from_secs(60);
        let left = deadline.since(self.now);
        (left / 20).clamp(LEAST, MOST).min(left / 2)
    }
}
