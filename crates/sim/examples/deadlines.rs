//! Plays families of scenarios with every policy. `deadlines FOLDER SEEDS [--after SEED] [--family
//! NAME] [--policy NAME]...` prints the field names, then a tab-separated line for each seed,
//! family and policy. Each line appears once it was played, seed by seed, so another run can
//! continue after an interrupted one. `cargo xtask bench deadlines` runs this.

use std::{
    collections::BTreeSet,
    error::Error,
    io::Write,
    path::PathBuf,
    sync::atomic::{AtomicUsize, Ordering},
    thread,
};

use posthaste_core::Settings;
use posthaste_plan::horizon::Problem;
use posthaste_sim::{
    Fate, Rival, Scenario,
    deadlines::{Prophecy, Score, prophesy, score, score_only, score_with},
};
use posthaste_solve::{Effort, SolveError, solve};
use posthaste_types::{Bytes, RequestId};

const USAGE: &str =
    "write: deadlines FOLDER SEEDS [--after SEED] [--family NAME] [--policy NAME]...";

/// Solver effort the clairvoyant may spend on a seed.
const EFFORT: Effort = Effort {
    programs: 6,
    columns: 20_000,
};

/// Figures counted for each seed.
const FIGURES: [&str; 19] = [
    "asked",
    "feasible",
    "met",
    "met feasible",
    "refused",
    "refused feasible",
    "broken",
    "broken feasible",
    "infeasible",
    "foreseeable",
    "refused foreseeable",
    "sent",
    "lost",
    "kept bytes",
    "safe bytes",
    "needed bytes",
    "reached",
    "reaching",
    "violations",
];

/// Figures of one policy for one seed of a family, in the order of [`FIGURES`].
struct Tally([u128; FIGURES.len()]);

/// Percentage of path and egress capacity that the clairvoyant plans with when it must leave some
/// unused.
const LESS_PERCENT: u64 = 95;

/// Weight of a request that can be kept in the world as it is, relative to the others. Applies when
/// the solver asks what else could be kept if no site went away.
const KEPT_WEIGHT: u32 = 100;

/// Knowledge of a seed's future.
struct Future {
    prophecy: Prophecy,
    /// Requests the clairvoyant keeps.
    feasible: BTreeSet<RequestId>,
    /// These requests, and those it could also keep if no site ever went away. All other requests
    /// are infeasible because of path capacity and earlier requests, not because of unforeseeable
    /// failures.
    feasible_if_steady: BTreeSet<RequestId>,
    /// Number of requests.
    asked: usize,
}

fn future(scenario: &Scenario, seed: u64) -> Result<Future, SolveError> {
    let prophecy = prophesy(scenario, seed)?;
    let feasible = kept(&prophecy.requests, &prophecy.problem)?;
    let mut feasible_if_steady = feasible.clone();
    if let Some(steady) = &prophecy.steady {
        let mut steady = steady.clone();
        for (demand, request) in steady.demands.iter_mut().zip(&prophecy.asked) {
            if feasible.contains(request) {
                demand.weight = KEPT_WEIGHT;
            }
        }
        feasible_if_steady.extend(kept(&prophecy.asked, &steady)?);
    }
    Ok(Future {
        feasible,
        feasible_if_steady,
        asked: prophecy.asked.len(),
        prophecy,
    })
}

/// Returns the requests whose deadlines the clairvoyant keeps, for a problem with one demand for
/// each request.
fn kept(requests: &[RequestId], problem: &Problem) -> Result<BTreeSet<RequestId>, SolveError> {
    let schedule = solve(problem, EFFORT)?;
    let kept = requests.iter().zip(&schedule.shortfalls);
    let kept = kept.filter(|(_, shortfall)| shortfall.is_none());
    Ok(kept.map(|(request, _)| *request).collect())
}

/// Returns the requests the clairvoyant keeps when it leaves some capacity unused.
fn kept_with_less(future: &Future) -> Result<BTreeSet<RequestId>, SolveError> {
    let mut problem = future.prophecy.problem.clone();
    let ways = problem.nodes.iter_mut().flat_map(|node| &mut node.way_out);
    let links = problem.links.iter_mut().map(|link| &mut link.capacity);
    for carried in ways.chain(links).flatten() {
        *carried = Bytes::new(carried.get() / 100 * LESS_PERCENT);
    }
    kept(&future.prophecy.requests, &problem)
}

