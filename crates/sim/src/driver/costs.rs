//! Costs of stage-ins: reports to the mind, and the counted costs of its commands.

use posthaste_core::contract::{ArrivalView, SourcePrice, StageInNews};
use posthaste_types::{Bytes, ChunkIndex, DepotId, RequestId, SourceId};

use super::Run;
use crate::scenario::StageInPlan;

impl Run<'_> {
    /// Returns the budget of a stage-in and the prices of its sources, if the scenario has either.
    pub(super) fn costs_of(&self, plan: &StageInPlan, sources: &[SourceId]) -> Option<StageInNews> {
        let prices = self.world.origins.iter().map(|origin| origin.price);
        let costs = |price: &SourcePrice| price.get_micro_usd + price.egress_micro_usd > 0;
        let prices = prices.filter(|price| costs(price) && sources.contains(&price.source));
        let prices: Vec<SourcePrice> = prices.collect();
        let budget = plan.budget_usd.map(|usd| usd.micro());
        let is_said = budget.is_some() || !prices.is_empty();
        is_said.then_some(StageInNews::Costs { budget, prices })
    }

    /// Counts the cost of reading a chunk from a source, to the centre or to a depot near it.
    pub(super) fn count_reading(
        &mut self,
        request: RequestId,
        source: SourceId,
        chunk: ChunkIndex,
        to: Option<DepotId>,
    ) {
        let bytes = self.checkers.arrivals.bytes_of(request, chunk);
        let near = self.world.origin(source);
        let near = near.and_then(|place| self.world.origins[place].near);
        let kept = &mut self.checkers.kept;
        let read = match near {
            Some(depot) => kept.on_given(request, depot, bytes),
            None => kept.on_read(request, source, bytes),
        };
        let stored = to.map_or(Ok(()), |to| kept.on_sent_on(request, to, bytes));
        for found in [read, stored] {
            self.checkers.note(self.now, found);
        }
    }

    /// Returns whether the remaining budget pays for the missing chunks from any source.
    pub(super) fn is_paid(&self, view: &ArrivalView) -> bool {
        let Some(budget) = view.budget_micro_usd else {
            return true;
        };
        let missing = view.spec.bytes - view.bytes_here;
        let chunks = u64::from(view.chunks - view.chunks_here);
        let sources = view.spec.sources.iter();
        let places = sources.filter_map(|source| self.world.origin(*source));
        let dearest = places.map(|place| {
            let price = self.world.origins[place].price;
            let bytes = price.reading(missing, (0, 1)).micro_usd();
            let gets = price.reading(Bytes::ZERO, (1, 1)).micro_usd();
            // Each chunk is rounded up.
            bytes + (gets + 1) * chunks
        });
        view.spent_micro_usd + dearest.max().unwrap_or(0) <= budget
    }
}
