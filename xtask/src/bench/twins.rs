//! `cargo xtask bench twins`: the same scenarios in the simulator and, with real processes, in the
//! laboratory.

use std::{
    fmt::Write,
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, bail, ensure};
use posthaste_core::{Settings, contract::Happening};
use posthaste_lab::{Twin, twin::Outcome};
use posthaste_sim::{Fate, Scenario, What, simulate_recorded};
use posthaste_testbed::install::{self, IP};
use posthaste_types::RequestId;

use super::{
    figures::{Spread, machine},
    publish, say, site,
    stage::{self, Folder},
};
use crate::root;

/// Times each scenario is played with real processes; the simulator needs no second time.
const RUNS: usize = 3;

/// Largest difference of finish times, as a share of the simulator's.
const APART_MAX: f64 = 0.15;

/// Share of all depots' content below which a depot counts as unused.
const HELD_MIN: f64 = 0.01;

/// Known causes of different times.
const CAUSES: &str = "
## Why they differ

- **Half a second to a second and a half, whatever the scenario.** The simulator's bytes are a fluid that flows from the
  first moment and is stored as it comes. Real ones wait for the scan of the source and for connections, which begin
  slowly: half a second in `direct`. Where several depots are fed, each has eight fragments on its way at the end, which
  share its path and end together, and not all paths are done at one moment.
- **`slows`: a drop shows within 3 s in both.** A service counts bytes as they arrive, too. What still waits for a
  connection to the slow depot is asked back and goes elsewhere; the eight fragments that have one go on, and are there
  before the rest is.
- **`two-deadlines`: fragments of the first request that have a connection share the way out with the second** until they
  end, two seconds' worth of it: others wait for theirs by deadline. In the simulator the second waits behind the same two
  seconds, but no path of it ever gets less than half of the way out; real ones share that by connections.
- **`unknown-rates`: so do those.** Besides, a service starts 32 fragments at once to a depot it knows nothing of, and
  knows the path a second after the first of them are acknowledged; the simulator knows it after 2 s.
";

/// A mebibyte, in bytes.
const MEBI: f64 = 1_048_576.0;

/// Options of the command line.
#[derive(Debug)]
struct Options {
    runs: usize,
    /// Only these scenarios, by file name; all when there is none.
    scenarios: Vec<String>,
    /// Folder of the files.
    folder: PathBuf,
    /// True to show the log of each service.
    log: bool,
    /// Another build of posthaste, to be compared with this one.
    program: Option<PathBuf>,
}

impl Options {
    fn read(arguments: &[String]) -> anyhow::Result<Self> {
        let mut options = Self {
            runs: RUNS,
            scenarios: Vec::new(),
            folder: site::memory().to_owned(),
            log: false,
            program: None,
        };
        let mut words = arguments.iter();
        while let Some(word) = words.next() {
            if word == "--log" {
                options.log = true;
                continue;
            }
            let value = words
                .next()
                .with_context(|| format!("{word} wants a value"))?;
            match word.as_str() {
                "--runs" => options.runs = value.parse().context("--runs wants a number")?,
                "--scenario" => options.scenarios.push(value.clone()),
                "--program" => options.program = Some(PathBuf::from(value)),
                "--dir" => options.folder = PathBuf::from(value),
                _ => bail!("there is no option {word}"),
            }
        }
        ensure!(options.runs > 0, "--runs wants at least 1");
        Ok(options)
    }
}

/// Result of the simulator for a scenario.
struct Simulated {
    summary: String,
    /// Seconds from submission to safety, for each request.
    safe_after_s: Vec<f64>,
    /// Bytes on each depot at the end.
    held: Vec<(String, u64)>,
}

/// A scenario, played in both worlds.
struct Pair {
    twin: Twin,
    simulated: Simulated,
    /// Outcomes, one for each run.
    real: Vec<Outcome>,
}

