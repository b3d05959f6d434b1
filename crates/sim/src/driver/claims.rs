//! The mind's claims about data, compared with the world.

use std::time::Duration;

use posthaste_core::contract::RequestSpec;
use posthaste_types::{ChunkIndex, DepotId, RequestId};

use super::Run;
use crate::world::Site;

/// Tolerance for a depot that goes or comes close to its hours, the same as the mind's.
const HOURS_SLACK: Duration = Duration::from_secs(60);

impl Run<'_> {
    /// Compares a claim of safety with the world. A depot that is gone counts until the mind can
    /// know.
    pub(super) fn check_claim(&mut self, request: RequestId, losses: u8, is_release: bool) {
        // A depot keeps its hours if it goes shortly before they end, or comes shortly after they
        // begin.
        let around = [self.now - HOURS_SLACK, self.now, self.now + HOURS_SLACK];
        let is_away = |site: &Site| !around.iter().all(|at| site.hours.is_open(*at));
        let counts = |site: &Site| site.is_reachable() || !site.is_told_gone || is_away(site);
        let weakest = self.world.weakest(request, losses, counts);
        self.check_domains(request, losses, counts);
        // A user that pulled and verified the dataset needs no depot.
        let weakest = weakest.filter(|_| !self.pulled.contains(&request));
        let found = self
            .checkers
            .releases
            .on_claim(request, is_release, weakest);
        self.checkers.note(self.now, found);
        self.checkers.releases.on_safe(request);
        if !self.pulled.contains(&request) {
            self.check_pins(request);
        }
    }

    /// Checks that a safe dataset survives the loss of any one failure domain of its depots.
    fn check_domains(&mut self, request: RequestId, losses: u8, counts: impl Fn(&Site) -> bool) {
        let Some(spec) = self.world.specs.get(&request) else {
            return;
        };
        let (data, losses) = (spec.code.data(), losses.min(spec.code.parity()));
        let is_bound = self.checkers.domains.is_bound(request);
        if losses == 0 || !is_bound || self.pulled.contains(&request) {
            return;
        }
        for domain in &self.scenario.domains {
            let members = self.scenario.members(&domain.name).into_iter();
            let members: Vec<DepotId> = members.map(|place| self.world.sites[place].id).collect();
            let left = self
                .world
                .fewest(request, |site| counts(site) && !members.contains(&site.id));
            let claim = (request, losses, data);
            let found = self.checkers.domains.on_claim(claim, &domain.name, left);
            self.checkers.note(self.now, found);
        }
    }

    /// Checks that a safe dataset lies on every reachable depot that it is pinned to.
    fn check_pins(&mut self, request: RequestId) {
        let chunks = self
            .world
            .specs
            .get(&request)
            .map_or(0, RequestSpec::chunks);
        let lacks = |depot: DepotId| {
            let site = &self.world.sites[self.world.place(depot)?];
            let holds = |chunk: &ChunkIndex| site.has_any(request, *chunk);
            let mut chunks = (0..chunks).map(ChunkIndex::new);
            chunks
                .find(|chunk| !holds(chunk))
                .filter(|_| site.is_reachable())
        };
        let found = self.checkers.kept.on_safe(request, lacks);
        self.checkers.note(self.now, found);
    }
}

#[cfg(test)]
mod tests {
    use crate::{Fate, Scenario, simulate};

    /// Depots with the fragments of one request. The last one goes away with its data less than a
    /// minute before its hours end.
    const GOES_EARLY: &str = "name = \"goes-early\"\nsummary = \"\"\nhorizon_s = 30
        [[depot]]\nname = \"a\"\nrate_mib_per_s = 1\ncapacity_mib = 100
        [[depot]]\nname = \"b\"\nrate_mib_per_s = 2\ncapacity_mib = 100
        [[depot]]\nname = \"c\"\nrate_mib_per_s = 9\ncapacity_mib = 100\nhours = \"07-08:01\"
        [[request]]\nsize_mib = 10\ndeadline_s = 25\ncode = \"2+1\"
        [[fault]]\nat_s = 3\ndepot = \"c\"\nkind = \"offline\"";

    #[test]
    fn a_depot_that_goes_shortly_before_its_hours_end_still_counts() {
        let report = simulate(&Scenario::parse(GOES_EARLY).unwrap(), 1);
        assert!(report.is_clean(), "{}", report.to_text());
        assert_eq!(report.fates[0].1, Fate::Met, "{}", report.to_text());
    }
}
