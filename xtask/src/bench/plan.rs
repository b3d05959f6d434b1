//! `cargo xtask bench plan`: time to find plans over time, and the gain by the linear program.
//!
//! `crates/solve/examples/instances.rs` measures, built for release; here its lines become a page.

use std::{fmt::Write, process::Command};

use anyhow::{Context, bail, ensure};

use super::{figures::machine, publish};
use crate::root;

/// Measurements of each; the best counts.
const RUNS: u32 = 1;
/// Fields of a line.
const FIELDS: usize = 14;

/// Runs the benchmark; `--runs N` is the number of measurements.
///
/// # Errors
/// Fails if the program can't be built, or prints anything but figures.
pub fn run(arguments: &[String]) -> anyhow::Result<()> {
    let runs = match arguments {
        [] => RUNS,
        [option, runs] if option == "--runs" => runs.parse().context("--runs wants a number")?,
        [..] => bail!("write `cargo xtask bench plan [--runs N]`"),
    };
    let output = Command::new(std::env!("CARGO"))
        .args([
            "run",
            "--quiet",
            "--release",
            "--package",
            "posthaste-solve",
        ])
        .args(["--example", "instances", "--", &runs.to_string()])
        .current_dir(root())
        .output()
        .context("cargo does not start")?;
    ensure!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    publish("plan", &page(&String::from_utf8(output.stdout)?, runs)?)
}

fn page(lines: &str, runs: u32) -> anyhow::Result<String> {
    let mut page = String::from(
        "# Plans over time\n\n\
         What [the time-expanded plan](../algorithms/time-expanded-plan.md) costs. Made by `cargo xtask \
         bench plan`.\n\n\
         The centre, a user and relays between them, all with links of their own; slots of a quarter of \
         an hour with rates and prices drawn from one seed. Copies go from the centre to the user; \
         stage-outs, coded 2+1, must have left after half the time and be delivered in the end. \
         \"Whole\" is one program for all demands, where it has at most 12 500 variables; \"default\" is \
         24 programs of at most 6 000: one after the other where the whole is too large, the greedy plan \
         where one alone is. The mind asks for less, 6 of at most 4 000, and for 24 slots and one for each deadline.\n\n",
    );
    write!(
        page,
        "- runs of each: {runs}, the best counts; one thread, built for release\n{}\n",
        machine(&root())
    )?;
    page.push_str(
        "| | relays x slots x demands | variables | greedy | whole | default | cost: greedy, whole, default |\n\
         |---|---|---|---|---|---|---|\n",
    );
    for line in lines.lines() {
        let fields: Vec<&str> = line.split('\t').collect();
        ensure!(fields.len() == FIELDS, "no line of figures: {line}");
        let demands = fields[3];
        let time = |place: usize| -> anyhow::Result<String> {
            let (millis, kept) = (fields[place], fields[place + 1]);
            if millis.is_empty() {
                return Ok(String::from("-"));
            }
            let missed = if kept == demands {
                String::new()
            } else {
                format!(", {kept} kept")
            };
            Ok(format!("{}{missed}", readable(millis.parse()?)))
        };
        let cost = |place: usize| {
            if fields[place].is_empty() {
                "-"
            } else {
                fields[place]
            }
        };
        writeln!(
            page,
            "| {} | {} x {} x {demands} | {} | {} | {} | {} | {}, {}, {} $ |",
            fields[0],
            fields[1],
            fields[2],
            fields[4],
            time(5)?,
            time(8)?,
            time(11)?,
            cost(7),
            cost(10),
            cost(13),
        )?;
    }
    page.push_str(
        "\nAll demands are kept where nothing else is said. Each schedule is checked against every rule \
         before it is returned.\n",
    );
    Ok(page)
}

/// Returns milliseconds for people.
fn readable(millis: f64) -> String {
    if millis < 10.0 {
        format!("{millis:.1} ms")
    } else if millis < 1000.0 {
        format!("{millis:.0} ms")
    } else {
        format!("{:.1} s", millis / 1000.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_figures_becomes_a_row() {
        let line = "copy\t20\t96\t2\t5836\t0.84\t2\t168\t\t\t\t351.7\t1\t159\n";
        let page = page(line, 1).unwrap();
        let row = "| copy | 20 x 96 x 2 | 5836 | 0.8 ms | - | 352 ms, 1 kept | 168, -, 159 $ |";
        assert!(page.contains(row), "{page}");
        assert!(super::page("something else\n", 1).is_err());
    }
}