/// Runs the benchmark.
///
/// # Errors
/// Fails if something can't be built or started, or a request ends otherwise than in the simulator.
pub fn run(arguments: &[String]) -> anyhow::Result<()> {
    let options = Options::read(arguments)?;
    install::ensure_debian_program(IP)?;
    let posthaste = match &options.program {
        Some(program) => program.clone(),
        None => stage::build("posthaste-cli", "posthaste")?,
    };
    let mut pairs = Vec::new();
    for path in scenarios(&options)? {
        let (twin, simulated) = (Twin::read(&path)?, simulate(&path)?);
        say(&format!(
            "{}: simulated {:.2?}",
            twin.name(),
            simulated.safe_after_s
        ));
        pairs.push(Pair {
            twin,
            simulated,
            real: Vec::new(),
        });
    }
    for _ in 0..options.runs {
        for pair in &mut pairs {
            play(pair, &posthaste, &options)?;
        }
    }
    let text = report(&pairs, &options);
    if options.scenarios.is_empty() && options.program.is_none() {
        return publish("twins", &text);
    }
    say(&text);
    Ok(())
}

/// Returns the files of the scenarios, in the order of their names.
fn scenarios(options: &Options) -> anyhow::Result<Vec<PathBuf>> {
    let folder = root().join("scenarios/twins");
    let mut paths = Vec::new();
    for entry in fs::read_dir(&folder).with_context(|| format!("list {}", folder.display()))? {
        let path = entry?.path();
        let stem = path.file_stem().and_then(|stem| stem.to_str());
        let is_wanted = options.scenarios.is_empty()
            || stem.is_some_and(|stem| options.scenarios.iter().any(|wanted| wanted == stem));
        if is_wanted && path.extension().is_some_and(|end| end == "toml") {
            paths.push(path);
        }
    }
    paths.sort();
    ensure!(!paths.is_empty(), "there is no such scenario");
    Ok(paths)
}

/// Plays a scenario once with real processes.
fn play(pair: &mut Pair, posthaste: &Path, options: &Options) -> anyhow::Result<()> {
    let name = pair.twin.name();
    let folder = Folder::new(&options.folder)?;
    let outcome = pair.twin.play(posthaste, folder.path())?;
    if options.log {
        say(&format!("{name}\n{}{}", outcome.log, outcome.decisions));
    }
    say(&format!(
        "{name}: real {:.2?}",
        safe_after_s(&outcome, name)?
    ));
    ensure!(
        used(&outcome.held) == used(&pair.simulated.held),
        "{name}: depots used are {:?} with real processes, {:?} in the simulator",
        outcome.held,
        pair.simulated.held
    );
    pair.real.push(outcome);
    Ok(())
}

/// Plays the scenario in the simulator. The seed only decides when a fault is noticed.
fn simulate(path: &Path) -> anyhow::Result<Simulated> {
    let scenario = Scenario::load(path)?;
    let (report, recording) = simulate_recorded(&scenario, 0, Settings::default());
    ensure!(report.is_clean(), "{}", report.to_text());
    ensure!(
        report.fates.iter().all(|(_, fate)| *fate == Fate::Met),
        "a request is not safe in time: {:?}",
        report.fates
    );
    let moment = |request: RequestId, is_it: fn(&What) -> bool| -> anyhow::Result<Duration> {
        let mut entries = report.timeline.iter();
        let found = entries.find(|entry| entry.request == Some(request) && is_it(&entry.what));
        Ok(found.context("a request is submitted and safe")?.at)
    };
    let is_safe = |what: &What| {
        matches!(
            what,
            What::Said {
                happening: Happening::Safe { .. },
                ..
            }
        )
    };
    let mut times = Vec::new();
    for (request, _) in &report.fates {
        let asked = moment(*request, |what| matches!(what, What::User(_)))?;
        times.push((moment(*request, is_safe)? - asked).as_secs_f64());
    }
    let last = recording.samples.last().context("a run has samples")?;
    let held = report.depots.iter().cloned().zip(last.used.iter().copied());
    Ok(Simulated {
        summary: scenario.summary,
        safe_after_s: times,
        held: held.collect(),
    })
}

/// Returns the seconds until each request was safe.
fn safe_after_s(outcome: &Outcome, name: &str) -> anyhow::Result<Vec<f64>> {
    let requests = outcome.requests.iter().zip(1..);
    let times = requests.map(|(request, number)| {
        request.safe_after_s.with_context(|| {
            let (state, log) = (&request.state, &outcome.log);
            format!("{name}: request {number} ended {state}\n{log}")
        })
    });
    times.collect()
}

