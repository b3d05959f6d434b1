//! Text of reports about figures and the machine they were taken on.

use std::{fs, path::Path, process::Command};

use anyhow::{Context, bail, ensure};

use crate::root;

/// Parses `--runs N` and `--seconds N`: the number of measurements of each case, and their length.
///
/// # Errors
/// Fails if there is another word, or one of them is no number above 0.
pub fn runs_and_seconds(arguments: &[String], usual: (usize, u64)) -> anyhow::Result<(usize, u64)> {
    let (mut runs, mut seconds) = usual;
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        let value = words
            .next()
            .with_context(|| format!("{word} wants a value"))?;
        match word.as_str() {
            "--runs" => runs = value.parse().context("--runs wants a number")?,
            "--seconds" => seconds = value.parse().context("--seconds wants a number")?,
            _ => bail!("there is no option {word}"),
        }
    }
    ensure!(
        runs > 0 && seconds > 0,
        "--runs and --seconds want at least 1"
    );
    Ok((runs, seconds))
}

/// Median of several measurements, and their range.
#[derive(Debug, Clone, Copy)]
pub struct Spread {
    pub median: f64,
    pub least: f64,
    pub most: f64,
}

impl Spread {
    /// Returns the spread of one figure of each sample; not a number without samples.
    pub fn of<T>(samples: &[T], figure: impl Fn(&T) -> f64) -> Self {
        let mut figures: Vec<f64> = samples.iter().map(figure).collect();
        figures.sort_by(f64::total_cmp);
        let at = |index: usize| figures.get(index).copied().unwrap_or(f64::NAN);
        let half = figures.len() / 2;
        let median = if figures.len() % 2 == 1 {
            at(half)
        } else {
            f64::midpoint(at(half.saturating_sub(1)), at(half))
        };
        Self {
            median,
            least: at(0),
            most: at(figures.len().saturating_sub(1)),
        }
    }
}

impl std::fmt::Display for Spread {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:.2} ({:.2}-{:.2})", self.median, self.least, self.most)
    }
}

/// Returns the commit and the machine that figures belong to, as items of a list; `folder` is that
/// of the files.
pub fn machine(folder: &Path) -> String {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let field = |text: &str, name: &str| -> String {
        let line = text.lines().find(|line| line.starts_with(name));
        let value = line
            .and_then(|line| line.split_once(':'))
            .map(|(_, value)| value.trim());
        value.unwrap_or("unknown").to_owned()
    };
    let processor = field(&read("/proc/cpuinfo"), "model name");
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let memory = field(&read("/proc/meminfo"), "MemTotal");
    let kernel = read("/proc/sys/kernel/osrelease").trim().to_owned();
    let disk = Command::new("df")
        .args(["--output=fstype"])
        .arg(folder)
        .output()
        .map(|output| {
            String::from_utf8_lossy(&output.stdout)
                .lines()
                .last()
                .unwrap_or("")
                .to_owned()
        })
        .unwrap_or_default();
    format!(
        "- commit: {}\n- machine: {processor}, {cores} cores, {memory} of memory, Linux {kernel}, files on \
         {disk}\n",
        commit()
    )
}

/// Returns the same for figures that need no files.
pub fn facts() -> String {
    machine(&root())
}

/// Returns the commit that is built here.
pub fn commit() -> String {
    let commit = Command::new("git")
        .args(["describe", "--always", "--dirty"])
        .current_dir(root())
        .output();
    let commit = commit.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    let commit = commit.unwrap_or_default();
    first_line(&commit).to_owned()
}

/// Returns the text with a capital first letter.
pub fn capitalized(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| {
        first.to_uppercase().chain(letters).collect()
    })
}

/// Returns its first line, or nothing.
pub fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_are_in_the_middle() {
        let figures = [3.0, 1.0, 2.0, 10.0];
        let odd = Spread::of(&figures[..3], |figure| *figure);
        assert_eq!((odd.least, odd.median, odd.most), (1.0, 2.0, 3.0));
        let even = Spread::of(&figures, |figure| *figure);
        assert!((even.median - 2.5).abs() < 1e-9);
    }
}
