//! Failures of each test.

use std::{collections::BTreeMap, fmt};

use crate::test::nextest::{Name, Report};

/// Characters of a failure in the table.
const WORDS_MAX: usize = 160;

/// Failures of each test over several rounds.
#[derive(Default)]
pub struct Table {
    rounds: usize,
    /// Sum of the times of all tests of the rounds.
    seconds: f64,
    tests: usize,
    failures: BTreeMap<Name, Failures>,
}

struct Failures {
    count: usize,
    /// Words of its first failure.
    words: String,
}

impl Table {
    /// Counts the outcomes of one more round.
    pub fn add(&mut self, report: &Report) {
        self.rounds += 1;
        self.tests = self.tests.max(report.outcomes.len());
        self.seconds += report
            .outcomes
            .iter()
            .map(|outcome| outcome.seconds)
            .sum::<f64>();
        for outcome in report.failed() {
            let words = outcome.failure.as_deref().unwrap_or_default();
            let failures = self.failures.entry(outcome.name.clone());
            let failures = failures.or_insert_with(|| Failures {
                count: 0,
                words: first_words(words),
            });
            failures.count += 1;
        }
    }

    /// Returns how many tests failed at least once.
    pub fn failing(&self) -> usize {
        self.failures.len()
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "| test | failures in {} | what it said |", self.rounds)?;
        writeln!(f, "|---|---|---|")?;
        for (name, failures) in &self.failures {
            writeln!(f, "| `{name}` | {} | {} |", failures.count, failures.words)?;
        }
        writeln!(
            f,
            "\n{} of {} tests failed at least once in {} rounds of {:.0} minutes of tests each.",
            self.failures.len(),
            self.tests,
            self.rounds,
            self.seconds / 60.0 / self.rounds.max(1) as f64
        )
    }
}

/// Returns the line after the one with the place of a panic, fit for a cell of a table.
fn first_words(text: &str) -> String {
    let mut lines = text.lines();
    let place = lines.find(|line| line.contains("panicked at"));
    let line = place
        .and_then(|_| lines.next())
        .or_else(|| text.lines().next());
    let words = line.unwrap_or_default().replace('|', "\\|");
    words.chars().take(WORDS_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test::nextest::Outcome;

    fn report(failures: &[Option<&str>]) -> Report {
        let outcomes = failures.iter().enumerate().map(|(place, failure)| Outcome {
            name: Name {
                binary: "a".into(),
                test: format!("t{place}"),
            },
            seconds: 60.0,
            failure: failure.map(str::to_owned),
        });
        Report {
            outcomes: outcomes.collect(),
        }
    }

    #[test]
    fn failures_are_counted_over_rounds() {
        let mut table = Table::default();
        table.add(&report(&[
            None,
            Some("thread 'x' panicked at a.rs:1:2:\nleft | right\nmore"),
        ]));
        table.add(&report(&[None, Some("test timeout: ")]));
        table.add(&report(&[None, None]));
        assert_eq!(
            table.to_string(),
            "| test | failures in 3 | what it said |\n|---|---|---|\n| `a t1` | 2 | left \\| right |\n\n\
             1 of 2 tests failed at least once in 3 rounds of 2 minutes of tests each.\n"
        );
    }
}
