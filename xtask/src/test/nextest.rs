//! The runner of the tests, cargo-nextest, and the report it leaves.

use std::{
    env,
    ffi::OsString,
    fs::{self, File},
    iter,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
};

use anyhow::{Context, ensure};
use posthaste_testbed::install;
use serde::Deserialize;

use super::Profile;
use crate::{cargo, root, shown};

/// Tests that run at once, for each core: most of them wait for servers, links and clocks.
const AT_ONCE_PER_CORE: usize = 4;
/// Exit codes of nextest: tests fail, and nothing else does; no test was chosen.
const TESTS_FAIL: i32 = 100;
const NO_TESTS: i32 = 4;

/// The installed runner.
pub struct Nextest {
    program: PathBuf,
    /// Locked while this lives: runs of one checkout leave their reports in one place.
    _alone: File,
}

/// A run of tests.
pub struct Run<'a> {
    pub profile: Profile,
    /// Names and options that choose among all tests.
    pub arguments: &'a [String],
    /// Tests that run at once.
    pub at_once: usize,
}

impl Run<'_> {
    /// Returns a run of every test.
    pub fn new(profile: Profile) -> Self {
        let cores = thread::available_parallelism().map_or(1, usize::from);
        Self {
            profile,
            arguments: &[],
            at_once: AT_ONCE_PER_CORE * cores,
        }
    }
}

/// A test's name: its file of tests, and its path there.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Name {
    /// File of tests as nextest writes it: `posthaste-cli::slurm`.
    pub binary: String,
    pub test: String,
}

impl Name {
    /// Returns the expression that chooses this test alone.
    pub fn filter(&self) -> String {
        format!("(binary_id(={}) & test(={}))", self.binary, self.test)
    }
}

impl std::fmt::Display for Name {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.binary, self.test)
    }
}

/// Outcome of one test.
#[derive(Debug, Clone, PartialEq)]
pub struct Outcome {
    pub name: Name,
    pub seconds: f64,
    /// Output of the test, if it failed.
    pub failure: Option<String>,
}

/// Outcomes of the tests of one run.
#[derive(Debug, Default, PartialEq)]
pub struct Report {
    pub outcomes: Vec<Outcome>,
}

impl Report {
    /// Lists the tests that failed.
    pub fn failed(&self) -> impl Iterator<Item = &Outcome> {
        self.outcomes
            .iter()
            .filter(|outcome| outcome.failure.is_some())
    }
}

impl Nextest {
    /// Installs the runner if it is missing, and waits until nobody else runs the tests of this
    /// checkout.
    ///
    /// # Errors
    /// Fails if no registry serves it, or with an error of the operating system.
    pub fn install() -> anyhow::Result<Self> {
        let program =
            install::ensure_cargo_program(install::NEXTEST).context("can't have cargo-nextest")?;
        let folder = root().join("target/nextest");
        fs::create_dir_all(&folder).with_context(|| format!("make {}", folder.display()))?;
        let path = folder.join("running");
        let alone = File::create(&path).with_context(|| format!("open {}", path.display()))?;
        if alone.try_lock().is_err() {
            eprintln!("xtask: waiting for another run of the tests of this checkout");
            alone
                .lock()
                .with_context(|| format!("lock {}", path.display()))?;
        }
        Ok(Self {
            program,
            _alone: alone,
        })
    }

    /// Builds every test of the workspace.
    ///
    /// # Errors
    /// Fails if one doesn't build.
    pub fn build(&self, profile: Profile) -> anyhow::Result<()> {
        crate::succeed(self.command("run", profile).arg("--no-run"))
    }

