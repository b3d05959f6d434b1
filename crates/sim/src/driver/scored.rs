//! Runs that are compared: the mind or a rival, and the world with nobody deciding.

use std::{collections::BTreeSet, time::Duration};

use posthaste_core::{Settings, contract::RequestSpec};
use posthaste_types::{ByteRate, Bytes, RequestId};

use super::{Run, START};
use crate::{
    Scenario,
    deadlines::{Score, Seen},
    rivals::{Decider, Rival},
    world::Condition,
};

/// What a world is that was watched.
pub(crate) struct Watched {
    pub(crate) seen: Seen,
    pub(crate) egress: Option<ByteRate>,
    /// Of each site: what it has room for, and a number it shares with what it fails together with.
    pub(crate) capacities: Vec<(Bytes, u32)>,
    /// What was asked, when, since the start, and by when it must be safe.
    pub(crate) requests: Vec<(RequestId, Duration, Duration, RequestSpec)>,
}

/// Plays a scenario with the mind, or a rival in its place.
pub(crate) fn score(
    scenario: &Scenario,
    seed: u64,
    rival: Option<Rival>,
    settings: Settings,
) -> Score {
    let mut run = Run::new(scenario, seed, settings);
    run.reached = Some(BTreeSet::new());
    if let Some(rival) = rival {
        run.replace(rival);
    }
    run.set_up(seed);
    run.play();
    let reached = run.reached.take().unwrap_or_default();
    Score {
        report: run.into_report(seed),
        reached,
    }
}

/// Plays a scenario with nobody deciding and notes what the paths would have carried.
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

/// Numbers of failure domains from one: the place of the first depot in each.
fn domains(scenario: &Scenario) -> impl Iterator<Item = u32> {
    let all = scenario.depots.iter();
    (1..).zip(all).map(|(number, plan)| {
        let same = |other: &&crate::scenario::DepotPlan| {
            plan.domain.is_some() && other.domain == plan.domain
        };
        let first = (1..).zip(&scenario.depots).find(|(_, other)| same(other));
        first.map_or(number, |(first, _)| first)
    })
}

impl Run<'_> {
    /// Lets a rival decide. The checkers keep silent then: they hold the mind to its promises.
    fn replace(&mut self, rival: Rival) {
        self.mind = Some(Decider::rival(rival));
        self.checkers.mute();
    }

    /// Notes what the paths carry now, if anybody watches.
    pub(super) fn see(&mut self) {
        let Some(seen) = &mut self.seen else { return };
        let rate = |place: usize| match self.world.sites[place].condition() {
            Condition::Well => self.world.rate(place),
            Condition::Dead | Condition::Vanished | Condition::Hung => 0,
        };
        let rates: Vec<u64> = (0..self.world.sites.len()).map(rate).collect();
        if seen.rates.last().is_none_or(|(_, last)| *last != rates) {
            seen.rates.push((self.now.since(START), rates));
        }
    }
}
