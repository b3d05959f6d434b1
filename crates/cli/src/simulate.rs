//! `posthaste simulate`: plays a scenario in the model world and judges the result.

mod files;
mod swarm;

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};

use clap::Args;
use posthaste_core::Settings;
use posthaste_endpoint::Error;
use posthaste_sim::{Report, Scenario, simulate, simulate_explained, simulate_recorded};
use serde_json::json;

use crate::{
    failure::{Failure, Outcome},
    output,
};

/// Seeds in one call, at most: an hour of the slowest scenario.
const SEEDS_MAX: u64 = 1_000_000;

/// Plays a scenario in a model world, with the code that decides in the real one
///
/// Prints what happened when and why, then whether each of the checkers is content. The same
/// scenario and seed give the same run. Exit code 1 when a checker is violated.
#[derive(Debug, Args)]
pub struct SimulateArguments {
    /// A scenario, like scenarios/demo.toml
    #[arg(required_unless_present = "swarm", conflicts_with = "swarm")]
    scenario: Option<PathBuf>,
    /// Decides what the scenario leaves to chance
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Plays many seeds and prints a line for each that fails: a number, or a range like 100..200
    #[arg(long, value_name = "N|FROM..TO", conflicts_with = "seed")]
    seeds: Option<String>,
    /// Writes what happened and how things stood to this file, as JSON lines
    #[arg(long, value_name = "FILE", conflicts_with_all = ["seeds", "swarm"])]
    timeline: Option<PathBuf>,
    /// Writes an HTML page with plots to this file; it needs nothing else
    #[arg(long, value_name = "FILE", conflicts_with_all = ["seeds", "swarm"])]
    report: Option<PathBuf>,
    /// Draws this many random scenarios, from the seed on, plays each, and makes those that fail small
    #[arg(long, value_name = "N", conflicts_with = "seeds", value_parser = clap::value_parser!(u64).range(1..=SEEDS_MAX))]
    swarm: Option<u64>,
    /// Where the swarm writes a scenario that fails
    #[arg(long, value_name = "DIR", default_value = ".", requires = "swarm")]
    into: PathBuf,
    /// Tells the story of a request instead, like `posthaste explain`
    #[arg(long, value_name = "ID", conflicts_with_all = ["seeds", "swarm", "timeline", "report"])]
    explain: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Runs `posthaste simulate`.
///
/// # Errors
/// Fails if the scenario can't be read, or the seeds are no range.
pub fn run(arguments: &SimulateArguments) -> Outcome {
    let Some(path) = &arguments.scenario else {
        return swarm::run(arguments);
    };
    path.metadata()
        .map_err(|cause| Error::io("read", path.display().to_string(), cause))?;
    let scenario = Scenario::load(path).map_err(|error| {
        // What is wrong in it is shown in several lines.
        let said = error.to_string();
        Failure::usage(said.trim_end().replace('\n', "; "))
    })?;
    match (&arguments.seeds, &arguments.explain) {
        (Some(seeds), _) => many(arguments, &scenario, seeds),
        (None, Some(id)) => explain(arguments, &scenario, id),
        (None, None) => one(arguments, &scenario),
    }
}

/// Tells the story of one request.
fn explain(arguments: &SimulateArguments, scenario: &Scenario, id: &str) -> Outcome {
    let request = id
        .parse()
        .map_err(|_| Failure::usage(format!("`{id}` is no request: they are r1, r2 and so on")))?;
    let (report, story) = simulate_explained(scenario, arguments.seed, request);
    let story = story.ok_or_else(|| {
        let name = &scenario.name;
        Failure::usage(format!("nobody knows {id} at the end of {name}"))
    })?;
    if arguments.json {
        output::json(&json!({"request": id, "seed": arguments.seed, "story": story}));
    } else {
        for sentence in story {
            output::line(&sentence);
        }
    }
    Ok(exit(report.is_clean()))
}

fn one(arguments: &SimulateArguments, scenario: &Scenario) -> Outcome {
    let is_recorded = arguments.timeline.is_some() || arguments.report.is_some();
    let report = if is_recorded {
        let (report, recording) = simulate_recorded(scenario, arguments.seed, Settings::default());
        files::write(arguments, scenario, &report, &recording)?;
        report
    } else {
        simulate(scenario, arguments.seed)
    };
    // Determinism is a promise, so it is kept under watch as well.
    let is_same = simulate(scenario, arguments.seed).fingerprint == report.fingerprint;
    if arguments.json {
        output::json(&to_json(&report, is_same));
    } else {
        output::line(&format!("{}: {}", scenario.name, scenario.summary));
        output::line(report.to_text().trim_end());
        let verdict = if is_same { "holds   " } else { "VIOLATED" };
        output::line(&format!("  {verdict}  the same seed gives the same bytes"));
        if !report.is_clean() || !is_same {
            output::line(&again(arguments, arguments.seed));
        }
    }
    Ok(exit(report.is_clean() && is_same))
}

fn many(arguments: &SimulateArguments, scenario: &Scenario, seeds: &str) -> Outcome {
    let (from, to) = parse_range(seeds).ok_or_else(|| {
        Failure::usage(format!(
            "`{seeds}` are no seeds: write a number or a range like 100..200"
        ))
    })?;
    let mut failed = Vec::new();
    for seed in from..to {
        let report = simulate(scenario, seed);
        if let Some(violation) = report.violations.first() {
            if !arguments.json {
                let (checker, what) = (violation.checker, &violation.what);
                output::line(&format!("seed {seed}: VIOLATED {checker}: {what}"));
                output::line(&again(arguments, seed));
            }
            failed.push(seed);
        }
    }
    let played = to - from;
    if arguments.json {
        output::json(&json!({"scenario": scenario.name, "played": played, "failed": failed}));
    } else {
        output::line(&format!(
            "{}: {played} seeds played, {} failed",
            scenario.name,
            failed.len()
        ));
    }
    Ok(exit(failed.is_empty()))
}

/// Returns the command that plays a seed again.
fn again(arguments: &SimulateArguments, seed: u64) -> String {
    let path = arguments.scenario.clone().unwrap_or_default();
    let command = command(&path, seed);
    format!("play it again with: {command}")
}

/// Returns the command that plays a scenario with a seed.
fn command(path: &Path, seed: u64) -> String {
    format!("posthaste simulate {} --seed {seed}", path.display())
}

fn parse_range(text: &str) -> Option<(u64, u64)> {
    let (from, to) = match text.split_once("..") {
        Some((from, to)) => (from.parse().ok()?, to.parse().ok()?),
        None => (0, text.parse().ok()?),
    };
    (from < to && to - from <= SEEDS_MAX).then_some((from, to))
}

fn exit(is_clean: bool) -> ExitCode {
    if is_clean {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

fn to_json(report: &Report, is_same: bool) -> serde_json::Value {
    let timeline = report
        .timeline
        .iter()
        .map(|entry| json!({"at_s": entry.at.as_secs_f64(), "what": report.line(entry)}));
    let fates = report
        .fates
        .iter()
        .map(|(request, fate)| json!({"request": request.to_string(), "fate": fate.name()}));
    let verdicts = report.verdicts().into_iter().map(|(checker, violation)| {
        json!({"checker": checker, "holds": violation.is_none(),
               "violation": violation.map(|violation| violation.what.clone())})
    });
    json!({
        "scenario": report.scenario,
        "seed": report.seed,
        "virtual_s": report.span.as_secs_f64(),
        "bytes_sent": report.sent.get(),
        "bytes_stored": report.stored.get(),
        "steps": report.steps,
        "fingerprint": format!("{:016x}", report.fingerprint),
        "deterministic": is_same,
        "requests": fates.collect::<Vec<_>>(),
        "checkers": verdicts.collect::<Vec<_>>(),
        "timeline": timeline.collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_are_a_number_or_a_range() {
        assert_eq!(parse_range("5"), Some((0, 5)));
        assert_eq!(parse_range("5..7"), Some((5, 7)));
        for text in ["", "0", "7..5", "a..b", "0..9999999999"] {
            assert_eq!(parse_range(text), None, "{text}");
        }
    }
}
