//! The report: medians, ranges, and how posthaste stands to the best rival.

use std::{fmt::Write, fs, path::Path, process::Command};

use posthaste_testbed::install;

use super::{
    Load, Row,
    contender::{Contender, Direction},
    measure::Sample,
};

/// The whole report.
pub fn write(rows: &[Row], contenders: &[Contender], folder: &Path, runs: usize) -> String {
    let mut text = String::from(
        "# Copy beside its rivals\n\n\
         Written by `cargo xtask bench copy`; run it to get your machine's figures. Every contender \
         runs with its defaults, each time as a fresh process against a clean destination, in \
         turns; the page cache is warm and `sync` runs before each start. Figures are medians",
    );
    let _ = writeln!(
        text,
        " of {runs}, ranges in parentheses. CPU is the client's, user and system; the S3 server \
         works on the same machine beside it.\n"
    );
    text.push_str(&machine(folder));
    for contender in contenders {
        let version = match &contender.program {
            Ok(_) => contender
                .version()
                .unwrap_or_else(|| "unknown version".to_owned()),
            Err(reason) => format!("could not be had: {}", first_line(reason)),
        };
        let _ = writeln!(text, "- {}: {version}", contender.name);
    }
    let _ = writeln!(
        text,
        "- S3 server: versitygw {}",
        install::VERSITYGW.version
    );
    for load in Load::ALL {
        let _ = writeln!(text, "\n## {}\n", capitalized(load.title()));
        text.push_str(
            "| direction | contender | wall s | CPU s | peak MiB | wall / best rival | CPU / best \
             rival |\n|---|---|---|---|---|---|---|\n",
        );
        for direction in Direction::ALL {
            let these: Vec<&Row> = rows
                .iter()
                .filter(|row| row.load == load && row.direction == direction)
                .collect();
            for (index, row) in these.iter().enumerate() {
                text.push_str(&line(row, index == 0, &these));
            }
        }
    }
    text
}

fn line(row: &Row, is_ours: bool, rows: &[&Row]) -> String {
    let head = format!("| {} | {} |", row.direction.title(), row.contender);
    let samples = match &row.samples {
        Ok(samples) => samples,
        Err(reason) => {
            return format!(
                "{head} could not be had: {} | | | | |\n",
                first_line(reason)
            );
        }
    };
    let wall = Spread::of(samples, |sample| sample.wall_s);
    let cpu = Spread::of(samples, |sample| sample.cpu_s);
    let peak = samples
        .iter()
        .map(|sample| sample.peak_mib)
        .max()
        .unwrap_or(0);
    let ratio = |ours: f64, figure: fn(&Sample) -> f64| -> String {
        let rivals = rows
            .iter()
            .skip(1)
            .filter_map(|row| row.samples.as_ref().ok());
        let best = rivals
            .map(|samples| Spread::of(samples, figure).median)
            .min_by(f64::total_cmp)
            .filter(|_| is_ours);
        best.map_or_else(String::new, |best| format!("**{:.2}**", ours / best))
    };
    format!(
        "{head} {wall} | {cpu} | {peak} | {} | {} |\n",
        ratio(wall.median, |sample| sample.wall_s),
        ratio(cpu.median, |sample| sample.cpu_s),
    )
}

struct Spread {
    median: f64,
    least: f64,
    most: f64,
}

impl Spread {
    fn of(samples: &[Sample], figure: fn(&Sample) -> f64) -> Self {
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

/// The facts a reader needs to compare.
fn machine(folder: &Path) -> String {
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
        "- machine: {processor}, {cores} cores, {memory} of memory, Linux {kernel}, files on \
         {disk}\n"
    )
}

fn capitalized(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| {
        first.to_uppercase().chain(letters).collect()
    })
}

fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_are_in_the_middle() {
        let samples: Vec<Sample> = [3.0, 1.0, 2.0, 10.0]
            .map(|wall_s| Sample {
                wall_s,
                cpu_s: 0.0,
                peak_mib: 0,
            })
            .to_vec();
        let odd = Spread::of(&samples[..3], |sample| sample.wall_s);
        assert_eq!((odd.least, odd.median, odd.most), (1.0, 2.0, 3.0));
        let even = Spread::of(&samples, |sample| sample.wall_s);
        assert!((even.median - 2.5).abs() < 1e-9);
    }
}
