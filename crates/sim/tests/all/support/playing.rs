//! Scenarios of the project, played under all checkers.

#[path = "../../../../testbed/src/night.rs"]
mod night;

use std::{ops::Range, path::PathBuf};

use posthaste_sim::{Report, Scenario, simulate};

fn path(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../../scenarios")
        .join(format!("{name}.toml"))
}

/// Returns a scenario's text from its file.
pub fn written(name: &str) -> String {
    std::fs::read_to_string(path(name)).unwrap()
}

pub fn load(name: &str) -> Scenario {
    Scenario::load(&path(name)).unwrap()
}

/// Plays the seeds, by day only the first third of them.
///
/// # Panics
/// With the first seed that fails.
pub fn play(name: &str, seeds: Range<u64>) -> Vec<Report> {
    play_all(name, &load(name), seeds)
}

/// Plays the seeds of a changed scenario, under the name of the original.
pub fn play_written(name: &str, text: &str, seeds: Range<u64>) -> Vec<Report> {
    play_all(name, &Scenario::parse(text).unwrap(), seeds)
}

/// Returns the seeds that are played now: the first third by day, all at night.
pub fn share_of(seeds: Range<u64>) -> Range<u64> {
    seeds.start..seeds.start + night::share_of(seeds.end - seeds.start)
}

fn play_all(name: &str, scenario: &Scenario, seeds: Range<u64>) -> Vec<Report> {
    let one = |seed| {
        let report = simulate(scenario, seed);
        assert!(
            report.is_clean(),
            "play it again with: posthaste simulate scenarios/{name}.toml --seed {seed}\n{}",
            report.to_text()
        );
        report
    };
    share_of(seeds).map(one).collect()
}

/// Returns the seconds from the start of the last story line that contains `what`.
pub fn told_s(report: &Report, what: &str) -> Option<f64> {
    let mut entries = report.timeline.iter().rev();
    let told = entries.find(|entry| entry.what.to_string().contains(what));
    Some(told?.at.as_secs_f64())
}
