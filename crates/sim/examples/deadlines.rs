//! Plays families of scenarios with everybody who can decide: `deadlines FOLDER SEEDS` prints a line for
//! each family and policy, fields apart by tabs. What `cargo xtask bench deadlines` runs.

use std::{
    collections::BTreeSet,
    error::Error,
    path::PathBuf,
    sync::atomic::{AtomicU64, Ordering},
    thread,
};

use posthaste_core::Settings;
use posthaste_sim::{
    Fate, Rival, Scenario,
    deadlines::{Score, prophesy, score, score_with},
};
use posthaste_solve::{Effort, solve};
use posthaste_types::RequestId;

/// What the clairvoyant may spend on a seed.
const EFFORT: Effort = Effort {
    programs: 6,
    columns: 20_000,
};

/// What one who decides came to over all seeds of a family.
#[derive(Debug, Clone, Copy, Default)]
struct Tally {
    /// Requests the clairvoyant keeps, and of those, ones that were kept.
    feasible: u64,
    met: u64,
    /// All that were kept.
    met_any: u64,
    /// Requests that neither it nor the one who decides keeps, and of those, ones that were refused. Which
    /// of several are kept where not all can be is for each to choose.
    infeasible: u64,
    refused: u64,
    /// Requests the clairvoyant keeps that were refused.
    refused_feasible: u64,
    /// Bytes sent, stored, and of requests that were kept.
    sent: u128,
    stored: u128,
    kept_bytes: u128,
    /// Depots reached and requests that reached any.
    reached: u64,
    reaching: u64,
    violations: u64,
}

impl Tally {
    fn add(&mut self, other: Self) {
        self.feasible += other.feasible;
        self.met += other.met;
        self.met_any += other.met_any;
        self.infeasible += other.infeasible;
        self.refused += other.refused;
        self.refused_feasible += other.refused_feasible;
        self.sent += other.sent;
        self.stored += other.stored;
        self.kept_bytes += other.kept_bytes;
        self.reached += other.reached;
        self.reaching += other.reaching;
        self.violations += other.violations;
    }

    /// The fields of a line.
    #[expect(clippy::cast_precision_loss, reason = "shares for people")]
    fn line(&self) -> String {
        let share = |some: u64, all: u64| some as f64 / all.max(1) as f64;
        let ratio = |some: u128, all: u128| some as f64 / all.max(1) as f64;
        format!(
            "{}\t{:.4}\t{}\t{:.3}\t{:.4}\t{:.4}\t{:.2}\t{:.4}\t{}",
            self.feasible,
            share(self.met, self.feasible),
            self.met_any,
            ratio(self.sent, self.kept_bytes),
            share(self.refused, self.infeasible),
            share(self.refused_feasible, self.feasible),
            share(self.reached, self.reaching),
            ratio(self.sent - self.stored.min(self.sent), self.sent),
            self.violations,
        )
    }
}

/// What is known of a seed's future.
struct Future {
    feasible: BTreeSet<RequestId>,
    bytes: Vec<(RequestId, u64)>,
}

fn future(scenario: &Scenario, seed: u64) -> Result<Future, posthaste_solve::SolveError> {
    let prophecy = prophesy(scenario, seed);
    let schedule = solve(&prophecy.problem, EFFORT)?;
    let kept = prophecy.requests.iter().zip(&schedule.shortfalls);
    let kept = kept.filter(|(_, shortfall)| shortfall.is_none());
    let sizes = prophecy.requests.iter().zip(&prophecy.problem.demands);
    Ok(Future {
        feasible: kept.map(|(request, _)| *request).collect(),
        bytes: sizes
            .map(|(request, demand)| (*request, demand.bytes.get()))
            .collect(),
    })
}