    /// Counts the tests of the workspace.
    ///
    /// # Errors
    /// Fails if they can't be listed.
    pub fn count(&self, profile: Profile) -> anyhow::Result<usize> {
        let mut command = self.command("list", profile);
        let output = command
            .args(["--message-format", "json"])
            .stderr(Stdio::inherit())
            .output()
            .with_context(|| format!("can't run `{}`", shown(&command)))?;
        ensure!(
            output.status.success(),
            "the tests can't be listed: {}",
            output.status
        );
        let list: serde_json::Value = serde_json::from_slice(&output.stdout)?;
        let suites = list["rust-suites"].as_object();
        let suites = suites.context("cargo-nextest doesn't say which tests there are")?;
        let tests = suites.values().flat_map(|suite| {
            let tests = suite["testcases"].as_object();
            tests.into_iter().flat_map(serde_json::Map::values)
        });
        // Tests left to the night are listed too.
        let is_run = |test: &&serde_json::Value| test["filter-match"]["status"] == "matches";
        Ok(tests.filter(is_run).count())
    }

    /// Runs tests to the last one, and returns the outcome of each.
    ///
    /// # Errors
    /// Fails if one doesn't build, none is chosen, or the runner itself fails.
    pub fn run(&self, run: &Run<'_>) -> anyhow::Result<Report> {
        let mut command = self.start(run)?;
        let status = command
            .status()
            .with_context(|| format!("can't run `{}`", shown(&command)))?;
        Self::finish(run, status)
    }

    /// Makes the command of a run, with no report of an earlier one left.
    ///
    /// # Errors
    /// Fails if an earlier report can't be removed.
    pub fn start(&self, run: &Run<'_>) -> anyhow::Result<Command> {
        let report = report_path(run.profile);
        if report.exists() {
            fs::remove_file(&report).with_context(|| format!("remove {}", report.display()))?;
        }
        let mut command = self.command("run", run.profile);
        command
            .args(["--no-fail-fast", "--retries", "0", "--test-threads"])
            .arg(run.at_once.to_string())
            .args(run.arguments);
        eprintln!("xtask: {}", shown(&command));
        Ok(command)
    }

    /// Reads the report of a run that ended with `status`.
    ///
    /// # Errors
    /// Fails if the runner failed, or ran no test.
    pub fn finish(run: &Run<'_>, status: std::process::ExitStatus) -> anyhow::Result<Report> {
        ensure!(
            status.code() != Some(NO_TESTS),
            "no test has this name: {} (`cargo xtask test` without a name runs all)",
            run.arguments.join(" ")
        );
        ensure!(
            status.success() || status.code() == Some(TESTS_FAIL),
            "cargo-nextest failed: {status}"
        );
        let path = report_path(run.profile);
        let text =
            fs::read_to_string(&path).with_context(|| format!("can't read {}", path.display()))?;
        let report = read(&text).with_context(|| format!("can't read {}", path.display()))?;
        ensure!(!report.outcomes.is_empty(), "cargo-nextest reports no test");
        ensure!(
            status.success() == report.failed().next().is_none(),
            "cargo-nextest ended with {status}, and its report says otherwise"
        );
        Ok(report)
    }

    /// Returns a command of nextest over the workspace.
    fn command(&self, verb: &str, profile: Profile) -> Command {
        // The environment and the place are those of cargo.
        let plain = cargo(&[]);
        let mut command = Command::new(&self.program);
        command
            .args(["nextest", verb, "--workspace", "--locked"])
            .args(["--profile", profile.name()])
            // The programs of `examples` are built by their callers, and checked with the lints.
            .args(["--lib", "--bins", "--tests"])
            .current_dir(root())
            // The place and the words of a failed test suffice; a hundred frames hide them.
            .env("RUST_BACKTRACE", "0");
        if let Some(path) = path_with_python() {
            command.env("PATH", path);
        }
        for (name, value) in plain.get_envs() {
            if value.is_none() {
                command.env_remove(name);
            }
        }
        command
    }
}

/// Returns `PATH` with the folder of the Python interpreter first; `None` without one. A version
/// manager (pyenv, asdf) puts a script there that looks for it, a fifth of a second of a core each
/// time, and tests start hundreds of programs in Python.
fn path_with_python() -> Option<OsString> {
    let asked = Command::new("python3")
        .args(["-c", "import sys; print(sys.executable)"])
        .output()
        .ok()?;
    let interpreter = PathBuf::from(String::from_utf8(asked.stdout).ok()?.trim());
    #[expect(clippy::disallowed_methods, reason = "the programs of the machine")]
    let path = env::var_os("PATH")?;
    let folder = interpreter.parent()?.to_owned();
    env::join_paths(iter::once(folder).chain(env::split_paths(&path))).ok()
}