/// Returns the depots that hold more than crumbs.
fn used(held: &[(String, u64)]) -> Vec<&str> {
    let all: u64 = held.iter().map(|(_, bytes)| bytes).sum();
    held.iter()
        .filter(|(_, bytes)| share(*bytes, all) > HELD_MIN)
        .map(|(name, _)| name.as_str())
        .collect()
}

#[expect(
    clippy::cast_precision_loss,
    reason = "scenarios are far below 2^52 bytes"
)]
fn share(bytes: u64, all: u64) -> f64 {
    bytes as f64 / all.max(1) as f64
}

#[expect(
    clippy::cast_precision_loss,
    reason = "scenarios are far below 2^52 bytes"
)]
fn mebibytes(bytes: u64) -> f64 {
    bytes as f64 / MEBI
}

fn report(pairs: &[Pair], options: &Options) -> String {
    let mut text = format!(
        "# Simulated and real\n\n\
         Written by `cargo xtask bench twins`; run it to get your machine's figures. Each scenario of \
         [`scenarios/twins`](../../scenarios/twins) is played twice from the same file: by `posthaste simulate`, \
         and in the [laboratory](../guide/laboratory.md), where every depot is a `posthaste relay` on a host of \
         its own, the centre a `posthaste serve`, and each path a link with the path's rate of data (headers \
         of TCP/IP come on top) and its latency; what goes wrong happens to real processes and links. Sources \
         are real files, in memory as all else. Times are from submission until the dataset is safe; real ones \
         are medians of {} runs, ranges in parentheses. A ratio is real time over simulated time; more than {} % \
         apart is marked, and wants a cause.\n\n",
        options.runs,
        APART_MAX * 100.0
    );
    text.push_str(&machine(&options.folder));
    text.push_str(
        "\n| scenario | request | simulated s | real s | ratio |\n|---|---|---|---|---|\n",
    );
    for pair in pairs {
        for (place, simulated) in pair.simulated.safe_after_s.iter().enumerate() {
            let real = Spread::of(&pair.real, |outcome| {
                outcome.requests[place].safe_after_s.unwrap_or(f64::NAN)
            });
            let ratio = real.median / simulated;
            let mark = if (ratio - 1.0).abs() > APART_MAX {
                " (apart)"
            } else {
                ""
            };
            let _ = writeln!(
                text,
                "| `{}` | {} | {simulated:.2} | {real} | {ratio:.2}{mark} |",
                pair.twin.name(),
                place + 1
            );
        }
    }
    text.push_str(CAUSES);
    text.push_str(
        "\n## What the depots hold at the end\n\nMiB, simulated and real (the median).\n\n\
         | scenario | what happens | depots |\n|---|---|---|\n",
    );
    for pair in pairs {
        let depots: Vec<String> = (pair.simulated.held.iter().enumerate())
            .map(|(place, (name, simulated))| {
                let real = Spread::of(&pair.real, |outcome| mebibytes(outcome.held[place].1));
                format!("{name} {:.0} / {:.0}", mebibytes(*simulated), real.median)
            })
            .collect();
        let _ = writeln!(
            text,
            "| `{}` | {} | {} |",
            pair.twin.name(),
            pair.simulated.summary,
            depots.join(", ")
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_read_and_wrong_ones_refused() {
        let read = |words: &[&str]| {
            let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
            Options::read(&words)
        };
        let options = read(&["--scenario", "direct", "--runs", "1", "--log"]).unwrap();
        assert!(options.log && options.runs == 1);
        assert_eq!(scenarios(&options).unwrap().len(), 1);
        assert!(scenarios(&read(&[]).unwrap()).unwrap().len() > 2);
        assert!(scenarios(&read(&["--scenario", "x"]).unwrap()).is_err());
        assert!(read(&["--runs", "0"]).is_err() && read(&["--fast", "1"]).is_err());
    }

    #[test]
    fn crumbs_are_no_use_of_a_depot() {
        let held = |bytes: [u64; 3]| {
            let names = ["a", "b", "c"].map(str::to_owned);
            names.into_iter().zip(bytes).collect::<Vec<_>>()
        };
        assert_eq!(used(&held([1000, 5, 20])), ["a", "c"]);
        assert!(used(&held([0; 3])).is_empty());
    }
}
