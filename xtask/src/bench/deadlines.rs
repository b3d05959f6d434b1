//! `cargo xtask bench deadlines`: who keeps how many deadlines, in one and the same simulated world.
//!
//! `crates/sim/examples/deadlines.rs` plays, built for release; here its lines become a page.

use std::{collections::BTreeMap, fmt::Write, process::Command};

use anyhow::{Context, bail, ensure};

use super::publish;
use crate::root;

/// Seeds of each family.
const SEEDS: u64 = 1000;
/// Fields of a line: family, summary, policy and its figures.
const FIELDS: usize = 12;

/// Plays `--seeds N` seeds of each family, or reads the lines of a `--from FILE` that was played before.
///
/// # Errors
/// When the program can't be built, or prints something else than figures.
pub fn run(arguments: &[String]) -> anyhow::Result<()> {
    let (mut seeds, mut from) = (SEEDS, None);
    for pair in arguments.chunks(2) {
        match pair {
            [option, value] if option == "--seeds" => {
                seeds = value.parse().context("--seeds wants a number")?;
            }
            [option, file] if option == "--from" => from = Some(file),
            [..] => bail!("write `cargo xtask bench deadlines [--seeds N] [--from FILE]`"),
        }
    }
    let lines = match from {
        Some(file) => std::fs::read_to_string(file).with_context(|| format!("reading {file}"))?,
        None => play(seeds)?,
    };
    publish("deadlines", &page(&lines, seeds)?)
}

fn play(seeds: u64) -> anyhow::Result<String> {
    let output = Command::new(std::env!("CARGO"))
        .args(["run", "--quiet", "--release", "--package", "posthaste-sim"])
        .args(["--example", "deadlines", "--", "scenarios/deadlines"])
        .arg(seeds.to_string())
        .current_dir(root())
        .output()
        .context("cargo does not start")?;
    ensure!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(String::from_utf8(output.stdout)?)
}

/// One policy in one family, as it was printed.
struct Row<'a> {
    policy: &'a str,
    feasible: u64,
    met_share: f64,
    met_any: u64,
    moved: f64,
    refused: f64,
    refused_feasible: f64,
    fan_out: f64,
    churn: f64,
    violations: u64,
}

fn row<'a>(fields: &[&'a str]) -> anyhow::Result<Row<'a>> {
    ensure!(fields.len() == FIELDS, "no line of figures: {fields:?}");
    let real = |place: usize| {
        fields[place]
            .parse::<f64>()
            .context(fields[place].to_owned())
    };
    let count = |place: usize| {
        fields[place]
            .parse::<u64>()
            .context(fields[place].to_owned())
    };
    Ok(Row {
        policy: fields[2],
        feasible: count(3)?,
        met_share: real(4)?,
        met_any: count(5)?,
        moved: real(6)?,
        refused: real(7)?,
        refused_feasible: real(8)?,
        fan_out: real(9)?,
        churn: real(10)?,
        violations: count(11)?,
    })
}

const HEAD: &str = "# Keeping deadlines\n\n\
    Who keeps how many deadlines in one and the same simulated world. Made by `cargo xtask bench deadlines \
    [--seeds N]`; the worlds are in [`scenarios/deadlines`](../../scenarios/deadlines), and anybody can play \
    one: `posthaste simulate scenarios/deadlines/bursts.toml --seed 7`.\n\n\
    Requests come over some minutes, each with a deadline by which all of it must be safe: whole at its \
    destination, or coded on depots so that the loss of as many as the code allows loses nothing. All \
    policies get the same inputs as the mind and give the same commands, all worlds are the same for a seed, \
    and nobody but the clairvoyant knows the future. Before the first request all see for a minute what paths \
    carry, one path a second: a centre knows its paths.\n\n\
    - **clairvoyant**: the linear program of [the plan over time](../algorithms/time-expanded-plan.md) on \
    what every path really carried, exact to the deadline. What it keeps is what **feasible** means here. It \
    maximizes how many deadlines are kept with bounded effort, so it is a bound up to that effort; it does \
    not know that a depot will lose its data.\n\
    - **direct only**: whole chunks to the destination, first come, first served; and by **earliest \
    deadline first**, what is late last.\n\
    - **static split**: fragment i to the i-th depot. **round robin**: fragments over all depots that are up.\n\
    - **AIMD without deadlines**: point to point, requests side by side, concurrency by additive increase and \
    multiplicative decrease, as file transfer services do.\n\
    - **greedy plan over time**: `horizon::greedy` made anew every five seconds from measured rates, and \
    whatever is most urgent where a depot would idle. It refuses nothing.\n\
    - **posthaste**: the mind that ships, as it is; and **greedy only**, as it is where no plan over time is ever \
    asked for. It and the clairvoyant keep fragments of a chunk apart by \
    failure domain; the rivals do not, and what they store counts as safe all the same.\n\n\
    Columns: **feasible met**, of the deadlines the clairvoyant keeps; **all met**, as many as how much of \
    the clairvoyant's, whichever they are; **moved**, bytes sent for each byte of a dataset that was safe in \
    time, coding included; **infeasible refused** at submission, of those that neither the clairvoyant nor the policy keeps, and \
    **feasible refused**; **fan-out**, depots and destinations a request was sent to; **churn**, bytes sent \
    that were never stored.\n";

