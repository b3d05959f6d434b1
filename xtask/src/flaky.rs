//! `cargo xtask flaky`: tests that fail by chance, and how often.
//!
//! Every test runs again and again as CI runs it, but on a machine that is busy: a loop fills each
//! core, and processes of the tests stand still now and then.

mod load;
mod table;

use std::{fs, path::Path};

use anyhow::{Context, bail, ensure};

use crate::{
    bench::figures::facts,
    root,
    test::{
        Profile, chosen,
        nextest::{Nextest, Report, Run},
        print, servers,
    },
};
use load::Load;
use table::Table;

/// Default rounds: a test that fails once in ten shows with 96 %.
const ROUNDS: usize = 30;

/// Options of the command line.
struct Options {
    rounds: usize,
    /// Seed that chooses which processes stand still, and when.
    seed: u64,
    /// True if nothing else keeps the machine busy.
    calm: bool,
    /// Names of tests, and options of nextest.
    words: Vec<String>,
}

impl Options {
    fn parse(arguments: &[String]) -> anyhow::Result<Self> {
        let mut options = Self {
            rounds: ROUNDS,
            seed: 1,
            calm: false,
            words: Vec::new(),
        };
        let mut words = arguments.iter();
        while let Some(word) = words.next() {
            let mut value = || {
                words
                    .next()
                    .with_context(|| format!("{word} wants a value"))
            };
            match word.as_str() {
                "--rounds" => {
                    options.rounds = value()?.parse().context("--rounds wants a number")?
                }
                "--seed" => options.seed = value()?.parse().context("--seed wants a number")?,
                "--calm" => options.calm = true,
                _ => options.words.push(word.clone()),
            }
        }
        options.words = chosen(&options.words);
        ensure!(options.rounds > 0, "--rounds wants at least 1");
        Ok(options)
    }
}

/// Runs the tests that `arguments` choose in rounds, and prints which of them failed how often.
///
/// # Errors
/// Fails if a test fails, or the tests can't be run.
pub fn run(arguments: &[String]) -> anyhow::Result<()> {
    let options = Options::parse(arguments)?;
    servers::install(true)?;
    let nextest = Nextest::install()?;
    nextest.build(Profile::Strict)?;
    let folder = root().join("target/flaky");
    if folder.exists() {
        fs::remove_dir_all(&folder).with_context(|| format!("remove {}", folder.display()))?;
    }
    fs::create_dir_all(&folder).with_context(|| format!("make {}", folder.display()))?;
    let mut table = Table::default();
    for round in 1..=options.rounds {
        eprintln!("xtask: round {round} of {}", options.rounds);
        let report = play(&nextest, &options, round)?;
        table.add(&report);
        keep_words(&folder, round, &report)?;
        // Written after each round, so that an interrupted run keeps its results.
        let path = folder.join("table.md");
        fs::write(&path, table.to_string()).with_context(|| format!("write {}", path.display()))?;
    }
    print(&format!("{}\n{table}", facts()));
    if table.failing() > 0 {
        bail!(
            "{} tests failed; what they said is in {}",
            table.failing(),
            folder.display()
        );
    }
    Ok(())
}

/// Plays one round.
fn play(nextest: &Nextest, options: &Options, round: usize) -> anyhow::Result<Report> {
    let run = Run {
        arguments: &options.words,
        ..Run::new(Profile::Strict)
    };
    let mut command = nextest.start(&run)?;
    let (name, value) = load::mark();
    command.env(name, value);
    let load = (!options.calm).then(|| Load::start(options.seed.wrapping_add(round as u64)));
    let status = command.status().context("can't run cargo-nextest")?;
    drop(load);
    Nextest::finish(&run, status)
}

/// Keeps all output of the failed tests of a round.
fn keep_words(folder: &Path, round: usize, report: &Report) -> anyhow::Result<()> {
    for outcome in report.failed() {
        let name = outcome.name.to_string().replace([':', ' ', '/'], "-");
        let path = folder.join(format!("{name}.{round}.txt"));
        let words = outcome.failure.as_deref().unwrap_or_default();
        fs::write(&path, words).with_context(|| format!("write {}", path.display()))?;
    }
    Ok(())
}
