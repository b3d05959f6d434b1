//! `cargo xtask test`: all tests, on a machine that may have nothing but Rust yet.

mod examples;
pub mod nextest;
mod second_try;
pub mod servers;

use std::{
    io::{Write as _, stdout},
    path::PathBuf,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, bail, ensure};

use crate::root;
use nextest::{Nextest, Run};
use posthaste_testbed::is_night;

/// Time of a first run on two quiet cores, in minutes; later ones build and install next to
/// nothing.
const FIRST_RUN_MIN: u32 = 35;
const LATER_RUN_MIN: u32 = 20;

/// Rule for judging the outcome of a run. Each is a profile of `.config/nextest.toml` of the same
/// name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Profile {
    /// Tries a test that fails again, at the end.
    Ci,
    /// Knows no second try, and leaves no test out.
    Strict,
}

impl Profile {
    /// Returns its name in `.config/nextest.toml`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ci => "ci",
            Self::Strict => "strict",
        }
    }

    fn parse(name: &str) -> anyhow::Result<Self> {
        match name {
            "ci" => Ok(Self::Ci),
            "strict" => Ok(Self::Strict),
            _ => bail!("there is no profile `{name}`: ci, strict"),
        }
    }
}

/// Installs what the tests need, then runs every test of the workspace, those in documentation too.
/// A name among `arguments` runs only the file of tests or the tests that have it.
///
/// # Errors
/// Fails if something is missing and can't be installed, or a test fails.
pub fn run(arguments: &[String]) -> anyhow::Result<()> {
    let (mut profile, mut words) = (None, Vec::new());
    let mut rest = arguments.iter();
    while let Some(word) = rest.next() {
        if word == "--profile" {
            let name = rest.next().context("--profile wants a name")?;
            profile = Some(Profile::parse(name)?);
        } else {
            words.push(word.clone());
        }
    }
    if words.is_empty() {
        run_all(profile.unwrap_or(Profile::Ci))
    } else {
        run_some(profile.unwrap_or(Profile::Strict), &words)
    }
}

/// Runs the files of tests and the tests that `words` name. A word with a dash goes to nextest as
/// it is.
fn run_some(profile: Profile, words: &[String]) -> anyhow::Result<()> {
    servers::install(is_night() || words.iter().any(|word| word.contains("minio")))?;
    let nextest = Nextest::install()?;
    let report = nextest.run(&Run {
        arguments: &chosen(words),
        ..Run::new(profile)
    })?;
    ensure!(
        report.failed().next().is_none(),
        "{} of {} tests fail",
        report.failed().count(),
        report.outcomes.len()
    );
    Ok(())
}

/// Returns the arguments of nextest that choose what `words` name: files of tests, tests, and
/// options as they are.
pub fn chosen(words: &[String]) -> Vec<String> {
    let mut arguments: Vec<String> = Vec::new();
    for word in words {
        let is_value = arguments.last().is_some_and(|last| last.starts_with('-'));
        match file_of_tests(word).filter(|_| !is_value) {
            Some(FileOfTests::Program) => arguments.extend(["--test".to_owned(), word.clone()]),
            Some(FileOfTests::Module) => {
                arguments.extend(["-E".to_owned(), format!("test(/^{word}::/)")]);
            }
            None => arguments.push(word.clone()),
        }
    }
    arguments
}

/// Kind of a file of tests.
#[derive(Debug, PartialEq, Eq)]
enum FileOfTests {
    /// A program of its own.
    Program,
    /// A module in one program with all others of its crate.
    Module,
}

/// Returns the kind of the file of tests of this name; `None` if no crate has one.
fn file_of_tests(name: &str) -> Option<FileOfTests> {
    let crates = root().join("crates").read_dir().into_iter().flatten();
    let crates = crates.flatten().map(|entry| entry.path());
    let folders: Vec<PathBuf> = crates
        .chain([root().join("lab")])
        .map(|folder| folder.join("tests"))
        .collect();
    let file = format!("{name}.rs");
    let is_module = |tests: &PathBuf| tests.join("all").join(&file).is_file();
    let is_program =
        |tests: &PathBuf| tests.join(&file).is_file() || tests.join(name).join("main.rs").is_file();
    if folders.iter().any(is_module) {
        return Some(FileOfTests::Module);
    }
    folders
        .iter()
        .any(is_program)
        .then_some(FileOfTests::Program)
}

/// Runs everything. The last line it prints counts what passed and what failed.
fn run_all(profile: Profile) -> anyhow::Result<()> {
    eprintln!(
        "xtask: on two quiet cores this takes about {FIRST_RUN_MIN} minutes the first time, later {LATER_RUN_MIN}: \
         servers are installed while the tests are built, then all of them run"
    );
    let nextest = step("nextest", Nextest::install)?;
    thread::scope(|scope| {
        let servers =
            scope.spawn(|| step("servers", || servers::install(profile == Profile::Strict)));
        let built = step("build", || nextest.build(profile));
        let installed = servers.join();
        built.and(installed.unwrap_or_else(|_| bail!("installing the servers panicked")))
    })?;
    let count = nextest.count(profile)?;
    let report = step("tests", || nextest.run(&Run::new(profile)))?;
    // A runner that is stopped reports its results so far.
    ensure!(
        report.outcomes.len() == count,
        "{} of {count} tests were run",
        report.outcomes.len()
    );
    let verdict = step("second tries", || {
        second_try::judge(&nextest, profile, &report)
    })?;
    let examples = step("examples", examples::run)?;
    let passed = verdict.passed + examples.passed;
    let failed = verdict.failed.len() + examples.failed;
    print(&format!(
        "{}{passed} passed, {failed} failed\n",
        verdict.summary()
    ));
    ensure!(
        failed == 0 && verdict.is_accepted(),
        "{}",
        verdict.objection(failed)
    );
    Ok(())
}

/// Runs one step, and reports its name and duration.
fn step<T>(name: &str, run: impl FnOnce() -> anyhow::Result<T>) -> anyhow::Result<T> {
    eprintln!("xtask: {name} …");
    let started = now();
    let outcome = run();
    eprintln!("xtask: {name} took {} s", since(started).as_secs());
    outcome
}

/// Prints a text; it ignores a missing reader.
pub fn print(text: &str) {
    let _ = stdout().write_all(text.as_bytes());
}

#[expect(
    clippy::disallowed_methods,
    reason = "a person is told how long it took"
)]
fn now() -> Instant {
    Instant::now()
}

fn since(started: Instant) -> Duration {
    now().duration_since(started)
}