impl Future {
    /// Returns the requests that missed their deadlines, and that no policy could have kept even if
    /// no site had gone away.
    fn foreseeable(&self, met: &BTreeSet<RequestId>) -> BTreeSet<RequestId> {
        let asked = self.prophecy.asked.iter().copied();
        asked
            .filter(|request| !self.feasible_if_steady.contains(request) && !met.contains(request))
            .collect()
    }
}

impl Tally {
    fn of(future: &Future, score: &Score) -> Self {
        let of_fates = |fates: &[Fate]| -> BTreeSet<RequestId> {
            let all = score.report.fates.iter();
            let found = all.filter(|(_, fate)| fates.contains(fate));
            found.map(|(request, _)| *request).collect()
        };
        let met = of_fates(&[Fate::Met]);
        let refused = of_fates(&[Fate::Refused]);
        let broken = of_fates(&[Fate::Late, Fate::Unsafe, Fate::Failed]);
        let safe = of_fates(&[Fate::Met, Fate::Late]);
        let feasible = &future.feasible;
        let count = |these: &BTreeSet<RequestId>| these.len() as u128;
        let both = |these: &BTreeSet<RequestId>| these.intersection(feasible).count() as u128;
        let bytes = |these: &BTreeSet<RequestId>, is_needed: bool| -> u128 {
            let sizes = score.sizes.iter();
            let sizes = sizes.filter(|(request, _)| these.contains(request));
            let sizes = sizes.map(|(_, (size, needed))| if is_needed { needed } else { size });
            sizes.map(|bytes| u128::from(bytes.get())).sum()
        };
        let reaching = score.reached.iter().map(|(request, _)| *request);
        Self([
            future.asked as u128,
            count(feasible),
            count(&met),
            both(&met),
            count(&refused),
            both(&refused),
            count(&broken),
            both(&broken),
            // If not all of several requests can be kept, each policy chooses which.
            future.asked as u128 - count(feasible) - (count(&met) - both(&met)),
            count(&future.foreseeable(&met)),
            future.foreseeable(&met).intersection(&refused).count() as u128,
            (score.report.sent - score.delivered).get().into(),
            (score.report.sent - score.report.stored).get().into(),
            bytes(&met, false),
            bytes(&safe, false),
            bytes(&safe, true),
            score.reached.len() as u128,
            count(&reaching.collect()),
            u128::from(!score.report.is_clean()),
        ])
    }
}

impl Tally {
    /// Returns the figures of a policy that keeps these requests and refuses all others. The bytes
    /// sent for them are unknown.
    fn of_kept(future: &Future, kept: &BTreeSet<RequestId>) -> Self {
        let count = |these: &BTreeSet<RequestId>| these.len() as u128;
        let both = kept.intersection(&future.feasible).count() as u128;
        let (asked, feasible, met) = (future.asked as u128, count(&future.feasible), count(kept));
        let mut figures = [0; FIGURES.len()];
        let known = [
            asked,
            feasible,
            met,
            both,
            asked - met,
            feasible - both,
            0,
            0,
            asked - feasible - (met - both),
            count(&future.foreseeable(kept)),
            count(&future.foreseeable(kept)),
        ];
        figures[..known.len()].copy_from_slice(&known);
        Self(figures)
    }
}

/// Decision policy.
#[derive(Debug, Clone)]
enum Policy {
    Rival(Rival),
    /// The mind, with these settings.
    Mind(Box<Settings>),
    /// The mind, asked only for the requests the clairvoyant keeps. The difference to the mind is
    /// the cost of not knowing future requests.
    Chosen,
    /// The clairvoyant, leaving some capacity unused.
    Less,
}

impl Policy {
    fn play(&self, scenario: &Scenario, seed: u64, future: &Future) -> Result<Tally, SolveError> {
        let score = match self {
            Self::Less => return Ok(Tally::of_kept(future, &kept_with_less(future)?)),
            Self::Rival(rival) => score(scenario, seed, Some(*rival)),
            Self::Mind(settings) => score_with(scenario, seed, (**settings).clone()),
            Self::Chosen => {
                score_only(scenario, seed, Settings::default(), future.feasible.clone())
            }
        };
        Ok(Tally::of(future, &score))
    }
}

