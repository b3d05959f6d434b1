//! Runs that are compared: the mind or a rival, and the world with nobody deciding.

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

/// What a world is that was watched.
pub(crate) struct Watched {
    pub(crate) seen: Seen,
    pub(crate) egress: Option<ByteRate>,
    /// Of each site: what it has room for, and a number it shares with what it fails together with.
    pub(crate) capacities: Vec<(Bytes, Vec<u32>)>,
    /// What was asked, when, since the start, and by when it must be safe.
    pub(crate) requests: Vec<(RequestId, Duration, Duration, RequestSpec)>,
    /// How long a depot can be gone before everybody knows.
    pub(crate) unnoticed: Duration,
}

/// What is noted of a run that is scored.
#[derive(Debug, Default)]
pub(super) struct Noted {
    /// Where each request was sent.
    pub(super) reached: BTreeSet<(RequestId, DepotId)>,
    /// Chunks that came whole to a destination.
    pub(super) whole: BTreeSet<(RequestId, ChunkIndex)>,
    /// Bytes that depots sent on to destinations.
    pub(super) delivered: Bytes,
}

/// Plays a scenario with the mind, or a rival in its place.
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

/// Plays a scenario with the mind, of which it is asked nothing but these requests.
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

/// The failure domains of each depot: the places of theirs among those there are.
fn domains(scenario: &Scenario) -> impl Iterator<Item = Vec<u32>> {
    scenario.depots.iter().map(|plan| {
        let terms = plan.terms();
        let all = (0..).zip(&scenario.domains);
        let mine = all.filter(|(_, domain)| terms.domains().any(|name| name == domain.name));
        mine.map(|(number, _)| number).collect()
    })
}

impl Run<'_> {
    /// Plays to the end and counts.
    fn score(mut self, seed: u64) -> Score {
        self.noted = Some(Noted::default());
        self.set_up(seed);
        self.play();
        let noted = self.noted.take().unwrap_or_default();
        let sizes = self.world.specs.iter().map(|(request, spec)| {
            let needed = (0..spec.chunks()).map(|chunk| {
                let size = spec.chunk_bytes(chunk);
                if noted.whole.contains(&(*request, ChunkIndex::new(chunk))) {
                    size
                } else {
                    spec.code
                        .fragment_size(size)
                        .times(spec.code.total().into())
                }
            });
            (*request, (spec.bytes, needed.sum()))
        });
        Score {
            sizes: sizes.collect(),
            report: self.into_report(seed),
            reached: noted.reached,
            delivered: noted.delivered,
        }
    }

    /// Something is stored: a chunk that came whole is noted, if anybody counts.
    pub(super) fn on_stored(&mut self, send: Send, span: Duration) {
        let (_, request, chunk, fragment) = send;
        if let Some(noted) = &mut self.noted
            && fragment == FragmentIndex::WHOLE
        {
            noted.whole.insert((request, chunk));
        }
        self.tell_piece(send, span);
    }

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
        let now = self.now.since(START);
        if seen.rates.last().is_none_or(|(_, last)| *last != rates) {
            seen.rates.push((now, rates));
        }
        for (place, site) in self.world.sites.iter().enumerate() {
            seen.on_condition(place, now, site.condition());
        }
    }
}
