//! `posthaste simulate --swarm`: random scenarios, and a reduced version of each that fails.

use std::{
    io::{self, IsTerminal, Write},
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    time::Duration,
};

use posthaste_core::Settings;
use posthaste_sim::swarm::{Failing, play};
use serde_json::json;

use super::{SimulateArguments, command, exit};
use crate::{
    failure::{Exit, Failure, Outcome},
    output,
};

/// Time after which a swarm shows its progress.
const QUIET_FOR: Duration = Duration::from_secs(2);
/// Interval between two looks.
const LOOKED_EVERY: Duration = Duration::from_millis(500);

/// Counts of the swarm's scenarios.
#[derive(Default)]
struct Tally {
    played: AtomicU64,
    failed: AtomicU64,
    is_over: AtomicBool,
}

/// Plays the swarm and writes each scenario that fails as a file.
///
/// # Errors
/// Fails if such a file can't be written.
pub(super) fn run(arguments: &SimulateArguments) -> Outcome {
    let count = arguments.swarm.unwrap_or_default();
    let tally = Tally::default();
    let failing = std::thread::scope(|scope| {
        let showing = scope.spawn(|| show(&tally, count));
        let failing = play_all(arguments, count, &tally);
        tally.is_over.store(true, Ordering::Relaxed);
        showing.thread().unpark();
        failing
    })?;
    if arguments.json {
        let failed: Vec<serde_json::Value> = failing
            .iter()
            .map(|(path, failing)| {
                json!({"seed": failing.seed, "checker": failing.checker, "what": failing.what, "scenario": path})
            })
            .collect();
        output::json(&json!({"played": count, "seed": arguments.seed, "failed": failed}));
    } else {
        let failed = failing.len();
        output::line(&format!("{count} random scenarios played, {failed} failed"));
    }
    Ok(exit(failing.is_empty()))
}

/// Plays all scenarios, and returns those that failed with their files.
fn play_all(
    arguments: &SimulateArguments,
    count: u64,
    tally: &Tally,
) -> Result<Vec<(String, Failing)>, Failure> {
    let settings = Settings::default();
    let mut all = Vec::new();
    for seed in (0..count).map(|place| arguments.seed.wrapping_add(place)) {
        if let Some(failing) = play(seed, &settings) {
            let path = arguments.into.join(format!("swarm-{seed}.toml"));
            std::fs::write(&path, &failing.scenario).map_err(|cause| {
                let message = format!("can't write {}: {cause}", path.display());
                Failure::new(Exit::Other, message)
            })?;
            if !arguments.json {
                let (checker, what) = (failing.checker, &failing.what);
                output::line(&format!("seed {seed}: VIOLATED {checker}: {what}"));
                let again = command(&path, seed);
                output::line(&format!("play it again with: {again}"));
            }
            all.push((path.display().to_string(), failing));
            tally.failed.fetch_add(1, Ordering::Relaxed);
        }
        tally.played.fetch_add(1, Ordering::Relaxed);
    }
    Ok(all)
}

/// Shows the progress on a terminal, until the swarm ends.
fn show(tally: &Tally, count: u64) {
    if !io::stderr().is_terminal() {
        return;
    }
    std::thread::park_timeout(QUIET_FOR);
    while !tally.is_over.load(Ordering::Relaxed) {
        let played = tally.played.load(Ordering::Relaxed);
        let failed = tally.failed.load(Ordering::Relaxed);
        draw(&format!("{played} of {count} played, {failed} failed"));
        std::thread::park_timeout(LOOKED_EVERY);
        draw("");
    }
}

fn draw(text: &str) {
    // A terminal that went away is no reason to stop.
    let _ = io::stderr().write_all(format!("\r\x1b[2K{text}").as_bytes());
}
