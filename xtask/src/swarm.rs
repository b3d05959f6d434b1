//! `cargo xtask swarm`: plays random worlds of the simulator that nobody played before, on all
//! cores, under all checkers.
//!
//! The tests play fixed seeds and so can't fail by chance. This command looks for new failures. It
//! reduces a failing seed to a small scenario, to be kept under `scenarios/` with the change that
//! fixes it.

use std::{
    fs, panic,
    path::{Path, PathBuf},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant, SystemTime},
};

use anyhow::{Context, bail};
use posthaste_core::Settings;
use posthaste_sim::swarm;
use posthaste_types::Timestamp;

use crate::{root, test::print};

/// Default duration in minutes, without a time or a number.
const MINUTES: u64 = 10;
/// Seeds that one minute of the calendar has to itself: more worlds than a night plays.
const SEEDS_A_MINUTE: u64 = 100_000;
/// Interval between two progress lines.
const SAID_EVERY: Duration = Duration::from_secs(60);

/// Options of the command line.
struct Options {
    /// Time after which no world begins.
    lasts: Duration,
    /// Number of worlds.
    worlds: u64,
    /// The first seed; each world has the next.
    seed: u64,
}

impl Options {
    fn parse(arguments: &[String]) -> anyhow::Result<Self> {
        let (mut minutes, mut worlds, mut seed) = (None, None, None);
        let mut words = arguments.iter();
        while let Some(word) = words.next() {
            let value = words.next().map(|value| value.parse::<u64>());
            let value = value.with_context(|| format!("{word} wants a value"))?;
            let value = value.with_context(|| format!("{word} wants a number"))?;
            match word.as_str() {
                "--minutes" => minutes = Some(value),
                "--worlds" => worlds = Some(value),
                "--seed" => seed = Some(value),
                _ => bail!("there is no option `{word}`; there are --minutes, --worlds and --seed"),
            }
        }
        let minutes = minutes.or(worlds.is_none().then_some(MINUTES));
        Ok(Self {
            lasts: minutes.map_or(Duration::MAX, |minutes| Duration::from_secs(minutes * 60)),
            worlds: worlds.unwrap_or(u64::MAX),
            seed: seed.unwrap_or_else(|| seed_of(now())),
        })
    }
}

/// Progress of a run.
struct Run {
    options: Options,
    begun: Instant,
    folder: PathBuf,
    /// Worlds begun, and those played to their end.
    next: AtomicU64,
    played: AtomicU64,
    failed: Mutex<Vec<String>>,
}

/// Plays worlds until the time or the number is over, and prints each that fails with the command
/// that plays it again.
///
/// # Errors
/// Fails if a world fails, or its scenario can't be written.
pub fn run(arguments: &[String]) -> anyhow::Result<()> {
    let options = Options::parse(arguments)?;
    let folder = root().join("target/swarm");
    fs::create_dir_all(&folder).with_context(|| format!("make {}", folder.display()))?;
    let cores = thread::available_parallelism().map_or(1, usize::from);
    eprintln!(
        "xtask: worlds from seed {} on, on {cores} cores",
        options.seed
    );
    let run = Run {
        options,
        begun: clock(),
        folder,
        next: AtomicU64::new(0),
        played: AtomicU64::new(0),
        failed: Mutex::default(),
    };
    thread::scope(|scope| {
        for place in 0..cores {
            let run = &run;
            scope.spawn(move || run.play(place == 0));
        }
    });
    let failed = run
        .failed
        .into_inner()
        .unwrap_or_else(PoisonError::into_inner);
    let (played, seed) = (run.played.into_inner(), run.options.seed);
    let took = run.begun.elapsed().as_secs();
    print(&format!(
        "{played} worlds from seed {seed} on played in {took} s, {} failed\n",
        failed.len()
    ));
    if failed.is_empty() {
        return Ok(());
    }
    bail!("these worlds failed:\n{}", failed.join("\n"))
}