fn tally(future: &Future, score: &Score) -> Tally {
    let fates = || score.report.fates.iter();
    let is_feasible = |request: &RequestId| future.feasible.contains(request);
    let count = |fate: Fate, feasible: bool| {
        let found =
            fates().filter(|(request, other)| *other == fate && is_feasible(request) == feasible);
        found.count() as u64
    };
    let met: BTreeSet<RequestId> = fates()
        .filter(|(_, fate)| *fate == Fate::Met)
        .map(|(request, _)| *request)
        .collect();
    let kept = future
        .bytes
        .iter()
        .filter(|(request, _)| met.contains(request));
    let reaching: BTreeSet<RequestId> = score.reached.iter().map(|(request, _)| *request).collect();
    Tally {
        feasible: future.feasible.len() as u64,
        met: count(Fate::Met, true),
        met_any: met.len() as u64,
        infeasible: (future.bytes.len() - future.feasible.len()) as u64 - count(Fate::Met, false),
        refused: count(Fate::Refused, false),
        refused_feasible: count(Fate::Refused, true),
        sent: score.report.sent.get().into(),
        stored: score.report.stored.get().into(),
        kept_bytes: kept.map(|(_, bytes)| u128::from(*bytes)).sum(),
        reached: score.reached.len() as u64,
        reaching: reaching.len() as u64,
        violations: u64::from(!score.report.is_clean()),
    }
}

/// Somebody who decides.
#[derive(Debug, Clone)]
enum Policy {
    Rival(Rival),
    /// The mind, with these settings.
    Mind(Box<Settings>),
}

impl Policy {
    fn score(&self, scenario: &Scenario, seed: u64) -> Score {
        match self {
            Self::Rival(rival) => score(scenario, seed, Some(*rival)),
            Self::Mind(settings) => score_with(scenario, seed, (**settings).clone()),
        }
    }
}

/// Everybody who decides.
fn policies() -> Vec<(&'static str, Policy)> {
    let rivals = Rival::ALL.iter();
    let rivals = rivals.map(|rival| (rival.name(), Policy::Rival(*rival)));
    let greedy = Settings {
        plan_requests_max: 0,
        ..Settings::default()
    };
    let minds = [
        ("posthaste, greedy only", greedy),
        ("posthaste", Settings::default()),
    ];
    let minds = minds.map(|(name, settings)| (name, Policy::Mind(Box::new(settings))));
    rivals.chain(minds).collect()
}

fn family(scenario: &Scenario, seeds: u64) -> Result<Vec<Tally>, posthaste_solve::SolveError> {
    let next = AtomicU64::new(1);
    let work = || {
        let mut tallies = vec![Tally::default(); policies().len()];
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed > seeds {
                return Ok(tallies);
            }
            let future = future(scenario, seed)?;
            for (sum, (_, policy)) in tallies.iter_mut().zip(policies()) {
                sum.add(tally(&future, &policy.score(scenario, seed)));
            }
        }
    };
    let threads = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        let hands: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        let mut sums = vec![Tally::default(); policies().len()];
        for hand in hands {
            // A thread that panics takes the program with it: its seed can't be counted.
            let tallies = hand
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
            for (sum, tally) in sums.iter_mut().zip(tallies) {
                sum.add(tally);
            }
        }
        Ok(sums)
    })
}

#[expect(clippy::print_stdout, reason = "its output is what it is for")]
fn main() -> Result<(), Box<dyn Error>> {
    let mut words = std::env::args().skip(1);
    let folder = PathBuf::from(words.next().ok_or("write: deadlines FOLDER SEEDS")?);
    let seeds: u64 = words
        .next()
        .ok_or("write: deadlines FOLDER SEEDS")?
        .parse()?;
    let mut files: Vec<PathBuf> = std::fs::read_dir(&folder)?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| {
            path.extension()
                .is_some_and(|extension| extension == "toml")
        })
        .collect();
    files.sort();
    for file in files {
        let scenario = Scenario::load(&file)?;
        for ((policy, _), sum) in policies().into_iter().zip(family(&scenario, seeds)?) {
            println!(
                "{}\t{}\t{policy}\t{}",
                scenario.name,
                scenario.summary,
                sum.line()
            );
        }
    }
    Ok(())
}
