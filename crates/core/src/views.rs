//! Views for people and drivers.

use alloc::vec::Vec;
use posthaste_types::{ByteRate, Bytes, ChunkIndex, DepotId, FragmentIndex, RequestId, Timestamp};

use crate::{
    Mind,
    books::{Crossing, Depot, Release, Request, Route},
    contract::{
        Cost, DepotView, Forecast, PathView, Priority, RequestView, ShareView, Tally, TurnShare,
        TurnView,
    },
};

/// Month of storage, as stores bill it: 730 hours.
const MONTH_S: u64 = 730 * 3600;

impl Mind {
    /// Returns the time of the newest step.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.now
    }

    /// Returns one request; none if it is unknown.
    #[must_use]
    pub fn request(&self, id: RequestId) -> Option<RequestView> {
        self.requests.get(&id).map(|request| self.view(id, request))
    }

    /// Returns every known request, in the order of their numbers.
    pub fn requests(&self) -> impl Iterator<Item = RequestView> + '_ {
        self.requests
            .iter()
            .map(|(id, request)| self.view(*id, request))
    }

    /// Returns requests of which depots hold something, the newest first: those before one, or all.
    /// Each costs a look, whatever others there are.
    pub fn held_before(&self, before: Option<RequestId>) -> impl Iterator<Item = RequestId> + '_ {
        self.index.held_before(before)
    }

    /// Returns the name of a request's state, stage-out or stage-in; none if it is unknown.
    #[must_use]
    pub fn state_of(&self, id: RequestId) -> Option<&'static str> {
        let request = self.requests.get(&id).map(Request::state_name);
        let arrival = self.arrivals.requests.get(&id);
        request.or_else(|| arrival.map(|arrival| arrival.state_name()))
    }

    /// Returns whether all of it is wanted at its destinations by a moment that has not passed, and
    /// is not there yet.
    #[must_use]
    pub fn is_awaited(&self, id: RequestId) -> bool {
        self.requests.get(&id).is_some_and(|request| {
            let is_over = request.due.missed || request.due.whole_at.is_some();
            request.lead().is_some() && request.wishes.deliver_by.is_some() && !is_over
        })
    }

    /// Returns whether a request was safe and no longer is.
    #[must_use]
    pub fn is_unsafe_again(&self, id: RequestId) -> bool {
        let request = self.requests.get(&id);
        request.is_some_and(Request::is_unsafe_again)
    }

    /// Counts the requests that move. Costs nothing.
    #[must_use]
    pub fn moving(&self) -> usize {
        self.index.moving()
    }

    /// Returns a summary of everything. Visits every request once.
    #[must_use]
    pub fn tally(&self) -> Tally {
        let mut tally = Tally::default();
        let mut is_open =
            |state: (bool, bool), left: Bytes, by: Timestamp, finish: Option<Forecast>| {
                let (at_risk, missed) = state;
                tally.at_risk += u64::from(at_risk && !missed);
                tally.missed += u64::from(missed);
                tally.waiting += left;
                let slack = finish.map(|finish| by.slack_micros(finish.p90));
                tally.slack_micros = tally.slack_micros.into_iter().chain(slack).min();
            };
        for request in self.requests.values().filter(|request| request.is_moving()) {
            let state = (request.is_in_danger(), request.is_late());
            let left = request.replica.unsafe_bytes();
            is_open(state, left, request.spec.deadline, request.finish);
        }
        for (_, arrival) in self.arrivals.live() {
            let state = (arrival.is_in_danger(), arrival.missed);
            is_open(
                state,
                arrival.missing(),
                arrival.spec.deadline,
                arrival.finish,
            );
        }
        let released = self.requests.values().filter(|request| request.is_thin());
        let released = released.filter(|request| request.is_in_danger());
        tally.at_risk += released.count() as u64;
        for request in self.requests.values() {
            *tally.requests.entry(request.state_name()).or_default() += 1;
        }
        for arrival in self.arrivals.requests.values() {
            *tally.stage_ins.entry(arrival.state_name()).or_default() += 1;
        }
        tally
    }

    /// Returns whether sends of the request give way to all others on their paths. They do if it
    /// matters less than others, and neither its deadline nor its delivery is in danger.
    #[must_use]
    pub fn gives_way(&self, id: RequestId) -> bool {
        self.requests.get(&id).is_some_and(|request| {
            let is_late = request.at_risk || request.missed;
            request.wishes.priority < Priority::default() && !is_late && !request.due.at_risk
        })
    }

    /// Until when what is sent for a request is kept, by the deadline that it has now; none of one that is not known.
    #[must_use]
    pub fn kept_until(&self, id: RequestId) -> Option<Timestamp> {
        Some(self.requests.get(&id)?.kept_until())
    }

    /// The cap that was asked for on what moves straight for the request: of a stage-in, or of what goes to an address.
    #[must_use]
    pub fn rate_max_straight(&self, id: RequestId) -> Option<ByteRate> {
        self.arrivals.requests.get(&id)?.spec.rate_max
    }

    /// Returns when sends of the request must be complete for it to be on time. None if it can't be
    /// any more, or nothing is sent for it.
    #[must_use]
    pub fn due(&self, id: RequestId) -> Option<Timestamp> {
        let urgency = self.index.urgency(id)?;
        (!urgency.is_leftover).then_some(urgency.deadline)
    }

    /// Returns every registered depot.
    #[must_use]
    pub fn depots(&self) -> Vec<DepotView> {
        let all = self.depots.iter();
        all.map(|(id, depot)| self.view_of(*id, depot)).collect()
    }

    /// Returns one depot; none if it is not registered.
    #[must_use]
    pub fn depot(&self, id: DepotId) -> Option<DepotView> {
        let depot = self.depots.get(&id)?;
        Some(self.view_of(id, depot))
    }

    fn view_of(&self, id: DepotId, depot: &Depot) -> DepotView {
        DepotView {
            depot: id,
            name: depot.name.clone(),
            state: depot.state,
            capacity: depot.capacity,
            free: depot.space(),
            rate_p10: depot.link.rates.p10,
            rate_p50: depot.link.rates.p50,
            rate_p90: depot.link.rates.p90,
            drain: self.drain_view(id, depot),
        }
    }

    /// Returns the path to every registered depot, as forecast at `now`.
    #[must_use]
    pub fn paths(&self, now: Timestamp) -> Vec<PathView> {
        let view = |(id, depot): (&DepotId, &Depot)| {
            let (link, settings) = (&depot.link, &self.settings);
            let (transfers, probes) = link.path().samples();
            PathView {
                from: None,
                depot: *id,
                name: depot.name.clone(),
                rates: link.believed(now, settings),
                knowledge: link.knowledge(now, settings),
                measured_at: link.path().measured_at(),
                transfers,
                probes,
                probed_at: link.probed_at,
                score: link.path().score(),
                round_trip: depot.round_trip,
                ways: depot.fork.views(link, now, settings),
            }
        };
        self.depots.iter().map(view).collect()
    }

    /// Returns the known paths between depots, as forecast at `now`.
    #[must_use]
    pub fn crossings(&self, now: Timestamp) -> Vec<PathView> {
        let view = |(from, to, crossing): (DepotId, DepotId, &Crossing)| {
            let (path, settings) = (crossing.path(), &self.settings);
            let (transfers, probes) = path.samples();
            PathView {
                from: Some(self.name_of(from)),
                depot: to,
                name: self.name_of(to),
                rates: crossing.believed(now, settings),
                knowledge: crossing.knowledge(now, settings),
                measured_at: path.measured_at(),
                transfers,
                probes,
                probed_at: crossing.probed_at,
                score: path.score(),
                round_trip: crossing.round_trip,
                ways: Vec::new(),
            }
        };
        self.crossings.iter().map(view).collect()
    }

    /// Returns whether several ways to a depot are known.
    #[must_use]
    pub fn has_ways(&self, depot: DepotId) -> bool {
        self.depots
            .get(&depot)
            .is_some_and(|depot| !depot.fork.is_one())
    }

    /// Counts fragments on their way from one depot to another.
    #[must_use]
    pub fn pushing(&self) -> usize {
        self.pushes.len()
    }

    /// Counts requests of which destinations lack something.
    #[must_use]
    pub fn delivering(&self) -> usize {
        self.index.deliveries()
    }

    /// Returns `most` of the turns that requests take, in order; behind that of one if it is named.
    /// None if that one takes no turn.
    #[must_use]
    pub fn turns(&self, after: Option<RequestId>, most: usize) -> Option<Vec<TurnView>> {
        let after = match after {
            Some(id) => Some(self.index.urgency(id)?),
            None => None,
        };
        let turns = self.index.after(after).filter_map(|urgency| {
            let request = self.requests.get(&urgency.request)?;
            let lanes = request.lanes.iter().enumerate();
            let shares =
                lanes.filter(|&(place, lane)| lane.is_active && request.is_on_route(place));
            let shares = shares.map(|(place, lane)| TurnShare {
                depot: lane.depot,
                in_flight: lane.in_flight + lane.awaited,
                quota: lane.quota.is_some().then(|| request.quota_bytes(place)),
            });
            Some(TurnView {
                request: urgency.request,
                is_leftover: urgency.is_leftover,
                deadline: urgency.deadline,
                finish: request.finish,
                at_risk: request.is_in_danger(),
                is_paused: request.is_paused(),
                bytes_left: left(request),
                shares: shares.collect(),
            })
        });
        Some(turns.take(most).collect())
    }

    /// Returns what each depot holds of the request, verified when last heard of, whether it is up
    /// or not: pulls try all of them. Costs a visit of every chunk.
    #[must_use]
    pub fn holders(&self, id: RequestId) -> Vec<(DepotId, Vec<(ChunkIndex, FragmentIndex)>)> {
        let Some(request) = self.requests.get(&id) else {
            return Vec::new();
        };
        let lanes = request.lanes.iter().enumerate();
        lanes
            .filter(|&(place, _)| request.replica.stored(place).0 > 0)
            .map(|(place, lane)| (lane.depot, request.replica.held(place).collect()))
            .collect()
    }

    fn view(&self, id: RequestId, request: &Request) -> RequestView {
        let shares = request.lanes.iter().enumerate().map(|(place, lane)| {
            let (stored, stored_bytes) = request.replica.stored(place);
            ShareView {
                depot: lane.depot,
                active: lane.is_active && request.is_on_route(place),
                stored,
                stored_bytes,
                in_flight: lane.in_flight
                    + lane.awaited
                    + u32::try_from(self.pushes.to(lane.depot, Some(id)).count())
                        .unwrap_or(u32::MAX),
                reserved: self
                    .spaces
                    .get(lane.depot, id)
                    .map_or(Bytes::ZERO, |space| space.held),
            }
        });
        RequestView {
            request: id,
            spec: request.spec.clone(),
            wishes: (*request.wishes).clone(),
            pinned: request.uncommon.pinned.clone(),
            state: request.state,
            paused: request.pause().cloned(),
            at_risk: request.is_in_danger(),
            missed: request.is_late(),
            is_unsafe: request.is_unsafe_again(),
            chunks_out_of_reach: request.chunks_out_of_reach(),
            source_kept: matches!(request.release, Release::Kept | Release::Left),
            has_tried_release: request.has_tried_release(),
            purge_at: request.uncommon.purge_at,
            submitted: request.submitted,
            safe_at: request.safe_at,
            finish: request.finish,
            chunks_safe: request.replica.safe(),
            chunks_repaired: request.uncommon.repaired,
            duplicates: request.uncommon.duplicates,
            cost: self.cost(request),
            spent_micro_usd: request.spent_micro_usd,
            delivery: self.delivery_view(request),
            omissions: request.uncommon.omissions.clone(),
            shares: shares.collect(),
        }
    }

    /// Returns the cost of the request: stored data where it lies, and missing data where it is
    /// fed, by the forecast of each depot.
    pub(crate) fn cost(&self, request: &Request) -> Cost {
        let terms = |lane: usize| {
            let depot = self.depots.get(&request.lanes[lane].depot)?;
            Some((depot, depot.link.rates.p50.get()))
        };
        let fed = |lane: usize| request.lanes[lane].is_active && request.is_on_route(lane);
        let lanes = 0..request.lanes.len();
        let rates = lanes.clone().filter(|&lane| fed(lane)).filter_map(terms);
        let all: u64 = rates
            .fold(0u64, |sum, (_, rate)| sum.saturating_add(rate))
            .max(1);
        let missing = if request.is_moving() {
            left(request)
        } else {
            Bytes::ZERO
        };
        let to = request.lead_depot().and_then(|to| self.depots.get(&to));
        let places = to.map(|to| (to.name.as_str(), to.terms.domain.as_str()));
        let (mut cost, mut read) = (Cost::default(), 0u64);
        for lane in lanes {
            let Some((depot, rate)) = terms(lane) else {
                continue;
            };
            let share = u128::from(missing.get()) * u128::from(rate) / u128::from(all);
            let share = if fed(lane) {
                u64::try_from(share).unwrap_or(u64::MAX)
            } else {
                0
            };
            let bytes = request.replica.stored(lane).1 + Bytes::new(share);
            let month = depot.terms.cost(bytes, MONTH_S).micro_usd();
            let send = depot.terms.cost(bytes, 0).micro_usd();
            let requests = bytes.pieces(request.piece(lane).max(Bytes::new(1)));
            let puts = depot.prices.put().micro_usd().saturating_mul(requests);
            cost.send_micro_usd = cost
                .send_micro_usd
                .saturating_add(send)
                .saturating_add(puts);
            cost.month_micro_usd = cost.month_micro_usd.saturating_add(month - send);
            if !request.is_destination(lane) {
                let gets = depot.prices.get().micro_usd().saturating_mul(requests);
                let leaves = depot.prices.egress(places).of(bytes).micro_usd();
                read = read.saturating_add(gets).saturating_add(leaves);
            }
        }
        // Reading takes as many fragments of a chunk as rebuild it.
        let (data, total) = (request.spec.code.data(), request.spec.code.total().max(1));
        let read = (u128::from(read) * u128::from(data)).div_ceil(u128::from(total));
        cost.read_micro_usd = u64::try_from(read).unwrap_or(u64::MAX);
        cost
    }
}

/// Returns what still has to be sent of a request, by its route.
fn left(request: &Request) -> Bytes {
    match request.route {
        Route::Direct => request.replica.unsafe_bytes(),
        Route::Staged => request.replica.missing_bytes(),
    }
}
