//! Views for people and drivers.

use alloc::vec::Vec;
use posthaste_types::{ByteRate, Bytes, ChunkIndex, DepotId, FragmentIndex, RequestId, Timestamp};

use crate::{
    Mind,
    contract::{
        DepotView, Encode, Forecast, PathView, Priority, RequestView, ShareView, Tally, TurnShare,
        TurnView,
    },
    decide, forecast,
    forecast::prices::left,
    state,
    state::{Crossing, Depot, Release, Request, State},
};

impl Mind {
    /// Returns whether the number is that of a stage-in.
    #[must_use]
    pub fn is_stage_in(&self, request: RequestId) -> bool {
        state::stage_ins::is_stage_in(&self.state, request)
    }

    /// Returns the number under which a request goes on from its depots to an address.
    #[must_use]
    pub fn goes_on_as(&self, of: RequestId) -> Option<RequestId> {
        state::onward::goes_on_as(&self.state, of)
    }

    /// Returns whether a user may let depots drop a request: it is delivered, or somebody pulled all
    /// of it and only destinations lack it.
    #[must_use]
    pub fn may_forget(&self, request: RequestId) -> bool {
        state::forget::may_forget(&self.state, request)
    }

    /// Returns whether a depot is lent for some request only below a load.
    #[must_use]
    pub fn heeds_load(&self, id: DepotId) -> bool {
        state::usable::heeds_load(&self.state, id)
    }

