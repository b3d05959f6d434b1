//! Oracle: a scenario's true future as a problem for a planner that knows it.
//!
//! The world's course does not depend on the policy. So it is played once without decisions, and
//! the rate of each path in each second becomes a link's capacity. The requests a solver then keeps
//! are those a clairvoyant keeps: the reference of the deadline benchmark.

mod alone;

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use posthaste_core::{Settings, contract::RequestSpec};
use posthaste_plan::horizon::{Demand, Grid, Link, Node, Price, Problem};
use posthaste_solve::SolveError;
use posthaste_types::{Bytes, DepotId, RequestId};

use crate::{Report, Rival, Scenario, driver, world::Condition};

/// Length of slots between releases and deadlines.
const STEP: Duration = Duration::from_secs(15);

/// True future of a scenario with a seed.
#[derive(Debug, Clone)]
pub struct Prophecy {
    /// Problem of all requests that could be safe in time if each were the only one, with the
    /// links' capacities. For depots that will lose their data, only this is known, so the solution
    /// is a bound, not a promise.
    pub problem: Problem,
    /// Request of each demand.
    pub requests: Vec<RequestId>,
    /// Problem of the same world if no site ever went away, with a demand for each request in the
    /// order of [`Self::asked`]. None if no site goes away.
    pub steady: Option<Problem>,
    /// All requests, in the order of submission.
    pub asked: Vec<RequestId>,
}

/// Observations of a world without decisions.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// Rates of each site's path, each with the second it starts at; none while the site was away.
    pub(crate) rates: Vec<(Duration, Vec<u64>)>,
    /// Absences of sites, in the order they began.
    pub(crate) absences: Vec<Absence>,
}

/// Span of time without a site.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Absence {
    /// Place of the site among all sites.
    pub(crate) place: usize,
    pub(crate) from: Duration,
    /// End of the absence; the end of time while the site is away.
    pub(crate) until: Duration,
    /// Loss of all data during the absence.
    pub(crate) is_wiped: bool,
}

impl Seen {
    /// Records that a site went away or came back.
    pub(crate) fn on_condition(&mut self, place: usize, now: Duration, condition: Condition) {
        match (self.absence_of(place), condition) {
            (None, Condition::Dead | Condition::Vanished | Condition::Hung) => {
                self.absences.push(Absence {
                    place,
                    from: now,
                    until: Duration::MAX,
                    is_wiped: false,
                });
            }
            (Some(absence), Condition::Well) => absence.until = now,
            (None, Condition::Well)
            | (Some(_), Condition::Dead | Condition::Vanished | Condition::Hung) => {}
        }
    }

    /// Records that a site that comes back is empty.
    pub(crate) fn on_wiped(&mut self, place: usize) {
        if let Some(absence) = self.absence_of(place) {
            absence.is_wiped = true;
        }
    }

    /// Returns the observations as if no site had gone. During an absence the path keeps its
    /// earlier rate, or its first one.
    fn steady(&self) -> Self {
        let mut steady = Self {
            rates: self.rates.clone(),
            absences: Vec::new(),
        };
        let sites = self.rates.first().map_or(0, |(_, rates)| rates.len());
        for place in 0..sites {
            let gone = |at: Duration| {
                let mut absences = self.absences.iter();
                absences.any(|one| one.place == place && one.from <= at && at < one.until)
            };
            let mut here = self.rates.iter().filter(|(at, _)| !gone(*at));
            let mut before = here.next().map_or(0, |(_, rates)| rates[place]);
            for (at, rates) in &mut steady.rates {
                if gone(*at) {
                    rates[place] = before;
                }
                before = rates[place];
            }
        }
        steady
    }

    /// Returns the current absence of a site.
    fn absence_of(&mut self, place: usize) -> Option<&mut Absence> {
        let mut absences = self.absences.iter_mut();
        absences.find(|absence| absence.place == place && absence.until == Duration::MAX)
    }
}

/// Result of one policy.
#[derive(Debug, Clone)]
pub struct Score {
    /// Report of the run.
    pub report: Report,
    /// Every depot and destination that received data of a request.
    pub reached: BTreeSet<(RequestId, DepotId)>,
    /// Bytes that depots later forwarded to destinations. They don't contribute to a request's
    /// safety.
    pub delivered: Bytes,
    /// Bytes of each request, and the bytes its redundancy needs. A chunk delivered whole counts
    /// once; other chunks count with all their fragments.
    pub sizes: BTreeMap<RequestId, (Bytes, Bytes)>,
}

/// Plays a scenario with the mind, or with a baseline in its place. The checkers ignore baselines.
#[must_use]
pub fn score(scenario: &Scenario, seed: u64, rival: Option<Rival>) -> Score {
    driver::score(scenario, seed, rival, Settings::default())
}

/// Plays a scenario with the mind under other settings.
#[must_use]
pub fn score_with(scenario: &Scenario, seed: u64, settings: Settings) -> Score {
    driver::score(scenario, seed, None, settings)
}

/// Plays a scenario with a mind that is asked only for these requests.
#[must_use]
pub fn score_only(
    scenario: &Scenario,
    seed: u64,
    settings: Settings,
    only: BTreeSet<RequestId>,
) -> Score {
    driver::score_only(scenario, seed, settings, only)
}

