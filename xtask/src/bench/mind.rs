//! `cargo xtask bench mind`: what a step of the mind costs with many open requests and depots.
//!
//! Runs `crates/core/examples/mind_speed.rs` as it ships, which plays the thinnest possible driver.

use std::{fmt::Write, path::PathBuf, process::Command};

use anyhow::{Context, bail, ensure};

use super::{figures, say, stage};
use crate::root;

/// Open requests and depots of each row.
const SIZES: [(u64, u64); 4] = [(100, 10), (1000, 100), (10_000, 1000), (100_000, 1000)];
/// Steps measured after the requests were taken.
const STEPS: u64 = 100_000;
/// What must be reached at the largest size: the median of a batch, in microseconds, and memory.
const MEDIAN_US_MAX: f64 = 1000.0;
const MEMORY_MAX: u64 = 1_000_000_000;

/// One kind of batch: how many there were, and how long a step took, in microseconds.
struct Line {
    kind: String,
    count: u64,
    median_us: f64,
    p99_us: f64,
    most_us: f64,
}

struct Row {
    requests: u64,
    depots: u64,
    lines: Vec<Line>,
    inputs_per_s: f64,
    memory: u64,
}

/// Runs the benchmark; `--steps N` is the number of steps measured.
///
/// # Errors
/// When it can't be built or run, or what must be reached is not.
pub fn run(arguments: &[String]) -> anyhow::Result<()> {
    let steps = match arguments {
        [] => STEPS,
        [word, value] if word == "--steps" => value.parse().context("--steps wants a number")?,
        _ => bail!("write `cargo xtask bench mind [--steps N]`"),
    };
    let program = build()?;
    let mut rows = Vec::new();
    for (requests, depots) in SIZES {
        say(&format!("{requests} requests, {depots} depots"));
        rows.push(measure(&program, requests, depots, steps)?);
    }
    super::publish("mind", &report(&rows, steps))?;
    check(&rows)
}

fn build() -> anyhow::Result<PathBuf> {
    stage::build_example("posthaste-core", "mind_speed")
}

fn measure(program: &PathBuf, requests: u64, depots: u64, steps: u64) -> anyhow::Result<Row> {
    let numbers = [requests, depots, steps].map(|number| number.to_string());
    let output = Command::new(program).args(&numbers).output()?;
    ensure!(output.status.success(), "{} failed", program.display());
    let text = String::from_utf8(output.stdout)?;
    let mut row = Row {
        requests,
        depots,
        lines: Vec::new(),
        inputs_per_s: 0.0,
        memory: 0,
    };
    for line in text.lines() {
        let words: Vec<&str> = line.split(',').collect();
        match words[..] {
            ["inputs", count, seconds] => {
                row.inputs_per_s = count.parse::<f64>()? / seconds.parse::<f64>()?;
            }
            ["open", ..] => {}
            ["memory", after, before] => {
                row.memory = after.parse::<u64>()? - before.parse::<u64>()?;
            }
            [kind, count, median, p99, most, _] => row.lines.push(Line {
                kind: kind.to_owned(),
                count: count.parse()?,
                median_us: median.parse()?,
                p99_us: p99.parse()?,
                most_us: most.parse()?,
            }),
            _ => bail!("{} said `{line}`", program.display()),
        }
    }
    Ok(row)
}

fn report(rows: &[Row], steps: u64) -> String {
    let mut text = format!(
        "# Steps of the mind\n\nWritten by `cargo xtask bench mind`. One core steps a mind that holds so many open \
         requests (1 GiB each in 16 chunks, code 2+1, six depots drawn at random, deadlines from two hours to two \
         days); its driver is a stub that answers each send after the time the depot's rate gives it, so nothing \
         else is measured. A request that is safe is replaced by another. *Admission* takes the requests one by \
         one before the other rows begin; they are {steps} steps: *submitted* batches hold a new request, *stored* \
         ones stored fragments, measurements and answers of depots, *woken* ones nothing: time alone, which looks \
         at everything once a tick, in slices. Memory is what the process grew by, the stub's queue among it.\n\n{}\n\
         | requests | depots | batch | count | median | p99 | most | inputs/s | memory |\n|---|---|---|---|---|---|---|---|---|\n",
        figures::machine(&root())
    );
    for row in rows {
        for line in &row.lines {
            let _ = writeln!(
                text,
                "| {} | {} | {} | {} | {:.0} µs | {:.0} µs | {:.1} ms | {:.0} | {:.0} MB |",
                row.requests,
                row.depots,
                line.kind,
                line.count,
                line.median_us,
                line.p99_us,
                line.most_us / 1000.0,
                row.inputs_per_s,
                row.memory as f64 / 1e6
            );
        }
    }
    text + "\nTo reach: at 100,000 requests and 1,000 depots a median under 1 ms for each kind, and under 1 GB.\n"
}

fn check(rows: &[Row]) -> anyhow::Result<()> {
    let largest = rows.last().context("there are rows")?;
    for line in &largest.lines {
        ensure!(
            line.median_us < MEDIAN_US_MAX,
            "{}: the median is {:.0} µs",
            line.kind,
            line.median_us
        );
    }
    ensure!(
        largest.memory < MEMORY_MAX,
        "{} B of memory",
        largest.memory
    );
    Ok(())
}
