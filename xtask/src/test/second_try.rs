//! Meaning of a failure: a failed test runs again, with nothing beside it. A test that passes then
//! is flaky.

use super::{
    Profile,
    nextest::{Name, Nextest, Report, Run},
};

/// Times that a test which failed is run again, at most.
const TRIES_MAX: usize = 2;
/// Flaky tests with which a run is still accepted.
const FLAKY_MAX: usize = 5;
/// Failures from which on nothing is tried again, and their longest total time, in seconds: so many
/// are not chance, and a hanging test may hang again.
const TRIED_AGAIN_MAX: usize = 20;
const TRIED_AGAIN_MAX_S: f64 = 1_800.0;
/// Lines of a failure that are shown once more at the end.
const LINES_MAX: usize = 12;

/// A test that failed first, and its words then.
pub struct Failed {
    pub name: Name,
    pub words: String,
}

/// Judgement of a run.
pub struct Verdict {
    /// Tests that passed, the flaky ones among them.
    pub passed: usize,
    pub failed: Vec<Failed>,
    pub flaky: Vec<Failed>,
}

impl Verdict {
    /// Returns whether few enough tests are flaky.
    pub fn is_accepted(&self) -> bool {
        self.failed.is_empty() && self.flaky.len() <= FLAKY_MAX
    }

    /// Lists each failed test, with the words of its first failure, and counts the flaky ones.
    pub fn summary(&self) -> String {
        let mut lines = Vec::new();
        for (kind, tests) in [("FAILED", &self.failed), ("FLAKY", &self.flaky)] {
            for test in tests {
                lines.push(format!("{kind} {}\n", test.name));
                let words = test.words.lines().take(LINES_MAX);
                lines.extend(words.map(|line| format!("    {line}\n")));
            }
        }
        lines.push(format!("{} flaky\n", self.flaky.len()));
        lines.concat()
    }

    /// Says why the run is not accepted.
    pub fn objection(&self, failed: usize) -> String {
        if failed > 0 {
            return format!("{failed} tests fail");
        }
        format!(
            "{} tests are flaky, {FLAKY_MAX} may be: mend them, `cargo xtask flaky` shows how often they fail",
            self.flaky.len()
        )
    }
}

/// Runs each test that failed again, alone, and judges by that.
///
/// # Errors
/// Fails if the runner itself fails.
pub fn judge(nextest: &Nextest, profile: Profile, report: &Report) -> anyhow::Result<Verdict> {
    let mut failed: Vec<Failed> = report
        .failed()
        .map(|outcome| Failed {
            name: outcome.name.clone(),
            words: outcome.failure.clone().unwrap_or_default(),
        })
        .collect();
    let mut flaky = Vec::new();
    let tries = match profile {
        Profile::Ci if may_be_chance(report) => TRIES_MAX,
        Profile::Ci => {
            eprintln!(
                "xtask: {} tests failed: so many, or such long ones, are not tried again",
                failed.len()
            );
            0
        }
        Profile::Strict => 0,
    };
    for _ in 0..tries {
        if failed.is_empty() {
            break;
        }
        let again = try_again(nextest, profile, &failed)?;
        let still = |test: &Failed| again.failed().any(|outcome| outcome.name == test.name);
        let (failing, passing) = failed.into_iter().partition(still);
        failed = failing;
        flaky.extend::<Vec<Failed>>(passing);
    }
    Ok(Verdict {
        passed: report.outcomes.len() - failed.len(),
        failed,
        flaky,
    })
}

/// Returns whether few enough tests failed, in short enough a time, to run them again.
fn may_be_chance(report: &Report) -> bool {
    let seconds: f64 = report.failed().map(|outcome| outcome.seconds).sum();
    report.failed().count() <= TRIED_AGAIN_MAX && seconds <= TRIED_AGAIN_MAX_S
}

/// Runs these tests one after the other.
fn try_again(nextest: &Nextest, profile: Profile, tests: &[Failed]) -> anyhow::Result<Report> {
    let filters: Vec<String> = tests.iter().map(|test| test.name.filter()).collect();
    let arguments = ["-E".to_owned(), filters.join(" | ")];
    let report = nextest.run(&Run {
        profile,
        arguments: &arguments,
        at_once: 1,
    })?;
    // A test that was not run again did not pass.
    for test in tests {
        let ran = report
            .outcomes
            .iter()
            .any(|outcome| outcome.name == test.name);
        anyhow::ensure!(ran, "{} was not run again", test.name);
    }
    Ok(report)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test::nextest::Outcome;

    fn failures(count: usize, seconds: f64) -> Report {
        let outcome = |place: usize| Outcome {
            name: Name {
                binary: "a".into(),
                test: format!("t{place}"),
            },
            seconds,
            failure: Some("test timeout: ".into()),
        };
        Report {
            outcomes: (0..count).map(outcome).collect(),
        }
    }

    #[test]
    fn many_failures_and_long_ones_are_not_chance() {
        assert!(may_be_chance(&failures(20, 60.0)));
        assert!(!may_be_chance(&failures(21, 1.0)));
        assert!(may_be_chance(&failures(1, 1_200.0)));
        assert!(!may_be_chance(&failures(2, 1_200.0)));
    }
}
