//! Views for people and drivers.

use posthaste_types::RequestId;

use crate::{
    Mind,
    contract::{ArrivalView, DepotState, SourceShareView, SourceView},
    state,
    state::{Arrival, Near, Outward, Release, SourceLane, State},
};

impl Mind {
    /// Returns one stage-in; none if it is unknown.
    #[must_use]
    pub fn arrival(&self, id: RequestId) -> Option<ArrivalView> {
        let known = self.state.arrivals.requests.get(&id);
        known.map(|arrival| view_arrival(&self.state, id, arrival))
    }

    /// Returns every known stage-in, in the order of their numbers.
    pub fn stage_ins(&self) -> impl Iterator<Item = ArrivalView> + '_ {
        let known = self.state.arrivals.requests.iter();
        known.map(|(id, arrival)| view_arrival(&self.state, *id, arrival))
    }

    /// Returns every registered source.
    pub fn sources(&self) -> impl Iterator<Item = SourceView> + '_ {
        self.state
            .arrivals
            .sources
            .iter()
            .map(|(id, source)| SourceView {
                source: *id,
                name: source.name.clone(),
                state: source.state,
                rates: source.link.believed(self.state.now, &self.state.settings),
                knowledge: source.link.knowledge(self.state.now, &self.state.settings),
                measured_at: source.link.path().measured_at(),
                transfers: source.link.path().samples().0,
                score: source.link.path().score(),
            })
    }
}

fn view_arrival(state: &State, id: RequestId, arrival: &Arrival) -> ArrivalView {
    let outward = state.arrivals.outward.get(&id);
    let purse = arrival.purse.as_deref();
    ArrivalView {
        request: id,
        spec: arrival.spec.clone(),
        state: arrival.state,
        paused: arrival.pause().cloned(),
        goes_out: outward.is_some(),
        releases: outward.is_some_and(Outward::waits),
        source_kept: outward.is_some_and(|outward| outward.release == Release::Kept),
        of: outward.and_then(|outward| outward.of),
        at_risk: arrival.is_in_danger(),
        missed: arrival.missed
            && arrival
                .arrived_at
                .is_none_or(|at| at > arrival.spec.deadline),
        submitted: arrival.submitted,
        begin_by: arrival.begin_by,
        begun_at: arrival.begun_at,
        arrived_at: arrival.arrived_at,
        finish: arrival.finish,
        chunks: arrival.chunks(),
        binding: arrival.binding.clone(),
        chunks_here: if arrival.arrived_at.is_some() {
            arrival.chunks()
        } else {
            arrival.here.len()
        },
        bytes_here: arrival.bytes_here,
        duplicates: arrival.duplicates,
        budget_micro_usd: purse.and_then(|purse| purse.budget),
        spent_micro_usd: purse.map_or(0, |purse| purse.spent),
        cost_micro_usd: purse.map_or(0, |purse| purse.spent.saturating_add(purse.coming)),
        left_out: arrival.left_out.clone(),
        shares: arrival
            .lanes
            .iter()
            .map(|lane| share(state, arrival, lane))
            .collect(),
    }
}

pub(crate) fn share(state: &State, arrival: &Arrival, lane: &SourceLane) -> SourceShareView {
    let source = state.arrivals.sources.get(&lane.source);
    let rates = source.map(|source| source.link.believed(state.now, &state.settings));
    SourceShareView {
        source: lane.source,
        name: state::stage_ins::name_of_source(state, lane.source),
        state: source.map_or(DepotState::Unknown, |source| source.state),
        is_gone: lane.is_gone,
        arrived: lane.arrived,
        bytes: lane.bytes,
        in_flight: lane.in_flight,
        holds: arrival
            .near_as(lane.source)
            .map_or(lane.holds, Near::missing),
        alone: lane.alone,
        rates: rates.unwrap_or_else(|| state.settings.prior.quantiles(None)),
        near: lane.near,
    }
}