impl Run {
    /// Plays one world after the other; one of the threads says how far all are.
    fn play(&self, speaks: bool) {
        let mut said = Duration::ZERO;
        let settings = Settings::default();
        loop {
            let place = self.next.fetch_add(1, Ordering::Relaxed);
            if place >= self.options.worlds || self.begun.elapsed() >= self.options.lasts {
                return;
            }
            let seed = self.options.seed.wrapping_add(place);
            if let Some(failure) = failure(seed, &settings, &self.folder) {
                print(&format!("{failure}\n"));
                let mut failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
                failed.push(failure);
            }
            let played = self.played.fetch_add(1, Ordering::Relaxed) + 1;
            if speaks && self.begun.elapsed() >= said + SAID_EVERY {
                said = self.begun.elapsed();
                eprintln!("xtask: {played} worlds in {} s", said.as_secs());
            }
        }
    }
}

/// Plays one world. Returns what fails in it and how to play it again, as a line.
fn failure(seed: u64, settings: &Settings, folder: &Path) -> Option<String> {
    // A mind that breaks its own assertions fails as well as one that breaks a checker.
    let played = panic::catch_unwind(|| swarm::play(seed, settings));
    let whole = format!("posthaste simulate --swarm 1 --seed {seed}");
    let Ok(failing) = played else {
        return Some(format!(
            "seed {seed}: it panics; play it again with: {whole}"
        ));
    };
    let failing = failing?;
    let path = folder.join(format!("swarm-{seed}.toml"));
    let again = match fs::write(&path, &failing.scenario) {
        Ok(()) => format!("posthaste simulate {} --seed {seed}", path.display()),
        Err(_) => whole,
    };
    let (checker, what) = (failing.checker, failing.what);
    Some(format!(
        "seed {seed}: VIOLATED {checker}: {what}; play it again with: {again}"
    ))
}

/// Returns the first seed of a run that begins then: its year, month, day, hour and minute, and
/// five digits to count on from.
fn seed_of(now: Timestamp) -> u64 {
    let digits = now.to_string();
    let digits = digits.chars().filter(char::is_ascii_digit);
    // Two digits of the year: the seed is exact in JSON as well.
    let digits: String = digits.skip(2).take(10).collect();
    digits.parse::<u64>().unwrap_or_default() * SEEDS_A_MINUTE
}

#[expect(
    clippy::disallowed_methods,
    reason = "a chore of the project, not the mind"
)]
fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    Timestamp::from_secs(since.map_or(0, |since| since.as_secs()))
}

#[expect(
    clippy::disallowed_methods,
    reason = "a chore of the project, not the mind"
)]
fn clock() -> Instant {
    Instant::now()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(arguments: &str) -> anyhow::Result<Options> {
        let words: Vec<String> = arguments.split_whitespace().map(Into::into).collect();
        Options::parse(&words)
    }

    #[test]
    fn a_seed_says_when_it_was_drawn() {
        let at = Timestamp::from_secs(1_795_978_080);
        assert_eq!(at.to_string(), "2026-11-29 18:48:00Z");
        assert_eq!(seed_of(at), 261_129_184_800_000);
    }

    #[test]
    fn a_run_ends_by_time_unless_a_number_is_given() {
        let both = options("--minutes 30 --worlds 100000").unwrap();
        assert_eq!((both.lasts.as_secs(), both.worlds), (1800, 100_000));
        assert_eq!(options("").unwrap().lasts.as_secs(), MINUTES * 60);
        let counted = options("--worlds 5 --seed 7").unwrap();
        assert_eq!(
            (counted.lasts, counted.worlds, counted.seed),
            (Duration::MAX, 5, 7)
        );
        for wrong in ["--worlds", "--minutes ten", "--rounds 3"] {
            assert!(options(wrong).is_err(), "{wrong}");
        }
    }
}
