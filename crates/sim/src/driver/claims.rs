//! What the mind says of data, beside the world.

use posthaste_core::contract::RequestSpec;
use posthaste_types::{ChunkIndex, DepotId, RequestId};

use super::Run;
use crate::world::Site;

impl Run<'_> {
    /// Compares a claim of safety with the world. A depot that is gone counts until the mind can know.
    pub(super) fn check_claim(&mut self, request: RequestId, losses: u8, is_release: bool) {
        let is_away = |site: &Site| !site.hours.is_open(self.now);
        let counts = |site: &Site| site.is_reachable() || !site.is_told_gone || is_away(site);
        let weakest = self.world.weakest(request, losses, counts);
        // Whoever pulled and verified it needs no depot.
        let weakest = weakest.filter(|_| !self.pulled.contains(&request));
        let found = self
            .checkers
            .releases
            .on_claim(request, is_release, weakest);
        self.checkers.note(self.now, found);
        if !self.pulled.contains(&request) {
            self.check_pins(request);
        }
    }

    /// A dataset that is safe lies on every depot that it is pinned to, as far as that is there.
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