/// Computes the true future of a scenario.
///
/// # Errors
/// Any error of the solver.
pub fn prophesy(scenario: &Scenario, seed: u64) -> Result<Prophecy, SolveError> {
    let world = driver::watch(scenario, seed);
    let end = Duration::from_secs(scenario.horizon_s);
    let requests = world.requests.iter();
    let marks: Vec<Duration> = requests
        .clone()
        .flat_map(|(_, at, by, _)| [*at, *by])
        .collect();
    let grid = Grid::with_marks(&marks, STEP, end);
    let node = |(capacity, domains): &(Bytes, Vec<u32>)| Node {
        space: *capacity,
        domains: domains.clone(),
        ..Node::default()
    };
    let centre = Node {
        way_out: world.egress.map(|egress| grid.volumes(egress)),
        ..Node::default()
    };
    let sites = world.capacities.iter().map(node);
    let link = |place: usize| Link {
        from: 0,
        to: place + 1,
        capacity: carried(&world.seen, place, &grid),
        price: Price::FREE,
    };
    let mut problem = Problem {
        nodes: std::iter::once(centre).chain(sites).collect(),
        links: (0..world.capacities.len()).map(link).collect(),
        demands: requests
            .clone()
            .map(|(_, at, by, spec)| demand(spec, *at, *by))
            .collect(),
        grid,
        ..Problem::default()
    };
    let (mut demands, mut known) = (Vec::new(), Vec::new());
    for (demand, (request, ..)) in problem.demands.iter().zip(requests) {
        let last = alone::last_moment(&problem, demand, &world.seen.absences, world.unnoticed)?;
        // A request that can't be safe even alone is infeasible for every policy.
        if let Some(by) = last {
            demands.push(Demand {
                offload_by: Some(by),
                ..demand.clone()
            });
            known.push(*request);
        }
    }
    let steady = (!world.seen.absences.is_empty()).then(|| {
        let seen = world.seen.steady();
        let mut steady = problem.clone();
        for (place, link) in steady.links.iter_mut().enumerate() {
            link.capacity = carried(&seen, place, &steady.grid);
        }
        steady
    });
    problem.demands = demands;
    Ok(Prophecy {
        steady,
        asked: world
            .requests
            .iter()
            .map(|(request, ..)| *request)
            .collect(),
        problem,
        requests: known,
    })
}

/// Returns a request as a demand. Depot numbers are node numbers, after the centre's.
fn demand(spec: &RequestSpec, at: Duration, by: Duration) -> Demand {
    let place = |depot: DepotId| depot.get() as usize;
    let via = spec
        .via
        .iter()
        .filter(|depot| !spec.destinations.contains(depot));
    Demand {
        source: 0,
        // If losses must be survived, a whole copy at the destination does not suffice.
        sink: (spec.destinations.first().copied())
            .filter(|_| spec.code.parity() == 0)
            .map(place),
        bytes: spec.bytes,
        code: spec.code,
        held: Vec::new(),
        release: at,
        offload_by: Some(by),
        deliver_by: None,
        not_before: None,
        via: via.copied().map(place).collect(),
        weight: 1,
        budget: None,
        rate_max: None,
        lent: Vec::new(),
        pinned: Vec::new(),
    }
}

/// Returns the bytes a path carries in each slot.
fn carried(seen: &Seen, place: usize, grid: &Grid) -> Vec<Bytes> {
    let last = grid.start(grid.slots());
    let ends = seen.rates.iter().skip(1).map(|(at, _)| *at).chain([last]);
    let mut volumes = vec![0u128; grid.slots()];
    let mut slot = 0;
    for ((from, rates), to) in seen.rates.iter().zip(ends) {
        let mut from = *from;
        while from < to && slot < volumes.len() {
            let until = to.min(grid.start(slot + 1));
            let span = until.saturating_sub(from).as_micros();
            volumes[slot] += u128::from(rates[place]) * span;
            from = until;
            if until == grid.start(slot + 1) {
                slot += 1;
            }
        }
    }
    let bytes = |volume: u128| Bytes::new(u64::try_from(volume / 1_000_000).unwrap_or(u64::MAX));
    volumes.into_iter().map(bytes).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn secs(secs: u64) -> Duration {
        Duration::from_secs(secs)
    }

    #[test]
    fn what_paths_carry_is_summed_by_slot() {
        let seen = Seen {
            rates: vec![
                (secs(0), vec![10]),
                (secs(3), vec![0]),
                (secs(4), vec![100]),
            ],
            absences: Vec::new(),
        };
        let carried = carried(&seen, 0, &Grid::even(secs(2), 3));
        assert_eq!(carried, [20, 10, 200].map(Bytes::new));
    }

    #[test]
    fn a_path_to_a_site_that_stays_carries_what_it_did_before() {
        let absence = |place, from, until| Absence {
            place,
            from: secs(from),
            until: secs(until),
            is_wiped: false,
        };
        let seen = Seen {
            rates: vec![
                (secs(0), vec![0, 7]),
                (secs(1), vec![10, 7]),
                (secs(3), vec![0, 7]),
                (secs(4), vec![0, 0]),
                (secs(5), vec![20, 0]),
            ],
            // The last site never comes back.
            absences: vec![absence(0, 0, 1), absence(0, 3, 5), absence(1, 4, u64::MAX)],
        };
        let steady = seen.steady();
        let expected = [[10, 7], [10, 7], [10, 7], [10, 7], [20, 7]].map(Vec::from);
        let rates = steady.rates.into_iter().map(|(_, rates)| rates);
        assert_eq!(rates.collect::<Vec<_>>(), expected);
        assert!(steady.absences.is_empty());
    }
}
