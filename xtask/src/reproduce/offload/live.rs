//! Figure 6 with real processes: the same scenario in the laboratory and in the simulator.

use std::{fmt::Write, time::Duration};

use anyhow::{Context, ensure};
use posthaste_lab::{Twin, twin::Outcome};
use posthaste_testbed::install::{self, IP};

use super::{
    figure6::{DEADLINE_S, PHASES},
    world::{Played, play},
};
use crate::{
    bench::{
        figures::machine,
        site::memory,
        stage::{self, Folder},
    },
    root,
};

const SCENARIO: &str = "scenarios/figure-6.toml";

/// Largest difference of finish times, as a share of the simulator's.
const APART_MAX: f64 = 0.15;

/// Rate in Mbit/s below which a depot is not fed.
const FED_MIN: f64 = 1.0;

/// Returns the page.
///
/// # Errors
/// Fails if the laboratory can't be built, the deadline is missed, or other depots are fed than in
/// the simulator.
pub fn page() -> anyhow::Result<String> {
    install::ensure_debian_program(IP)?;
    let path = root().join(SCENARIO);
    let simulated = play(&std::fs::read_to_string(&path)?)?;
    let posthaste = stage::build("posthaste-cli", "posthaste")?;
    let folder = Folder::new(memory())?;
    let real = Twin::read(&path)?.play(&posthaste, folder.path())?;
    let request = real.requests.first().context("it has a request")?;
    let safe_s = request.safe_after_s;
    let safe_s = safe_s.with_context(|| format!("it ended {}\n{}", request.state, real.log))?;
    let simulated_s = simulated.safe_after_s()?;
    let mut text = format!(
        "# Figure 6, live\n\n\
         Written by `cargo xtask reproduce offload-live`: Figure 6 of Timely Offloading (`offload-ics08`, 5.4) with real processes. \
         `{SCENARIO}` is played by the simulator and in the laboratory: a `posthaste serve`, a `posthaste relay` on each of five hosts, \
         links with the rates and the events of the scenario, 2.1 GB of real files. The deadline is {DEADLINE_S:.0} s.\n\n"
    );
    text.push_str(&machine(memory()));
    let _ = writeln!(
        text,
        "\nSafe after {safe_s:.0} s with real processes, {simulated_s:.0} s in the simulator: {:.2} times. Means in Mbit/s, of what was \
         stored; simulated / real:\n\n| from | event | the paper's answer | {} |\n|---|---|---|{}",
        safe_s / simulated_s,
        simulated.report.depots.join(" | "),
        "---|".repeat(simulated.report.depots.len())
    );
    for (place, (from_s, event, answer)) in PHASES.iter().enumerate() {
        let next = PHASES.get(place + 1).map(|(next, ..)| *next);
        let ours = simulated.mean_mbps(*from_s, next.unwrap_or(simulated_s));
        let theirs = mean_mbps(&real, *from_s, next.unwrap_or(safe_s));
        let cells = ours.iter().zip(&theirs);
        let cells: Vec<String> = cells
            .map(|(ours, theirs)| format!("{ours:.1} / {theirs:.1}"))
            .collect();
        let _ = writeln!(
            text,
            "| {from_s:.0} s | {event} | {answer} | {} |",
            cells.join(" | ")
        );
    }
    text.push_str("\nWhy it decided as it did:\n\n```text\n");
    text.push_str(&told(&real));
    text.push_str("```\n");
    check(&simulated, &real, safe_s).with_context(|| text.clone())?;
    Ok(text)
}

/// Checks that the deadline is met, at the time and over the depots that the simulator predicts.
fn check(simulated: &Played, real: &Outcome, safe_s: f64) -> anyhow::Result<()> {
    ensure!(safe_s <= DEADLINE_S, "safe after {safe_s} s");
    let simulated_s = simulated.safe_after_s()?;
    ensure!(
        (safe_s / simulated_s - 1.0).abs() <= APART_MAX,
        "{safe_s} s, {simulated_s} s simulated"
    );
    // The time of a reaction differs by seconds; the depots fed between two events must not.
    for (from_s, to_s) in [(30.0, 145.0), (170.0, 245.0), (290.0, 400.0)] {
        let fed =
            |means: Vec<f64>| -> Vec<bool> { means.iter().map(|mean| *mean > FED_MIN).collect() };
        let (ours, theirs) = (
            fed(simulated.mean_mbps(from_s, to_s)),
            fed(mean_mbps(real, from_s, to_s)),
        );
        ensure!(
            ours == theirs,
            "{from_s} to {to_s} s: fed are {theirs:?}, {ours:?} simulated"
        );
    }
    Ok(())
}

/// Returns the mean rate of each depot between two moments, in Mbit/s.
fn mean_mbps(real: &Outcome, from_s: f64, to_s: f64) -> Vec<f64> {
    let at = |seconds: f64| {
        let moment = Duration::from_secs_f64(seconds);
        let later = real.samples.iter().find(|(at, _)| *at >= moment);
        later.or(real.samples.last())
    };
    let (Some((start, before)), Some((end, after))) = (at(from_s), at(to_s)) else {
        return Vec::new();
    };
    let span_s = end.saturating_sub(*start).as_secs_f64().max(1.0);
    let rate = |(before, after): (&u64, &u64)| bits(after.saturating_sub(*before)) / span_s / 1e6;
    before.iter().zip(after).map(rate).collect()
}

#[expect(clippy::cast_precision_loss, reason = "bytes stay far below 2^52")]
fn bits(bytes: u64) -> f64 {
    bytes as f64 * 8.0
}

/// Returns the lines of its story about the fed depots.
fn told(real: &Outcome) -> String {
    let words = ["rerouted", "added", "lost", "let go", "direct", "safe"];
    let lines = real.decisions.lines();
    let about = lines.filter(|line| words.iter().any(|word| line.contains(word)));
    about.fold(String::new(), |mut text, line| {
        let _ = writeln!(text, "{}", line.trim());
        text
    })
}