    /// Returns the time of the newest step.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.state.now
    }

    /// Returns one request; none if it is unknown.
    #[must_use]
    pub fn request(&self, id: RequestId) -> Option<RequestView> {
        self.state
            .requests
            .get(&id)
            .map(|request| view(&self.state, id, request))
    }

    /// Returns every known request, in the order of their numbers.
    pub fn requests(&self) -> impl Iterator<Item = RequestView> + '_ {
        self.state
            .requests
            .iter()
            .map(|(id, request)| view(&self.state, *id, request))
    }

    /// Returns requests of which depots hold something, the newest first: those before one, or all.
    /// Each costs a look, whatever others there are.
    pub fn held_before(&self, before: Option<RequestId>) -> impl Iterator<Item = RequestId> + '_ {
        self.state.index.held_before(before)
    }

    /// Returns the name of a request's state, stage-out or stage-in; none if it is unknown.
    #[must_use]
    pub fn state_of(&self, id: RequestId) -> Option<&'static str> {
        let request = self.state.requests.get(&id).map(Request::state_name);
        let arrival = self.state.arrivals.requests.get(&id);
        request.or_else(|| arrival.map(|arrival| arrival.state_name()))
    }

    /// Returns whether all of it is wanted at its destinations by a moment that has not passed, and
    /// is not there yet.
    #[must_use]
    pub fn is_awaited(&self, id: RequestId) -> bool {
        self.state.requests.get(&id).is_some_and(|request| {
            let is_over = request.due.missed || request.due.whole_at.is_some();
            request.lead().is_some() && request.wishes.deliver_by.is_some() && !is_over
        })
    }

    /// Returns whether a request was safe and no longer is.
    #[must_use]
    pub fn is_unsafe_again(&self, id: RequestId) -> bool {
        let request = self.state.requests.get(&id);
        request.is_some_and(Request::is_unsafe_again)
    }

    /// Counts the requests that move. Costs nothing.
    #[must_use]
    pub fn moving(&self) -> usize {
        self.state.index.moving()
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
        for request in self
            .state
            .requests
            .values()
            .filter(|request| request.is_moving())
        {
            let state = (request.is_in_danger(), request.is_late());
            let left = request.replica.unsafe_bytes();
            is_open(state, left, request.spec.deadline, request.finish);
        }
        for (_, arrival) in self.state.arrivals.live() {
            let state = (arrival.is_in_danger(), arrival.missed);
            is_open(
                state,
                arrival.missing(),
                arrival.spec.deadline,
                arrival.finish,
            );
        }
        let released = self
            .state
            .requests
            .values()
            .filter(|request| request.is_thin());
        let released = released.filter(|request| request.is_in_danger());
        tally.at_risk += released.count() as u64;
        for request in self.state.requests.values() {
            *tally.requests.entry(request.state_name()).or_default() += 1;
        }
        for arrival in self.state.arrivals.requests.values() {
            *tally.stage_ins.entry(arrival.state_name()).or_default() += 1;
        }
        tally
    }

    /// Returns whether sends of the request give way to all others on their paths. They do if it
    /// matters less than others, and neither its deadline nor its delivery is in danger.
    #[must_use]
    pub fn gives_way(&self, id: RequestId) -> bool {
        self.state.requests.get(&id).is_some_and(|request| {
            let is_late = request.at_risk || request.missed;
            request.wishes.priority < Priority::default() && !is_late && !request.due.at_risk
        })
    }

    /// Until when what is sent for a request is kept, by the deadline that it has now; none of one that is not known.
    #[must_use]
    pub fn kept_until(&self, id: RequestId) -> Option<Timestamp> {
        Some(self.state.requests.get(&id)?.kept_until())
    }

    /// The cap that was asked for on what moves straight for the request: of a stage-in, or of what goes to an address.
    #[must_use]
    pub fn rate_max_straight(&self, id: RequestId) -> Option<ByteRate> {
        self.state.arrivals.requests.get(&id)?.spec.rate_max
    }

    /// Returns when sends of the request must be complete for it to be on time. None if it can't be
    /// any more, or nothing is sent for it.
    #[must_use]
    pub fn due(&self, id: RequestId) -> Option<Timestamp> {
        let urgency = self.state.index.urgency(id)?;
        (!urgency.is_leftover).then_some(urgency.deadline)
    }

    /// Returns every registered depot.
    #[must_use]
    pub fn depots(&self) -> Vec<DepotView> {
        let all = self.state.depots.iter();
        all.map(|(id, depot)| view_of(&self.state, *id, depot))
            .collect()
    }

    /// Returns one depot; none if it is not registered.
    #[must_use]
    pub fn depot(&self, id: DepotId) -> Option<DepotView> {
        let depot = self.state.depots.get(&id)?;
        Some(view_of(&self.state, id, depot))
    }

    /// Returns the path to every registered depot, as forecast at `now`.
    #[must_use]
    pub fn paths(&self, now: Timestamp) -> Vec<PathView> {
        let view = |(id, depot): (&DepotId, &Depot)| {
            let (link, settings) = (&depot.link, &self.state.settings);
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
        self.state.depots.iter().map(view).collect()
    }

    /// Returns the known paths between depots, as forecast at `now`.
    #[must_use]
    pub fn crossings(&self, now: Timestamp) -> Vec<PathView> {
        let view = |(from, to, crossing): (DepotId, DepotId, &Crossing)| {
            let (path, settings) = (crossing.path(), &self.state.settings);
            let (transfers, probes) = path.samples();
            PathView {
                from: Some(state::names::name_of(&self.state, from)),
                depot: to,
                name: state::names::name_of(&self.state, to),
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
        self.state.crossings.iter().map(view).collect()
    }

    /// Returns whether several ways to a depot are known.
    #[must_use]
    pub fn has_ways(&self, depot: DepotId) -> bool {
        self.state
            .depots
            .get(&depot)
            .is_some_and(|depot| !depot.fork.is_one())
    }

    /// Counts fragments on their way from one depot to another.
    #[must_use]
    pub fn pushing(&self) -> usize {
        self.state.pushes.len()
    }

    /// Counts requests of which destinations lack something.
    #[must_use]
    pub fn delivering(&self) -> usize {
        self.state.index.deliveries()
    }

    /// Returns `most` of the turns that requests take, in order; behind that of one if it is named.
    /// None if that one takes no turn.
    #[must_use]
    pub fn turns(&self, after: Option<RequestId>, most: usize) -> Option<Vec<TurnView>> {
        let after = match after {
            Some(id) => Some(self.state.index.urgency(id)?),
            None => None,
        };
        let turns = self.state.index.after(after).filter_map(|urgency| {
            let request = self.state.requests.get(&urgency.request)?;
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
        let Some(request) = self.state.requests.get(&id) else {
            return Vec::new();
        };
        let lanes = request.lanes.iter().enumerate();
        lanes
            .filter(|&(place, _)| request.replica.stored(place).0 > 0)
            .map(|(place, lane)| (lane.depot, request.replica.held(place).collect()))
            .collect()
    }

    /// Returns the configured capacity of the uplink, and where chunks are coded.
    #[must_use]
    pub fn encoding(&self) -> (Encode, Option<ByteRate>) {
        (self.state.settings.encode, self.state.settings.egress)
    }
}

fn view_of(state: &State, id: DepotId, depot: &Depot) -> DepotView {
    DepotView {
        depot: id,
        name: depot.name.clone(),
        state: depot.state,
        capacity: depot.capacity,
        free: depot.space(),
        rate_p10: depot.link.rates.p10,
        rate_p50: depot.link.rates.p50,
        rate_p90: depot.link.rates.p90,
        drain: decide::drain::drain_view(state, id, depot),
    }
}

fn view(state: &State, id: RequestId, request: &Request) -> RequestView {
    let shares = request.lanes.iter().enumerate().map(|(place, lane)| {
        let (stored, stored_bytes) = request.replica.stored(place);
        ShareView {
            depot: lane.depot,
            active: lane.is_active && request.is_on_route(place),
            stored,
            stored_bytes,
            in_flight: lane.in_flight
                + lane.awaited
                + u32::try_from(state.pushes.to(lane.depot, Some(id)).count()).unwrap_or(u32::MAX),
            reserved: state
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
        cost: forecast::prices::cost(state, request),
        spent_micro_usd: request.spent_micro_usd,
        delivery: decide::delivery::promise::delivery_view(state, request),
        omissions: request.uncommon.omissions.clone(),
        shares: shares.collect(),
    }
}