/// Returns nextest's path of a profile's report.
fn report_path(profile: Profile) -> PathBuf {
    Path::new(&root())
        .join("target/nextest")
        .join(profile.name())
        .join("junit.xml")
}

/// A report in the form of JUnit, as far as it is read here.
#[derive(Deserialize)]
struct Suites {
    #[serde(rename = "testsuite", default)]
    suites: Vec<Suite>,
}

#[derive(Deserialize)]
struct Suite {
    #[serde(rename = "@name")]
    name: String,
    #[serde(rename = "testcase", default)]
    cases: Vec<Case>,
}

#[derive(Deserialize)]
struct Case {
    #[serde(rename = "@name")]
    name: String,
    #[serde(rename = "@time")]
    seconds: f64,
    /// The test failed.
    failure: Option<Failure>,
    /// The test could not be run to its end.
    error: Option<Failure>,
    #[serde(rename = "system-out")]
    output: Option<String>,
    #[serde(rename = "system-err")]
    errors: Option<String>,
}

#[derive(Deserialize)]
struct Failure {
    #[serde(rename = "@type", default)]
    kind: String,
    #[serde(rename = "$text", default)]
    words: String,
}

/// Lines kept of a test's output if it did not report the reason of its failure.
const LAST_LINES: usize = 8;

impl Case {
    /// Returns the reason of the failure, if it failed.
    fn words(self) -> Option<String> {
        let failure = self.failure.or(self.error)?;
        let mut words = format!("{}: {}", failure.kind, failure.words);
        if !words.contains("panicked at") {
            let printed = [self.output, self.errors].map(Option::unwrap_or_default);
            for text in printed {
                let lines: Vec<&str> = text.lines().collect();
                let last = &lines[lines.len().saturating_sub(LAST_LINES)..];
                words = [&[words.as_str()], last].concat().join("\n");
            }
        }
        Some(words)
    }
}

/// Reads a report in the form of JUnit.
fn read(text: &str) -> anyhow::Result<Report> {
    let suites: Suites = quick_xml::de::from_str(text)?;
    let mut report = Report::default();
    for suite in suites.suites {
        for case in suite.cases {
            report.outcomes.push(Outcome {
                name: Name {
                    binary: suite.name.clone(),
                    test: case.name.clone(),
                },
                seconds: case.seconds,
                failure: case.words(),
            });
        }
    }
    Ok(report)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_says_how_each_test_ended() {
        let text = r#"<?xml version="1.0" encoding="UTF-8"?>
<testsuites name="nextest-run" tests="3" failures="1" errors="1" uuid="x" timestamp="t" time="1.5">
    <testsuite name="posthaste-cli::slurm" tests="2" disabled="0" errors="0" failures="1">
        <testcase name="held::a" classname="posthaste-cli::slurm" timestamp="t" time="1.250">
        </testcase>
        <testcase name="held::b" classname="posthaste-cli::slurm" timestamp="t" time="0.250">
            <failure message="m" type="test failure with exit code 101">left: &lt;1&gt;
right: 2</failure>
            <system-out>running 1 test</system-out>
        </testcase>
    </testsuite>
    <testsuite name="posthaste-types" tests="1" disabled="0" errors="1" failures="0">
        <testcase name="c" classname="posthaste-types" timestamp="t" time="0.001">
            <error type="test timeout"/>
        </testcase>
    </testsuite>
</testsuites>"#;
        let report = read(text).unwrap();
        let failed: Vec<_> = report.failed().collect();
        assert_eq!((report.outcomes.len(), failed.len()), (3, 2));
        assert_eq!(
            failed[0].name.filter(),
            "(binary_id(=posthaste-cli::slurm) & test(=held::b))"
        );
        assert_eq!(
            failed[0].failure.as_deref(),
            Some("test failure with exit code 101: left: <1>\nright: 2\nrunning 1 test")
        );
        assert_eq!(failed[1].failure.as_deref(), Some("test timeout: "));
    }
}
