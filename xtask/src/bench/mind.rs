//! `cargo xtask bench mind`: cost of a step of the mind with many open requests and depots.
//!
//! Runs `mind_speed.rs` and `stage_in_speed.rs` of `crates/core/examples` as they ship, which play
//! the thinnest possible driver.

use std::{fmt::Write, path::PathBuf, process::Command};

use anyhow::{Context, bail, ensure};

use super::{figures, say, stage};
use crate::root;

/// Open requests and depots of each row.
const SIZES: [(u64, u64); 4] = [(100, 10), (1000, 100), (10_000, 1000), (100_000, 1000)];
/// Steps measured after the requests were accepted.
const STEPS: u64 = 100_000;
/// Open stage-ins and sources of each row, and the number of measured steps.
const STAGE_INS: [(u64, u64); 2] = [(100, 10), (1000, 10)];
const STAGE_IN_STEPS: u64 = 5000;
/// Goals at the largest size: the median of a batch, in microseconds, and memory.
const MEDIAN_US_MAX: f64 = 1000.0;
const MEMORY_MAX: u64 = 1_000_000_000;

/// Kind of batch: its count, and the time of a step, in microseconds.
struct Line {
    kind: String,
    count: u64,
    median_us: f64,
    p99_us: f64,
    most_us: f64,
}

struct Row {
    requests: u64,
    /// Depots, or sources.
    places: u64,
    lines: Vec<Line>,
    inputs_per_s: f64,
    memory: u64,
}

/// Runs the benchmark; `--steps N` is the number of steps measured.
///
/// # Errors
/// Fails if it can't be built or run, or a goal is missed.
pub fn run(arguments: &[String]) -> anyhow::Result<()> {
    let steps = match arguments {
        [] => STEPS,
        [word, value] if word == "--steps" => value.parse().context("--steps wants a number")?,
        _ => bail!("write `cargo xtask bench mind [--steps N]`"),
    };
    let program = stage::build_example("posthaste-core", "mind_speed")?;
    let mut rows = Vec::new();
    for (requests, depots) in SIZES {
        say(&format!("{requests} requests, {depots} depots"));
        rows.push(measure(&program, requests, depots, steps)?);
    }
    let program = stage::build_example("posthaste-core", "stage_in_speed")?;
    let mut stage_ins = Vec::new();
    for (requests, sources) in STAGE_INS {
        say(&format!("{requests} stage-ins, {sources} sources"));
        stage_ins.push(measure(&program, requests, sources, STAGE_IN_STEPS)?);
    }
    super::publish("mind", &report(&rows, &stage_ins, steps))?;
    check(&rows)
}

fn measure(program: &PathBuf, requests: u64, places: u64, steps: u64) -> anyhow::Result<Row> {
    let numbers = [requests, places, steps].map(|number| number.to_string());
    let output = Command::new(program).args(&numbers).output()?;
    ensure!(output.status.success(), "{} failed", program.display());
    let text = String::from_utf8(output.stdout)?;
    let mut row = Row {
        requests,
        places,
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

fn report(rows: &[Row], stage_ins: &[Row], steps: u64) -> String {
    let text = format!(
        "# Steps of the mind\n\nWritten by `cargo xtask bench mind`. One core steps a mind that holds so many open \
         requests (1 GiB each in 16 chunks, code 2+1, six depots drawn at random, deadlines from two hours to two \
         days); its driver is a stub that answers each send after the time the depot's rate gives it, so nothing \
         else is measured. A request that is safe is replaced by another. *Admission* takes the requests one by \
         one before the other rows begin; they are {steps} steps: *submitted* batches hold a new request, *stored* \
         ones stored fragments, measurements and answers of depots, *woken* ones nothing: time alone, which looks \
         at everything once a tick, in slices. Memory is what the process grew by, the stub's queue among it.\n\n{}\n\
         {}\nTo reach: at 100,000 requests and 1,000 depots a median under 1 ms for each kind, and under 1 GB.\n",
        figures::machine(&root()),
        table("requests | depots", rows)
    );
    text + &format!(
        "\n## Stage-ins\n\nThe same with stage-ins (1 GiB each in 16 chunks from one of the sources, which give 500 MiB/s; \
         welcome half an hour before their deadlines, which are two hours to two days away), and {STAGE_IN_STEPS} steps: *asked* \
         batches hold a new stage-in, *arrived* ones chunks. Whenever one is asked for or time wakes the mind, all of \
         them are looked at, so that these steps cost what all of them do: thousands of stage-ins at a time are too many yet.\n\n{}",
        table("stage-ins | sources", stage_ins)
    )
}

/// Returns the rows under these names.
fn table(names: &str, rows: &[Row]) -> String {
    let mut text = format!(
        "| {names} | batch | count | median | p99 | most | inputs/s | memory |\n|---|---|---|---|---|---|---|---|---|\n"
    );
    for row in rows {
        for line in &row.lines {
            let _ = writeln!(
                text,
                "| {} | {} | {} | {} | {:.0} µs | {:.0} µs | {:.1} ms | {:.0} | {:.0} MB |",
                row.requests,
                row.places,
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
    text
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
