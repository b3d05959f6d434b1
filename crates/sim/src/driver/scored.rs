//! Runs for comparison: the mind or a baseline, and the world without decisions.

use std::{collections::BTreeSet, time::Duration};

use posthaste_core::{Settings, contract::RequestSpec};
use posthaste_types::{ByteRate, Bytes, ChunkIndex, DepotId, FragmentIndex, RequestId};

use super::{PROBE_TIMEOUT, Run, START, sends::Send};
use crate::{
    Scenario,
    deadlines::{Score, Seen},
    rivals::{Decider, Rival},
    world::Condition,
};

/// Observed world.
pub(crate) struct Watched {
    pub(crate) seen: Seen,
    pub(crate) egress: Option<ByteRate>,
    /// Capacity of each site, and the numbers of its failure domains.
    pub(crate) capacities: Vec<(Bytes, Vec<u32>)>,
    /// Requests, each with its submission and deadline since the start.
    pub(crate) requests: Vec<(RequestId, Duration, Duration, RequestSpec)>,
    /// Longest time a depot can be gone before all drivers know.
    pub(crate) unnoticed: Duration,
}

/// Records of a run that is scored.
#[derive(Debug, Default)]
pub(super) struct Noted {
    /// Depots each request was sent to.
    pub(super) reached: BTreeSet<(RequestId, DepotId)>,
    /// Chunks that reached a destination whole.
    pub(super) whole: BTreeSet<(RequestId, ChunkIndex)>,
    /// Bytes that depots forwarded to destinations.
    pub(super) delivered: Bytes,
}

/// Plays a scenario with the mind, or with a baseline in its place.
pub(crate) fn score(
    scenario: &Scenario,
    seed: u64,
    rival: Option<Rival>,
    settings: Settings,
) -> Score {
    let mut run = Run::new(scenario, seed, settings);
    if let Some(rival) = rival {
        run.replace(rival);
    }
    run.score(seed)
}

/// Plays a scenario with a mind that is asked only for these requests.
pub(crate) fn score_only(
    scenario: &Scenario,
    seed: u64,
    settings: Settings,
    only: BTreeSet<RequestId>,
) -> Score {
    let mut run = Run::new(scenario, seed, settings);
    run.only = Some(only);
    run.score(seed)
}

/// Plays a scenario without decisions, and records the rates of its paths.
pub(crate) fn watch(scenario: &Scenario, seed: u64) -> Watched {
    let mut run = Run::new(scenario, seed, Settings::default());
    run.replace(Rival::Idle);
    run.seen = Some(Seen::default());
    run.set_up(seed);
    run.play();
    let views = run.mind.iter().flat_map(Decider::views);
    let requests = views.map(|view| {
        let (at, by) = (view.submitted.since(START), view.spec.deadline.since(START));
        (view.request, at, by, view.spec)
    });
    Watched {
        requests: requests.collect(),
        unnoticed: Duration::from_secs(scenario.probe_every_s) + PROBE_TIMEOUT,
        seen: run.seen.unwrap_or_default(),
        egress: scenario.egress().map(ByteRate::new),
        capacities: run
            .world
            .sites
            .iter()
            .map(|site| site.capacity)
            .zip(domains(scenario))
            .collect(),
    }
}

/// Returns the failure domains of each depot, as places among all domains.
fn domains(scenario: &Scenario) -> impl Iterator<Item = Vec<u32>> {
    scenario.depots.iter().map(|plan| {
        let terms = plan.terms();
        let all = (0..).zip(&scenario.domains);
        let mine = all.filter(|(_, domain)| terms.domains().any(|name| name == domain.name));
        mine.map(|(number, _)| number).collect()
    })
}

impl Run<'_> {
    /// Records a chunk that was stored whole, if the run is scored.
    pub(super) fn on_stored(&mut self, send: Send, span: Duration) {
        let (_, request, chunk, fragment) = send;
        if let Some(noted) = &mut self.noted
            && fragment == FragmentIndex::WHOLE
        {
            noted.whole.insert((request, chunk));
        }
        self.tell_piece(send, span);
    }

    /// Replaces the mind by a baseline. The checkers keep silent then, because they check the
    /// mind's promises.
    fn replace(&mut self, rival: Rival) {
        self.mind = Some(Decider::rival(rival));
        self.checkers.mute();
    }

    /// Records the current rates of the paths, if the world is watched.
    pub(super) fn see(&mut self) {
        let Some(seen) = &mut self.seen else { return };
        let rate = |place: usize| match self.world.sites[place].condition() {
            Condition::Well => self.world.rate(place),
            Condition::Dead | Condition::Vanished | Condition::Hung => 0,
        };
        let rates: Vec<u64> = (0..self.world.sites.len()).map(rate).collect();
        let now = self.now.since(START);
        if seen.rates.last().is_none_or(|(_, last)| *last != rates) {
            seen.rates.push((now, rates));
        }
        for (place, site) in self.world.sites.iter().enumerate() {
            seen.on_condition(place, now, site.condition());
        }
    }
}