fn page(lines: &str, seeds: u64) -> anyhow::Result<String> {
    let mut families: BTreeMap<(&str, &str), Vec<Row<'_>>> = BTreeMap::new();
    for line in lines.lines() {
        let fields: Vec<&str> = line.split('\t').collect();
        let row = row(&fields)?;
        families
            .entry((fields[0], fields[1]))
            .or_default()
            .push(row);
    }
    ensure!(!families.is_empty(), "nothing was played");
    let mut page = String::from(HEAD);
    write!(
        page,
        "\n{seeds} seeds of each family.\n\n## All families\n\n{}",
        overview(&families)
    )?;
    for ((name, summary), rows) in &families {
        write!(page, "\n## {name}\n\n{summary}\n\n{}", table(rows))?;
    }
    let violations: u64 = families.values().flatten().map(|row| row.violations).sum();
    // The mind is played twice.
    let runs = 2 * seeds * families.len() as u64;
    writeln!(
        page,
        "\nIn {violations} of the {runs} runs of posthaste a checker of the simulator objected."
    )?;
    Ok(page)
}

/// Feasible deadlines met by each policy in each family.
fn overview(families: &BTreeMap<(&str, &str), Vec<Row<'_>>>) -> String {
    let mut text = String::from("| feasible met |");
    for (name, _) in families.keys() {
        let _ = write!(text, " {name} |");
    }
    let _ = write!(text, "\n|---|{}\n", "---|".repeat(families.len()));
    let policies = families
        .values()
        .next()
        .map(Vec::as_slice)
        .unwrap_or_default();
    for (place, policy) in policies.iter().enumerate() {
        let _ = write!(text, "| {} |", policy.policy);
        for rows in families.values() {
            let share = rows.get(place).map_or(f64::NAN, |row| row.met_share);
            let _ = write!(text, " {:.1} % |", share * 100.0);
        }
        text.push('\n');
    }
    text
}

fn table(rows: &[Row<'_>]) -> String {
    let mut text = String::from(
        "| | feasible met | all met | moved | infeasible refused | feasible refused | fan-out | churn |\n\
         |---|---|---|---|---|---|---|---|\n",
    );
    for row in rows {
        #[expect(clippy::cast_precision_loss, reason = "a share for people")]
        let all = row.met_any as f64 / row.feasible.max(1) as f64;
        // A byte for each of a hundred is no figure any more.
        let moved = if row.moved < 100.0 {
            format!("{:.2}", row.moved)
        } else {
            String::from("-")
        };
        let _ = writeln!(
            text,
            "| {} | {:.1} % | {:.1} % | {moved} | {:.0} % | {:.1} % | {:.1} | {:.1} % |",
            row.policy,
            row.met_share * 100.0,
            all * 100.0,
            row.refused * 100.0,
            row.refused_feasible * 100.0,
            row.fan_out,
            row.churn * 100.0,
        );
    }
    let feasible = rows.first().map_or(0, |row| row.feasible);
    let _ = writeln!(text, "\nThe clairvoyant keeps {feasible}.");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_become_tables() {
        let line = "bursts\tMuch at once.\tposthaste\t170\t0.9176\t159\t1.589\t0.5\t0.0235\t3.97\t0.0117\t0\n";
        let text = page(line, 10).unwrap();
        let row = "| posthaste | 91.8 % | 93.5 % | 1.59 | 50 % | 2.4 % | 4.0 | 1.2 % |";
        assert!(text.contains(row), "{text}");
        assert!(text.contains("| posthaste | 91.8 % |\n"), "{text}");
        assert!(page("", 10).is_err());
        assert!(page("bursts\t1\n", 10).is_err());
    }
}
