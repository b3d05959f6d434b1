//! Space reservations at depots: the driver's requests and the reports of their answers.

use std::time::Duration;

use posthaste_core::contract::{Input, SpaceNews};
use posthaste_types::{Bytes, DepotId, RequestId, Timestamp};

use super::{PROBE_TIMEOUT, Run};
use crate::world::{Condition, Site};

impl Run<'_> {
    pub(super) fn reserve_space(
        &mut self,
        request: RequestId,
        depot: DepotId,
        bytes: Bytes,
        until: Timestamp,
    ) {
        let Some(place) = self.world.place(depot) else {
            return;
        };
        let (now, spec) = (self.now, self.world.specs.get(&request));
        let reserves = self.scenario.depots[place].reserves;
        let found = self
            .checkers
            .spaces
            .on_reserve(reserves, bytes, until > now, spec);
        self.checkers.note(now, found);
        self.answer_of_space(request, depot, |site| {
            site.lapse(now);
            match site.reserve(request, bytes, until) {
                Ok(()) => SpaceNews::Granted { bytes, until },
                Err(most) => SpaceNews::Refused { most },
            }
        });
    }

    pub(super) fn release_space(&mut self, request: RequestId, depot: DepotId) {
        self.answer_of_space(request, depot, |site| {
            site.spaces.remove(&request);
            SpaceNews::Released
        });
    }

    fn answer_of_space(
        &mut self,
        request: RequestId,
        depot: DepotId,
        ask: impl FnOnce(&mut Site) -> SpaceNews,
    ) {
        let Some(site) = self.world.site(depot) else {
            return;
        };
        let latency = Duration::from_micros(site.latency_micros) * 2;
        let (span, news) = match site.condition() {
            Condition::Well => (latency, ask(site)),
            Condition::Hung | Condition::Vanished => (PROBE_TIMEOUT, SpaceNews::Failed),
            Condition::Dead => (latency, SpaceNews::Failed),
        };
        let told = Input::SpaceTold {
            request,
            depot,
            news,
        };
        self.tell_after(span, told);
    }

    /// Expires reservations of space, and checks that only requests which may still send keep any.
    pub(super) fn check_spaces(&mut self) {
        let now = self.now;
        self.world.sites.iter_mut().for_each(|site| site.lapse(now));
        let Some(mind) = &self.mind else {
            self.checkers.spaces.on_crash();
            return;
        };
        let sites = self.world.sites.iter();
        let kept = sites.flat_map(|site| {
            let is_well = site.condition() == Condition::Well && !site.is_told_gone;
            let kept = site.spaces.keys().filter(move |_| is_well);
            kept.map(|request| (site.id, *request))
        });
        let idle: Vec<(DepotId, RequestId)> = kept
            .filter(|(_, request)| !mind.is_moving(*request))
            .collect();
        let found = self.checkers.spaces.on_idle(now, &idle);
        self.checkers.note(now, found);
    }
}