fn policies() -> Vec<(&'static str, Policy)> {
    let rivals = Rival::ALL.iter();
    let rivals = rivals.map(|rival| (rival.name(), Policy::Rival(*rival)));
    let greedy = Settings {
        plan_requests_max: 0,
        ..Settings::default()
    };
    let minds = [
        ("posthaste, greedy only", Policy::Mind(Box::new(greedy))),
        ("posthaste", Policy::Mind(Box::default())),
        ("posthaste, asked the feasible only", Policy::Chosen),
        ("clairvoyant, with 5 % less", Policy::Less),
    ];
    rivals.chain(minds).collect()
}

/// Command-line options.
struct Asked {
    scenarios: Vec<Scenario>,
    policies: Vec<(&'static str, Policy)>,
    /// Last seed that is not played.
    after: usize,
    seeds: usize,
}

impl Asked {
    fn read(mut words: impl Iterator<Item = String>) -> Result<Self, Box<dyn Error>> {
        let folder = PathBuf::from(words.next().ok_or(USAGE)?);
        let seeds = words.next().ok_or(USAGE)?.parse()?;
        let (mut after, mut family, mut named) = (0, None, Vec::new());
        while let Some(word) = words.next() {
            match word.as_str() {
                "--family" => family = Some(words.next().ok_or(USAGE)?),
                "--after" => after = words.next().ok_or(USAGE)?.parse()?,
                "--policy" => named.push(words.next().ok_or(USAGE)?),
                _ => return Err(USAGE.into()),
            }
        }
        let mut files = Vec::new();
        for entry in std::fs::read_dir(&folder)? {
            files.push(entry?.path());
        }
        files.retain(|path| path.extension().is_some_and(|ending| ending == "toml"));
        files.sort();
        let mut scenarios = Vec::new();
        for file in files {
            scenarios.push(Scenario::load(&file)?);
        }
        scenarios.retain(|scenario| {
            family
                .as_ref()
                .is_none_or(|family| scenario.name == *family)
        });
        let mut policies = policies();
        policies.retain(|(name, _)| named.is_empty() || named.iter().any(|one| one == name));
        if scenarios.is_empty() || policies.is_empty() {
            return Err("there is no such family, or no such policy".into());
        }
        Ok(Self {
            scenarios,
            policies,
            after,
            seeds,
        })
    }

    /// Plays the remaining worlds, seed by seed, and prints each when it is over.
    fn play(&self, next: &AtomicUsize) -> Result<(), String> {
        loop {
            let world = next.fetch_add(1, Ordering::Relaxed);
            let seed = 1 + self.after + world / self.scenarios.len();
            if seed > self.after + self.seeds {
                return Ok(());
            }
            let scenario = &self.scenarios[world % self.scenarios.len()];
            let seed = seed as u64;
            let failed =
                |error| format!("the future of {} with seed {seed}: {error}", scenario.name);
            let future = future(scenario, seed).map_err(failed)?;
            let mut lines = String::new();
            for (name, policy) in &self.policies {
                let Tally(figures) = policy.play(scenario, seed, &future).map_err(failed)?;
                lines += &format!("{}\t{}\t{name}\t{seed}", scenario.name, scenario.summary);
                for figure in figures {
                    lines += &format!("\t{figure}");
                }
                lines.push('\n');
            }
            print(&lines)?;
        }
    }
}

/// Prints whole lines at once, because another program may read them while the rest is played.
fn print(lines: &str) -> Result<(), String> {
    let mut out = std::io::stdout().lock();
    let written = out.write_all(lines.as_bytes()).and_then(|()| out.flush());
    written.map_err(|error| format!("printing what was played: {error}"))
}

fn main() -> Result<(), Box<dyn Error>> {
    let asked = Asked::read(std::env::args().skip(1))?;
    print(&format!(
        "family\tsummary\tpolicy\tseed\t{}\n",
        FIGURES.join("\t")
    ))?;
    let next = AtomicUsize::new(0);
    let threads = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        let hands: Vec<_> = (0..threads)
            .map(|_| scope.spawn(|| asked.play(&next)))
            .collect();
        for hand in hands {
            // A thread that panics ends the program, because its seed can't be counted.
            hand.join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        }
        Ok(())
    })
}
