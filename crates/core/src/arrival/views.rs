//! Views for people and drivers.

use posthaste_types::RequestId;

use crate::{
    Mind,
    books::{Arrival, Near, Outward, Release, SourceLane},
    contract::{ArrivalView, DepotState, SourceShareView, SourceView},
};

impl Mind {
    /// Returns one stage-in; none if it is unknown.
    #[must_use]
    pub fn arrival(&self, id: RequestId) -> Option<ArrivalView> {
        let known = self.arrivals.requests.get(&id);
        known.map(|arrival| self.view_arrival(id, arrival))
    }

    /// Returns every known stage-in, in the order of their numbers.
    pub fn stage_ins(&self) -> impl Iterator<Item = ArrivalView> + '_ {
        let known = self.arrivals.requests.iter();
        known.map(|(id, arrival)| self.view_arrival(*id, arrival))
    }

    /// Returns every registered source.
    pub fn sources(&self) -> impl Iterator<Item = SourceView> + '_ {
        self.arrivals.sources.iter().map(|(id, source)| SourceView {
            source: *id,
            name: source.name.clone(),
            state: source.state,
            rates: source.link.believed(self.now, &self.settings),
            knowledge: source.link.knowledge(self.now, &self.settings),
            measured_at: source.link.path().measured_at(),
            transfers: source.link.path().samples().0,
            score: source.link.path().score(),
        })
    }

    fn view_arrival(&self, id: RequestId, arrival: &Arrival) -> ArrivalView {
        let outward = self.arrivals.outward.get(&id);
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
                .map(|lane| self.share(arrival, lane))
                .collect(),
        }
    }

    fn share(&self, arrival: &Arrival, lane: &SourceLane) -> SourceShareView {
        let source = self.arrivals.sources.get(&lane.source);
        let rates = source.map(|source| source.link.believed(self.now, &self.settings));
        SourceShareView {
            source: lane.source,
            name: self.name_of_source(lane.source),
            state: source.map_or(DepotState::Unknown, |source| source.state),
            is_gone: lane.is_gone,
            arrived: lane.arrived,
            bytes: lane.bytes,
            in_flight: lane.in_flight,
            holds: arrival
                .near_as(lane.source)
                .map_or(lane.holds, Near::missing),
            alone: lane.alone,
            rates: rates.unwrap_or_else(|| self.settings.prior.quantiles(None)),
            near: lane.near,
        }
    }
}
