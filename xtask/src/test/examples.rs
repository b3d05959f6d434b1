//! Examples in the documentation: the one kind of test that nextest doesn't run.

use std::process::Stdio;

use anyhow::Context;

use super::print;
use crate::cargo;

/// Examples of the workspace that pass and that fail.
pub struct Counts {
    pub passed: usize,
    pub failed: usize,
}

/// Runs the examples of every crate.
///
/// # Errors
/// Fails if cargo can't be run.
pub fn run() -> anyhow::Result<Counts> {
    let output = cargo(&["test", "--workspace", "--locked", "--doc", "--no-fail-fast"])
        .stderr(Stdio::inherit())
        .output()
        .context("can't run `cargo test --doc`")?;
    let text = String::from_utf8_lossy(&output.stdout);
    print(&text);
    let mut counts = count(&text);
    if !output.status.success() && counts.failed == 0 {
        eprintln!("xtask: `cargo test --doc` failed: {}", output.status);
        counts.failed = 1;
    }
    Ok(counts)
}

/// Adds up the closing lines of cargo's own runner.
fn count(text: &str) -> Counts {
    let mut counts = Counts {
        passed: 0,
        failed: 0,
    };
    for line in text.lines() {
        let Some(line) = line.strip_prefix("test result: ") else {
            continue;
        };
        let number = |of: &str| -> usize {
            let words: Vec<&str> = line.split(' ').collect();
            let place = words
                .iter()
                .position(|word| word.trim_end_matches(';') == of);
            let number = place.and_then(|place| words.get(place.checked_sub(1)?));
            number.and_then(|word| word.parse().ok()).unwrap_or(0)
        };
        counts.passed += number("passed");
        counts.failed += number("failed");
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn closing_lines_are_added_up() {
        let counts = count(
            "running 2 tests\n\
             test result: ok. 2 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.31s\n\
             test a ... ok\n\
             test result: FAILED. 1 passed; 3 failed; 0 ignored; 0 measured; 0 filtered out\n",
        );
        assert_eq!((counts.passed, counts.failed), (3, 3));
    }
}
